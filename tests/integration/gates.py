#!/usr/bin/env python3
"""Best effort beside a program that comes first, by asking and with gates, in miniature: the
scenario and the short round, on the simulated GPU.

    gates.py FAKE_NVML DIST    as runner.py takes them
"""

import json
import subprocess
import sys
import unittest

import runner
from runner import BENCH, DIST, ROOT


class Gates(runner.Runner):
    def test_programs_of_a_daemon_with_gates_have_them_on(self):
        own, told = runner.RealPath.stand_ins(self), self.at / "told"
        program = " ".join(json.loads(own(99, "own")))
        command = json.dumps(["sh", "-c", f'echo "gates:$HEDDLE_GATES" >>{told}; exec {program}'])
        self.run_bench(f"""
repetitions = 1
block_s = 0.1
policies = ["fifo@timeslice", "fifo:daemon.gates=true@timeslice"]
baselines = []
[[job]]
name = "a"
command = {command}
""")
        self.assertEqual(sorted(told.read_text().split()), ["gates:", "gates:", "gates:1"])

    def test_a_row_with_gates_has_the_figures_of_one_without(self):
        done = subprocess.run(
            [BENCH, "run", ROOT / "bench/scenarios/gates.toml", "--pair", "resnet152_training",
             "--device", "sim", "--skip-outputs", "--repetitions", "1", "--block-s", "0.3",
             "--baselines", "mps", "--json", self.json], env=self.env, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=90)
        self.assertEqual(done.returncode, 0, done.stdout)
        figures = self.result()["figures"]
        for row in ("priority@mps", "priority:daemon.gates=true@mps"):
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
