-- search.lua: finds the best number of SMs for a CUDA graph while it runs beside others.
--
-- The graph begins on all SMs, and the search tries smaller sizes in turn. A size is kept if it
-- lowers time x (1 + lambda x SMs) of the graph; the first that does not ends the search. Each
-- trial is the mean of 20 timed launches. The graph goes below `least` SMs only if it takes no
-- longer there. It never grows again: other graphs search at the same time and free SMs, so the
-- older times of larger sizes cannot be compared.
local SAMPLES, SAME = 20, 1.003
local SIZES = { 96, 64, 48, 32, 16 }  -- SMs, tried after all of them
local GRAPHS_MOST = 64                -- of a client; its further graphs keep all SMs

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

-- SMs of the graph `kn`, and whether they are on trial; nil if its client has too many graphs.
-- want: { lambda, least, total }; a new lambda or least begins the search anew.
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

-- Called in `stopping`: true if the size has changed, and the caller must resize the client.
-- Launches that end within settle_us of a change do not count: the graph's twin of the new size may
-- not have been made yet.
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
