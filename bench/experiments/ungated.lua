-- Everyone runs free: what remains of heddle is the launch priority that the core gives to Q0-Q4.
--   heddle-bench run SCENARIO --policies bench/experiments/ungated.lua@mps,gapfill@mps
local function free() return LEASE end
return policy {
  name = "ungated", api = 1, version = "1.0.0",
  hooks = { client_init = free, client_active = free, client_idle = free,
            enqueue = function() return RUN end },
}
