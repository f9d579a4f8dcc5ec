-- mmk.lua: MMK's kernel scheduler (section III-C and Listing 1; where they differ, the section).
--
-- The more important program is online, and launches as it likes. An offline launch goes if the
-- resource check lets it: nothing of a more important program is on the GPU, or all promises can
-- afford it. Else it waits. What counts is not the clock but the time of online kernels that it has
-- waited through: once that passes DURATION / MPS limit it goes, and counts from nothing again; by
-- what one launch went late the next goes earlier. Each program waits for itself, at the same time
-- as the others. The limit is the share that `heddle plan` gave
-- the job: of the SMs that `sizes` names for its label, which its launches keep to, or else its
-- rule's share, such as 0.4.
--
-- Not as printed: line 18 runs offline kernels that do NOT pass the check, `schedule` is never set
-- to true again, and line 24 adds one online kernel's time however long it waits. The paper prints
-- no DURATION. For less harm to online programs use gapfill.lua, which knows how long gaps are.
queue.create("offline")
sm_set.family { placement = "ring", sizes = { 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14 } }

local labels = import "lib/labels"
local above, company = import "lib/above", import "lib/company"

local SIZES = { name = "sizes", unit = "SMS", example = "api=64,embed=32", most = 1024,
                whole = true }

-- By client: the online kernel time at which it began to wait, and by how much of it its last
-- launch went late. A launch that waits is looked at each ms at least, so it is that late at most.
local since, late = {}, {}
local LATE_MOST_US = 1000
local LOOK_AT = 128                           -- launches: each program waits, beside the others

-- The time, in all, in which programs above the launch had work on the GPU.
local function online_us(g, k) return now_us() - g:idle_us(k.priority) end

local function share(g, c)
  local at = labels.of(c.label)
  return at and at > 0 and at / g.sm_total or c.share
end

-- Under MPS a launch of lower stream priority would wait on the GPU for online kernels to leave it
-- SMs, as long as they fill it: one that has waited through DURATION has theirs.
local function stream_priority(g) return math.min(0, above.top(g) - 5) end

local function forget(c) since[c.id], late[c.id] = nil, nil end

-- True if the launch's client has waited through DURATION, or begins to wait.
local function has_waited(g, k, p)
  local id, now = k.client.id, online_us(g, k)
  since[id] = since[id] or now - (late[id] or 0)
  local over_us = now - since[id] - p.duration_us / share(g, k.client)
  if over_us <= 0 then return false end
  since[id], late[id] = nil, math.min(over_us, LATE_MOST_US)
  return true
end

local function go(verdict, k)
  forget(k.client)
  return verdict, k
end

return policy {
  name = "mmk", api = 1, version = "1.0.0",
  params = {
    duration_us = { type = "int", min = 1, max = 10000000, default = 1000,
                    doc = "DURATION: online kernel time in µs that an offline launch of share 1 "
                          .. "waits through" },
    inflight_us = { type = "int", min = 20, max = 100000, default = 1000,
                    doc = "most predicted offline work in flight that passed the check" },
    promises = { type = "bool", default = false,
                 doc = "the check also lets in what rules' slowdown_max can afford" },
    sizes = { type = "string", default = "",
              doc = "SMs of each label, as api=64,embed=32; 0: all of them" },
  },
  hooks = {
    init = function(p) labels.read(SIZES, p.sizes) end,
    client_init = function(c, p) labels.meet(c) end,
    kernel_init = function(kn, c, p)
      labels.check(c)
      return labels.of(c.label)
    end,
    client_exit = forget,

    enqueue = function(k, p)
      return queue.insert("offline", k, k.priority)    -- online first
    end,

    dispatch = function(g, p)
      local k = queue.peek("offline")
      if not k then return IDLE, "empty" end
      if k.priority <= above.top(g) then return go(RUN, k) end
      local short = g.inflight_us > 0 and g.inflight_us + k.predicted_us > p.inflight_us
      if not short then
        if not g:busy(k.priority) then return go(OPEN, k) end
        if p.promises and company.may_join(k) then return go(RUN, k) end
      end
      for place = 1, math.min(queue.len("offline"), LOOK_AT) do
        local one = queue.peek("offline", place)
        if has_waited(g, one, p) then return RUN, one, nil, stream_priority(g) end
      end
      return IDLE, short and "enough in flight" or "online first"
    end,
  },
}
