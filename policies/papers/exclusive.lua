-- exclusive.lua: exclusive mode by software (Wu et al., FIKIT, section 4.5.2).
--
-- While a more important program is active, nobody below it runs, not even in its gaps. Equals
-- share the GPU. A baseline for what filling gaps is worth, and the strictest protection there is
-- without a second GPU.
--
-- Best effort runs when everybody above has been silent for longer than its pauses are predicted to
-- last; else once per starvation bound (heddled.toml).
queue.create("waiting")

return policy {
  name = "exclusive", api = 1, version = "1.0.0",
  hooks = {
    enqueue = function(k, p)
      return queue.insert("waiting", k, k.priority)  -- Q0 goes first
    end,

    dispatch = function(g, p)
      local k = queue.peek("waiting")
      if not k then return IDLE, "empty" end
      for c in g:clients() do
        if c.active and c.priority < k.priority then
          return IDLE, "a more important program is active"
        end
      end
      return RUN, k
    end,
  },
}
