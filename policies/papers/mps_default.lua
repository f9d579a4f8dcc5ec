-- mps_default.lua: nobody is held back, and every kernel may use every SM.
--
-- Typical use: the baseline of comparisons (KRISP section 5: "MPS default"). Under MPS the GPU
-- decides which blocks run; time-sliced the driver gives each process its turns. What is left of
-- heddle is the launch priority that the core gives to Q0 to Q4.
local function free() return LEASE, "nobody is held back" end

return policy {
  name = "mps_default", api = 1, version = "1.1.0",
  hooks = {
    client_init = free, client_active = free, client_idle = free,
    enqueue = function() return RUN end,
  },
}
