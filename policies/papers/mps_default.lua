-- mps_default.lua: nobody is held back, and every kernel may use every SM.
--
-- Typical use: the baseline of comparisons (KRISP section 5: "MPS default"). Under MPS the GPU
-- decides which blocks run; time-sliced the driver gives each process its turns.
return policy {
  name = "mps_default", api = 1, version = "1.0.0",
  hooks = {
    client_init = function(c, p) return LEASE, "nobody is held back" end,
    client_active = function(c, p) return LEASE, "nobody is held back" end,
    client_idle = function(c, p) return LEASE, "nobody is held back" end,
  },
}
