-- search.lua: on how many SMs a CUDA graph is best, found while it runs beside others.
--
-- The graph begins on all SMs, and one smaller size after the other is tried. A size is kept if
-- time x (1 + lambda x SMs) of the graph fell; the first that is not ends the search. Each trial is
-- the mean of 20 timed launches. Below `least` SMs the graph goes only if it takes no longer. It
-- never grows again: others search too, and what a time is held against is older than what they
-- freed.
local SAMPLES, SAME = 20, 1.003
local SIZES = { 96, 64, 48, 32, 16 }  -- SMs, but for all of them
local GRAPHS_MOST = 64                -- of a client; others keep all SMs

local clients = {}  -- by client's number: { count, of = by kernel ID }

local function begin(want)
  local s = { lambda = want.lambda, least = want.least, at = 1, over = false, n = 0, sum = 0,
              since = now_us(), steps = { want.total } }
  for i = 1, #SIZES do
    if SIZES[i] < want.total then s.steps[#s.steps + 1] = SIZES[i] end
  end
  return s
end

local function judge(s, us)
  local sm = s.steps[s.at]
  local cost = us * (1 + s.lambda * sm)
  local kept = not s.cost or (cost < s.cost and (sm >= s.least or us <= s.us * SAME))
  s.over = not kept or s.at == #s.steps
  if kept then s.us, s.cost = us, cost else s.at = s.at - 1 end
  if not s.over then s.at = s.at + 1 end
end

-- SMs of the graph `kn`, and whether they are on trial; nil where its client has too many graphs.
-- want: { lambda, least, total }; other ones begin the search anew.
local function size(kn, c, want)
  local own = clients[c.id]
  if not own then own = { count = 0, of = {} } clients[c.id] = own end
  local s = own.of[kn.id]
  if not s then
    if own.count == GRAPHS_MOST then return nil end
    own.count = own.count + 1
  end
  if not s or s.lambda ~= want.lambda or s.least ~= want.least then s = begin(want) end
  own.of[kn.id] = s
  return s.steps[s.at], not s.over
end

-- In `stopping`: true if the size is another now, and the client is to be resized. What ends
-- within settle_us of a change does not count: its twin may not have been there.
local function ended(k, settle_us)
  if k.kind ~= "graph" or k.run_us == 0 then return false end
  local own = clients[k.client.id]
  local s = own and own.of[k.kernel.id]
  if not s or s.over or now_us() - s.since < settle_us then return false end
  s.n, s.sum = s.n + 1, s.sum + k.run_us
  if s.n < SAMPLES then return false end
  judge(s, s.sum / s.n)
  s.n, s.sum, s.since = 0, 0, now_us()
  return true
end

local function forget(c) clients[c.id] = nil end

return { size = size, ended = ended, forget = forget }
