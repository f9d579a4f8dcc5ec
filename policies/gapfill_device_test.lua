-- If best effort's launches are held on the device, one verdict fills a whole gap.

test("what is held on the device fills a gap that comes out longer than predicted", function(t)
  local s = t.sim { policy = "gapfill.lua", params = { quantum_us = 200, slowdown_pct = 0 } }
  s:client { name = "lc", priority = 0 }
  s:client { name = "held", priority = 9, gates = true }
  s:loop { client = "held", us = 60, blocks = 264, count = 8 }
  s:loop { client = "lc", us = 800, gap_us = 1000, at = 20000, count = 40 }
  s:run(95000)
  s:loop { client = "held", us = 60, blocks = 264, launches = 2000 }
  s:loop { client = "lc", us = 800, gap_us = 5000 }
  s:run(5000)
  local before = s:stats("held")
  s:run(100000)
  local lc, held = s:stats("lc"), s:stats("held")
  t.ok(held.gpu_us - before.gpu_us > 0.9 * 100000 * 5000 / 5900, "GPU time of held")
  t.below(held.asks - before.asks, 3 * 100000 / 5800, "verdicts")
  t.below(lc.max_us, 800 + 150 + 50, "slowest iteration of lc")
end)

-- A gate stops the next unit, and not the kernels of the one that runs.
test("of long kernels that are held on the device a gap has those that fit", function(t)
  local s = t.sim { policy = "gapfill.lua", params = { slowdown_pct = 0, share_pct = 0,
                                                       floor_pct = 0, fence_sm = 0 } }
  s:client { name = "lc", priority = 0 }
  s:client { name = "held", priority = 9, gates = true }
  s:loop { client = "held", us = 700, blocks = 264, count = 8 }
  s:loop { client = "lc", us = 800, gap_us = 2500, at = 20000, count = 40 }
  s:run(160000)
  s:loop { client = "held", us = 700, blocks = 264, launches = 4 }
  s:loop { client = "lc", us = 800, gap_us = 2500 }
  local before = s:stats("held")
  s:run(100000)
  local lc, held = s:stats("lc"), s:stats("held")
  t.below(lc.max_us, 800 + 100, "slowest iteration of lc")
  t.ok(held.gpu_us - before.gpu_us > 0.5 * 100000 * 2500 / 3300, "GPU time of held")
end)

test("what is held on the device goes to the fence beside small kernels", function(t)
  local function best_effort(fence_sm)
    local s = t.sim { policy = "gapfill.lua", mps = true, params = { fence_sm = fence_sm } }
    s:client { name = "lc", priority = 0 }
    s:client { name = "held", priority = 9, gates = true }
    s:loop { client = "held", us = 300, blocks = 264, count = 8 }
    s:run(30000)
    s:loop { client = "lc", us = 200, launches = 10, gap_us = 20, blocks = 66 }
    s:run(100000)
    s:loop { client = "held", us = 300, blocks = 264, launches = 100 }
    s:run(2000000)
    local before = s:stats("held").launches
    s:run(1000000)
    return s:stats("held").launches - before
  end
  t.ok(best_effort(64) > 3 * best_effort(0), best_effort(64) .. " and " .. best_effort(0))
end)
