#!/usr/bin/env python3
"""bench/promise.py and a mix in miniature on the simulated GPU, with daemons and processes: a
promise that MPS alone breaks, what is measured of each row, and going on where a file stopped.

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

from runner import BENCH, DIST, ROOT, alive

CELL = ("--sim", "--victims", "resnet152", "--antagonists", "copy", "--block-s", "0.3", "--runs",
        "10", "--blocks", "2")
SCENARIOS = ROOT / "bench/scenarios"


class Promise(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="heddle-promise-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.env = os.environ | {"HEDDLE_TEST_MARK": folder.name, "HEDDLE_COMMIT": "test"}

    def call(self, *command, status=0):
        done = subprocess.run([str(word) for word in command], env=self.env, text=True, timeout=150,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, status, done.stdout)
        self.assertEqual(alive(f"HEDDLE_TEST_MARK={self.folder}"), [])
        return done.stdout

    def promise(self, *arguments, status=0):
        return self.call(sys.executable, ROOT / "bench/promise.py", "--dist", DIST, *CELL, "--json",
                         self.folder / "p.json", *arguments, status=status)

    def rows(self):
        [cell] = json.loads((self.folder / "p.json").read_text())["cells"]
        return cell["rows"]

    def test_a_promise_that_mps_alone_breaks(self):
        self.promise("--rows", "mps,percent:4+priority")
        before = self.rows()
        self.assertIn("--resume", self.promise("--rows", "mps", status=1))
        self.promise("--resume", "--rows", "mps,ipc_budget,static:4+priority,static:12+priority")
        rows = self.rows()
        self.assertEqual(rows["mps"], before["mps"], "what is there is not measured again")
        for name, row in rows.items():
            self.assertEqual([block["kind"] for block in row["blocks"]],
                             ["alone", "beside", "alone", "beside", "alone"], name)
            self.assertTrue(all(block["n"] for block in row["blocks"]), (name, row))
        first, last = rows["ipc_budget"]["promise"]
        self.assertAlmostEqual(last["slowdown_max"], 1.1, delta=0.001)
        self.assertGreaterEqual(last["blocks"], first["blocks"])

        slowdown = {name: self.slowdown(row) for name, row in rows.items()}
        self.assertGreater(slowdown["mps"], 1.15)
        self.assertLess(slowdown["ipc_budget"], slowdown["mps"] - 0.1)
        best_effort = {name: self.best_effort(row) for name, row in rows.items()}
        self.assertLess(best_effort["static:4+priority"], 0.8 * best_effort["static:12+priority"],
                        "best effort has a third of the SMs")
        text = self.promise("--table", self.folder / "p.json")
        self.assertIn("on the simulated GPU", text)
        self.assertIn("| `mps` | 0 of 2 |", text)

    def test_learn_leaves_a_profile_of_each_program(self):
        profiles = self.folder / "profiles"
        profiles.mkdir()
        self.call(BENCH, "learn", SCENARIOS / "promise.toml", "--pair", "resnet152_copy", "--sweep",
                  "--device", "sim", "--profiles", profiles)
        found = [tomllib.loads(path.read_text()) for path in profiles.glob("*.toml")]
        self.assertEqual(len(found), 2)
        for profile in found:
            self.assertTrue(all("us_on_4" in kernel["metrics"] for kernel in profile["kernel"]))

    def slowdown(self, row):
        alone, beside = (sum(b["mean_us"] for b in row["blocks"] if b["kind"] == kind) / count
                         for kind, count in (("alone", 3), ("beside", 2)))
        return beside / alone

    def best_effort(self, row):
        return sum(b["others"][0] for b in row["blocks"] if b["kind"] == "beside")

    def test_a_mix_gives_its_job_the_promise_of_its_file(self):
        self.call(BENCH, "run", SCENARIOS / "mixes.toml", "--pair", "resnet152_training",
                  "--device", "sim", "--skip-outputs", "--repetitions", "1", "--block-s", "0.6",
                  "--policies", "ipc_budget@mps", "--baselines", "mps",
                  "--json", self.folder / "m.json")
        result = json.loads((self.folder / "m.json").read_text())
        self.assertEqual(result["errors"], [])
        h = {row: result["figures"][row]["jobs"]["H"]["mean_over_alone"]["value"]
             for row in ("mps", "ipc_budget@mps")}
        self.assertLess(h["ipc_budget@mps"], h["mps"] - 0.1)


if __name__ == "__main__":
    if not BENCH.exists():
        print(f"{BENCH} is not there: build and install first")
        sys.exit(77)
    unittest.main(verbosity=2)
