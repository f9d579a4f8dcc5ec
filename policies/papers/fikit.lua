-- fikit.lua: FIKIT as the paper describes it (Wu et al., section 3.2, Algorithms 1 and 2).
--
-- The most important program launches as it likes. When it pauses, the gap it is predicted to leave
-- is filled with the kernels of others: the highest priority first, of equals the longest that
-- still fits; what they take is taken off the gap. Its next launch ends the gap at once ("real time
-- feedback"). A kernel longer than every gap waits for the starvation bound; gapfill.lua differs in
-- that, and limits what is in flight. Predictions are the core's, learned online.
queue.create("waiting")

-- Priority of the program that holds the GPU: the most important one that is active.
local function holder(g)
  local top = math.huge
  for c in g:clients() do
    if c.active and c.priority < top then top = c.priority end
  end
  return top
end

return policy {
  name = "fikit", api = 1, version = "1.0.0",
  params = {
    gap_min_us = { type = "int", min = 0, max = 10000, default = 100,
                   doc = "shorter gaps are not filled (the paper's 0.1 ms)" },
  },
  hooks = {
    enqueue = function(k, p)
      return queue.insert("waiting", k, k.priority)  -- Q0 is scanned first
    end,

    dispatch = function(g, p)
      local k = queue.peek("waiting")
      if not k then return IDLE, "empty" end
      local below = holder(g) + 1
      if k.priority < below then return RUN, k end                        -- nobody is above it
      if g:busy(below) then return IDLE, "the gap is over" end            -- early stop
      if g:gap_length_us(below) < p.gap_min_us then return IDLE, "gap too short" end
      local left = g:gap_us(below) - g.inflight_us
      local fits = queue.best_fit("waiting", left)                        -- BestPrioFit
      if not fits then return IDLE, "no kernel fits" end
      return RUN, fits
    end,
  },
}
