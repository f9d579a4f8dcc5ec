-- inside.lua: how many SMs each part of a CUDA graph gets, found while the graph runs.
--
-- Coordinate descent on the time of the whole graph. Its kernel nodes are 16 parts. All begin on
-- all SMs. One part after the other is tried on the next smaller size. The part keeps that size if
-- time x (1 + lambda x SMs) of the graph fell, where SMs are the mean over the parts, and is tried
-- on a smaller one. Each trial is the mean of 20 timed launches. Below `least` SMs a part goes only
-- if the graph takes no longer.
local PARTS, SAMPLES, SAME = 16, 20, 1.003
local STEPS = { 0, 96, 64, 48, 32, 16 }  -- SMs; 0: all
local GRAPHS_MOST = 64                   -- of a client; others keep one size

local clients = {}  -- by client's number: { count, of = by kernel ID }

local function mean_sm(s)
  local sum = 0
  for i = 1, PARTS do
    local sm = STEPS[s.at[i]]
    sum = sum + (sm == 0 and s.total or sm)
  end
  return sum / PARTS
end

local function begin(want)
  local s = { lambda = want.lambda, least = want.least, total = want.total,
              at = {}, part = 0, n = 0, sum = 0, since = now_us() }
  for i = 1, PARTS do s.at[i] = 1 end
  return s
end

-- The next trial; part is above PARTS once there is none.
local function try_next(s)
  if s.part <= PARTS and s.at[s.part] == #STEPS then s.part = s.part + 1 end
  if s.part <= PARTS then s.at[s.part] = s.at[s.part] + 1 end
end

local function judge(s, us)
  local cost = us * (1 + s.lambda * mean_sm(s))
  if s.part == 0 then                                 -- all on all SMs
    s.part, s.us, s.cost = 1, us, cost
  else
    local free = us <= s.us * SAME
    if cost < s.cost and (STEPS[s.at[s.part]] >= s.least or free) then
      s.us, s.cost = us, cost
    else
      s.at[s.part] = s.at[s.part] - 1
      s.part = s.part + 1
    end
  end
  try_next(s)
end

-- What kernel_init returns for the graph `kn`: SMs of its parts; nil where it has too many graphs.
-- want: { lambda, least, total }; other ones begin the search anew.
local function sizes(kn, c, want)
  local own = clients[c.id]
  if not own then own = { count = 0, of = {} } clients[c.id] = own end
  local s = own.of[kn.id]
  if not s then
    if own.count == GRAPHS_MOST then return nil end
    own.count = own.count + 1
  end
  if not s or s.lambda ~= want.lambda or s.least ~= want.least then s = begin(want) end
  own.of[kn.id] = s
  local sms = {}
  for i = 1, PARTS do sms[i] = STEPS[s.at[i]] end
  return sms
end

-- In `stopping`: true if the sizes are others now, and the client is to be resized. What ends
-- within settle_us of a change does not count: its twin may not have been there.
local function ended(k, settle_us)
  if k.kind ~= "graph" or k.run_us == 0 then return false end
  local own = clients[k.client.id]
  local s = own and own.of[k.kernel.id]
  if not s or s.part > PARTS or now_us() - s.since < settle_us then return false end
  s.n, s.sum = s.n + 1, s.sum + k.run_us
  if s.n < SAMPLES then return false end
  judge(s, s.sum / s.n)
  s.n, s.sum, s.since = 0, 0, now_us()
  return true
end

local function forget(c) clients[c.id] = nil end

return { sizes = sizes, ended = ended, forget = forget }
