-- right_size.lua: nobody asks, and each kernel gives up the SMs that buy it little.
--
-- Typical use: several services of one importance on one GPU under MPS, each too small to fill it.
-- Each client's SM sets begin at an anchor of its own on the ring of groups, and may overlap. While
-- a client is alone its kernels keep all SMs. Beside others a kernel takes the size that minimizes
-- time + lambda x SMs x time; lambda grows with the number of clients at work, between none and
-- lambda_max. It follows the clients' number within settle_ms, so that short pauses change nothing.
-- A kernel that pays for fewer SMs keeps so many that `overlap` clients share each SM on average:
-- on an H100 four workers on overlapping halves did more than four on quarters.
-- With inside = true each part of a CUDA graph gets a size of its own (lib/inside.lua): no curve is
-- needed, and the first seconds beside others are the search.
local inside = import "lib/inside"

sm_set.family { placement = "ring" }

local lambda = 0      -- of all kernels now
local at_work = 0     -- clients, smoothed
local least = 0       -- SMs that a kernel keeps which is slower on fewer
local wanted_since = 0
local total = 0       -- SMs

return policy {
  name = "right_size", api = 1, version = "1.0.0",
  params = {
    lambda_max = { type = "number", min = 0, max = 1, default = 0.02,
                   doc = "what an SM costs beside three others or more, as a share of time" },
    overlap = { type = "number", min = 1, max = 8, default = 2,
                doc = "clients that share an SM, on average, where kernels pay for fewer SMs" },
    settle_ms = { type = "int", min = 1, max = 10000, default = 50,
                  doc = "a change in who works counts after so long" },
    inside = { type = "bool", default = false, doc = "parts of a graph have sizes of their own" },
  },
  hooks = {
    client_init = function(c, p) return LEASE, "on as many SMs as its kernels need" end,
    client_active = function(c, p) return LEASE, "on as many SMs as its kernels need" end,
    client_idle = function(c, p) return LEASE, "on as many SMs as its kernels need" end,

    kernel_init = function(kn, c, p)
      if lambda == 0 then return nil end
      if p.inside and kn.block_threads == 0 then
        return inside.sizes(kn, c, { lambda = lambda, least = least, total = total })
      end
      local size = kn:size_for(lambda)
      if not size then return nil end
      return math.max(size, math.min(least, kn.right_size))
    end,

    stopping = function(k, p)
      if p.inside and lambda > 0 and inside.ended(k, p.settle_ms * 1000) then k.client:resize() end
    end,

    client_exit = function(c) inside.forget(c) end,

    tick = function(g, p)
      total = g.sm_total
      local n = 0
      for c in g:clients() do
        if c.active then n = n + 1 end
      end
      if n == at_work then wanted_since = now_us() return end
      if now_us() - wanted_since < p.settle_ms * 1000 then return end
      at_work = n
      least = p.overlap * g.sm_total / math.max(1, n)
      least = least - least % 8  -- whole groups
      lambda = p.lambda_max * math.max(0, math.min(3, n - 1)) / 3
      for c in g:clients() do c:resize() end
    end,
  },
}
