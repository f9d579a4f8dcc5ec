#!/usr/bin/env python3
"""pairs.py on a GPU that is only arithmetic: what is drawn, what is timed, and what is resumed."""

import contextlib
import io
import json
import os
import sys
import tempfile
import types
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
import pairs  # noqa: E402

lifted = pairs.lifted  # of bench/workloads


class FakeGpu:
    """Two streams in virtual time: beside the other a launch takes `stretch` times as long."""
    sms, groups = {"all": 132, "first": 64, "second": 68}, 16
    stretch = 1.5

    def __init__(self):
        self.now, self.busy = 0.0, {0: 0.0, 1: 0.0}
        self.refused = set()

    def clock(self):
        return self.now / 1e6

    def mark(self, stream):
        return max(self.now, self.busy[stream])

    def launch(self, side):
        beside = self.busy[1 - side.stream] > self.now
        us = side.executable * side.repeats * (self.stretch if beside else 1)
        self.busy[side.stream] = max(self.now, self.busy[side.stream]) + us
        return self.busy[side.stream]

    def ended(self, event):
        self.now += 5
        return event <= self.now

    def wait(self, event):
        self.now = max(self.now, event)

    def us(self, begin, end):
        return end - begin

    def forget(self, event):
        pass

    def lift(self, kernel, place, repeats, stream):
        if kernel.facts["node"] in self.refused:
            raise lifted.GpuError("cuGraphAddKernelNode: CUDA_ERROR_INVALID_VALUE")
        return lifted.Lifted(kernel.facts["alone_us"], stream, repeats)

    def timed(self, kernel):
        return kernel.facts["us"]

    def kernels(self, graph):
        return [lifted.Kernel(None, None, None, {
            "node": i, "nodes": 1, "name": f"{graph}-{i // 4}", "grid": [i, 1, 1],
            "block": [128, 1, 1], "grid_blocks": i, "block_threads": 128,
            "dynamic_smem_bytes": 0, "us": 3.0 + i}) for i in range(12)]


class Pairs(unittest.TestCase):
    def setUp(self):
        sys.modules["pair_models"] = types.SimpleNamespace(
            MODELS={"a": 0, "b": 0}, Captured=lambda name: types.SimpleNamespace(graph=name))
        self.file = os.path.join(tempfile.mkdtemp(), "pairs.json")
        self.gpu = FakeGpu()

    def run_pairs(self, *more):
        options = pairs.parse(["--json", self.file, "--kernels", "4", *more])
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            status = pairs.run(options, self.gpu, {"gpu": "arithmetic"})
        return status, json.loads(Path(self.file).read_text())

    def test_both_of_a_pair_are_timed_against_themselves_alone(self):
        status, told = self.run_pairs()
        self.assertEqual(status, 0)
        self.assertEqual(len(told["pairs"]), 12)  # 6 pairs, 2 settings
        for row in told["pairs"]:
            for slowdown in row["slowdowns"]:
                self.assertAlmostEqual(slowdown, 1.5, delta=0.001)

    def test_kernels_are_long_enough_of_each_model_and_no_function_is_drawn_often(self):
        _, told = self.run_pairs()
        self.assertEqual([k["model"] for k in told["kernels"]], ["a", "b", "a", "b"])
        self.assertTrue(all(k["alone_us"] >= pairs.SHORTEST_US for k in told["kernels"]))
        names = [k.facts["name"] for k in pairs.draw(self.candidates(), 30, 1)]
        self.assertEqual(max(names.count(n) for n in names), pairs.SAME_NAME)

    def candidates(self):
        kernels = self.gpu.kernels("a")
        for kernel in kernels:
            kernel.facts["model"] = "a"
        return kernels

    def test_the_draw_and_the_order_depend_on_the_seed_alone(self):
        drawn = [[k.facts["node"] for k in pairs.draw(self.candidates(), 5, seed)]
                 for seed in (1, 1, 2)]
        self.assertEqual(drawn[0], drawn[1])
        self.assertNotEqual(drawn[0], drawn[2])
        self.assertEqual(pairs.drawn_pairs(9, 1), pairs.drawn_pairs(9, 1))
        self.assertNotEqual(pairs.drawn_pairs(9, 1), pairs.drawn_pairs(9, 2))

    def test_a_limit_leaves_the_rest_to_resume(self):
        self.gpu.now = 1e6  # past what the limit allows
        _, cut = self.run_pairs("--limit", "0")
        self.assertEqual(cut["pairs"], [])
        _, whole = self.run_pairs("--resume")
        self.assertEqual(whole["kernels"], cut["kernels"])
        self.assertEqual(len(whole["pairs"]), 12)

    def test_a_kernel_that_the_driver_refuses_costs_its_pairs_alone(self):
        _, before = self.run_pairs("--limit", "0")
        self.gpu.refused = {before["kernels"][0]["node"]}
        status, told = self.run_pairs("--resume")
        self.assertEqual(status, 1)
        failed = [p for p in told["pairs"] if "error" in p]
        self.assertTrue(failed)
        self.assertTrue(all("INVALID_VALUE" in p["error"] for p in failed))
        self.assertLess(len(failed), 12)

    def test_a_launch_that_never_ends_is_told(self):
        self.gpu.stretch = 1e9
        with self.assertRaises(lifted.Stuck):
            sides = [lifted.Lifted(10.0, s, 200) for s in (0, 1)]
            pairs.steady(self.gpu, sides, 0.05)


if __name__ == "__main__":
    unittest.main()
