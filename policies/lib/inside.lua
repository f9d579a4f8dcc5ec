-- inside.lua: how many SMs each part of a CUDA graph gets, found while the graph runs.
--
-- Coordinate descent on the time of the whole graph. Its kernel nodes are 16 parts. All begin on
-- all SMs. First all parts together are tried on the next smaller size: one alone would gain
-- nothing while its neighbours are everywhere. Then one part after the other is. A size is kept if
-- time x (1 + lambda x SMs) of the graph fell, where SMs are the mean over the parts, and a smaller
-- one is tried. Each trial is the mean of 20 timed launches. Below `least` SMs a part goes only if
-- the graph takes no longer. No part grows again: others search too, and what a time is held
-- against is older than what they freed.
local PARTS, SAMPLES, SAME = 16, 20, 1.003
local ALL = 0
local SIZES = { 96, 64, 48, 32, 16 }  -- SMs, but for all of them
local GRAPHS_MOST = 64                -- of a client; others keep all SMs

local clients = {}  -- by client's number: { count, of = by kernel ID }

local function mean_sm(s)
  local sum = 0
  for i = 1, PARTS do sum = sum + s.steps[s.at[i]] end
  return sum / PARTS
end

local function begin(want)
  local s = { lambda = want.lambda, least = want.least, total = want.total,
              at = {}, part = ALL, n = 0, sum = 0, since = now_us(),
              steps = { want.total } }
  for i = 1, PARTS do s.at[i] = 1 end
  for i = 1, #SIZES do
    if SIZES[i] < want.total then s.steps[#s.steps + 1] = SIZES[i] end
  end
  return s
end

-- The part that is on trial, or all of them, go `steps` sizes down.
local function move(s, steps)
  for i = 1, PARTS do
    if s.part == ALL or s.part == i then s.at[i] = s.at[i] + steps end
  end
end

-- Where all are on trial they have one size.
local function step_of(s) return s.at[math.max(1, s.part)] end

-- The next trial; part is above PARTS once there is none.
local function try_next(s)
  while s.part <= PARTS and step_of(s) == #s.steps do s.part = s.part + 1 end
  if s.part <= PARTS then move(s, 1) end
end

local function judge(s, us)
  local cost = us * (1 + s.lambda * mean_sm(s))
  if not s.cost then                                  -- all on all SMs
    s.us, s.cost = us, cost
  elseif cost < s.cost and (s.steps[step_of(s)] >= s.least or us <= s.us * SAME) then
    s.us, s.cost = us, cost
  else
    move(s, -1)
    s.part = s.part + 1
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
  for i = 1, PARTS do sms[i] = s.steps[s.at[i]] end
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
