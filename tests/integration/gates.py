#!/usr/bin/env python3
"""Best effort beside a program that comes first, by asking and with gates, in miniature: the
scenario and the short round, on the simulated GPU.

    gates.py FAKE_NVML DIST    as runner.py takes them
"""

import subprocess
import sys
import unittest

import runner
from runner import BENCH, DIST, ROOT


class Gates(runner.Runner):
    def test_a_row_with_gates_has_the_figures_of_one_without(self):
        done = subprocess.run(
            [BENCH, "run", ROOT / "bench/scenarios/gates.toml", "--pair", "resnet152_training",
             "--device", "sim", "--skip-outputs", "--repetitions", "1", "--block-s", "0.3",
             "--baselines", "mps", "--json", self.json], env=self.env, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=90)
        self.assertEqual(done.returncode, 0, done.stdout)
        figures = self.result()["figures"]
        for row in ("priority@mps", "priority:daemon.gates=false@mps"):
            self.assertGreater(figures[row]["jobs"]["H"]["mean_over_alone"]["value"], 0)
            self.assertGreater(figures[row]["jobs"]["L"]["per_s_over_alone"]["value"], 0)

    def test_the_short_round_compares_values_and_measures_every_side(self):
        done = subprocess.run(
            [sys.executable, ROOT / "bench/experiments/gates.py", self.json, "--sim", "--dist",
             DIST, "--cells", "graph1", "--repetitions", "1", "--scale", "0.06", "--chain", "10"],
            env=self.env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=150)
        self.assertEqual(done.returncode, 0, done.stdout)
        result = self.result()
        self.assertEqual((result["mode"], result["commit"], result["errors"]),
                         ("simulated", "test", []))
        self.assertEqual(result["values"], {"mps gates graph-resnext101_32x8d-8": "equal"})
        sides = result["cells"]["graph1"]["sides"]
        self.assertEqual(sorted(sides), ["alone again", "ask", "bare", "gates", "priority"])
        self.assertTrue(all(row["requests"] > 0 for row in sides.values()), sides)


if __name__ == "__main__":
    if not BENCH.exists():
        print(f"{BENCH} is not there: build and install first")
        sys.exit(77)
    unittest.main(verbosity=2)
