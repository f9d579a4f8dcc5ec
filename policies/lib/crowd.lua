-- crowd.lua: what an SM costs its user, by how many clients are at work.
--
-- While a client is alone its kernels keep all SMs. Beside others a kernel takes the size that
-- minimizes time + lambda x SMs x time; lambda grows with the number of clients at work, from 0 to
-- lambda_max. It follows a new number only after settle_ms, so that short pauses change nothing. A
-- kernel that is slower on fewer SMs keeps so many that `overlap` clients share each SM on average:
-- on an H100 four workers on overlapping halves did more than four on quarters.
local params = {
  lambda_max = { type = "number", min = 0, max = 1, default = 0.02,
                 doc = "what an SM costs beside three others or more, as a share of time" },
  overlap = { type = "number", min = 1, max = 8, default = 2,
              doc = "clients that share an SM, on average, where kernels pay for fewer SMs" },
  settle_ms = { type = "int", min = 1, max = 10000, default = 50,
                doc = "a change in who works counts after so long" },
}

local now = {
  lambda = 0,  -- cost of an SM, the same for all kernels
  least = 0,   -- SMs that a kernel keeps which is slower on fewer
  total = 0,   -- SMs of the GPU
}
local at_work = 0  -- number of active clients, once it has held for settle_ms
local wanted_since = 0

-- For `tick`: once the number of active clients has changed, kernel_init is called again for all
-- kernels.
local function follow(g, p)
  local n = 0
  for c in g:clients() do
    if c.active then n = n + 1 end
  end
  if n == at_work then wanted_since = now_us() return end
  if now_us() - wanted_since < p.settle_ms * 1000 then return end
  at_work = n
  now.total = g.sm_total
  now.least = p.overlap * g.sm_total / math.max(1, n)
  now.least = now.least - now.least % 8  -- whole groups
  now.lambda = p.lambda_max * math.max(0, math.min(3, n - 1)) / 3
  for c in g:clients() do c:resize() end
end

-- SMs of a kernel by its measured curve; nil: all SMs, also for kernels without a curve.
local function size_of(kn)
  if now.lambda == 0 then return nil end
  local size = kn:size_for(now.lambda)
  return size and math.max(size, math.min(now.least, kn.right_size))
end

return { params = params, now = now, follow = follow, size_of = size_of }
