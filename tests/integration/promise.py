#!/usr/bin/env python3
"""Promises in miniature on the simulated GPU: a scenario whose victim is promised a slowdown, a mix
of models, and profiles learned of a scenario's programs.

    promise.py [FAKE_NVML DIST]    as runner.py takes them; the first is not used
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import tomllib
import unittest

from runner import BENCH, ROOT, alive

SCENARIOS = ROOT / "bench/scenarios"


class Promise(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="heddle-promise-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.env = os.environ | {"HEDDLE_TEST_MARK": folder.name}

    def call(self, *command):
        done = subprocess.run([str(word) for word in command], env=self.env, text=True, timeout=150,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(alive(f"HEDDLE_TEST_MARK={self.folder}"), [])
        return done.stdout

    def figures(self, scenario, pair, policies):
        file = self.folder / "r.json"
        self.call(BENCH, "run", SCENARIOS / scenario, "--pair", pair, "--device", "sim",
                  "--skip-outputs", "--repetitions", "2", "--block-s", "0.4", "--policies",
                  policies, "--baselines", "mps", "--json", file)
        result = json.loads(file.read_text())
        self.assertEqual(result["errors"], [])
        return result["figures"]

    @staticmethod
    def mean(rows, row):
        return rows[row]["jobs"]["H"]["jct_ms"]["mean"]["value"]

    def test_a_promise_that_mps_alone_breaks(self):
        static = [f"./static.lua:sms={sms}@mps" for sms in (32, 96)]
        rows = self.figures("promise.toml", "resnet152_copy", ",".join(["combined@mps", *static]))
        h = {row: found["jobs"]["H"] for row, found in rows.items() if "H" in found["jobs"]}
        self.assertEqual({row for row, found in h.items() if "promise_kept" in found},
                         {"mps", "combined@mps", *static}, "all in which it has company")
        self.assertEqual(h["mps"]["promise_kept"]["n"], 2)
        self.assertLess(self.mean(rows, "combined@mps"), self.mean(rows, "mps"))
        few, many = (rows[row]["jobs"]["L"]["per_s"]["value"] for row in static)
        self.assertLess(few, 0.8 * many, "best effort has a third of the SMs")

    def test_a_mix_gives_its_job_the_promise_of_its_file(self):
        rows = self.figures("mixes.toml", "resnet152_training", "combined@mps")
        self.assertLess(self.mean(rows, "combined@mps"), self.mean(rows, "mps"))

    def test_learn_leaves_a_profile_of_each_program(self):
        profiles = self.folder / "profiles"
        profiles.mkdir()
        self.call(BENCH, "learn", SCENARIOS / "promise.toml", "--pair", "resnet152_copy", "--sweep",
                  "--device", "sim", "--profiles", profiles)
        found = [tomllib.loads(path.read_text()) for path in profiles.glob("*.toml")]
        self.assertEqual(len(found), 2)
        for profile in found:
            self.assertTrue(all("us_on_4" in kernel["metrics"] for kernel in profile["kernel"]))


if __name__ == "__main__":
    if not BENCH.exists():
        print(f"{BENCH} is not there: build and install first")
        sys.exit(77)
    unittest.main(verbosity=2)
