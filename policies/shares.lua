-- shares.lua: each program has so many SMs, by its label; a change holds from its next launches on.
--
-- Typical use: what `heddle plan jobs --apply` sets, and measuring a program at several sizes. A
-- label that is not named has all SMs. The sets of several programs begin as far apart as they
-- can, and overlap only where they meet. A program that attached under another policy keeps that
-- policy's sets: start it again. For a size for each kernel use right_size.lua.
sm_set.family { placement = "ring", sizes = { 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14 } }

local labels = import "lib/labels"

local SIZES = { name = "sizes", unit = "SMS", example = "api=64,embed=32", most = 1024,
                whole = true }

return policy {
  name = "shares", api = 1, version = "1.0.0",
  params = {
    sizes = { type = "string", default = "",
              doc = "SMs of each label, as api=64,embed=32; 0: all of them" },
  },
  hooks = {
    init = function(p) labels.read(SIZES, p.sizes) end,
    client_init = function(c, p)
      labels.meet(c)
      return LEASE, "on its label's SMs"
    end,
    client_active = function(c, p) return LEASE, "on its label's SMs" end,
    client_idle = function(c, p) return LEASE, "on its label's SMs" end,
    kernel_init = function(kn, c, p)
      labels.check(c)
      return labels.of(c.label)
    end,
  },
}
