#!/usr/bin/env python3
"""bench/testbed.py on the simulated GPU: all settings play the same jobs to their end, plans are
applied at each change, and a result is gone on with. Its tables come of `heddle-bench collect`.

    testbed.py [DIST]
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DIST = (ROOT / (sys.argv.pop(1) if len(sys.argv) > 1 else "dist")).resolve()
ONLINE, OFFLINE = "onlinejob/1", "off-train/1"
JOBS, OFFLINE_JOBS = 5, 3


class TestBed(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="heddle-testbed-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.file = self.folder / "bed.json"

    def play(self, settings, *more, status=0):
        done = subprocess.run(
            [sys.executable, ROOT / "bench/testbed.py", "--sim", "--dist", DIST, "--json",
             self.file, "--data", self.folder / "csv", "--online", ONLINE, "--offline", OFFLINE,
             "--jobs", f"{JOBS},{OFFLINE_JOBS}", "--interval", "0.3", "--lengths", "0.2,0.6",
             "--settings", settings, *more], text=True, capture_output=True, timeout=150)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def collect(self):
        done = subprocess.run(
            [DIST / "bin/heddle-bench", "collect", "--sim", "--jobs", f"{ONLINE},{OFFLINE}",
             "--side", "1", "--rounds", "1", "--combos", "6", "--json", self.folder / "c.json",
             "--csv", self.folder / "csv"], text=True, capture_output=True, timeout=100)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_all_settings_play_the_same_jobs(self):
        self.collect()
        self.play("default,mmk")
        self.play("mps,mps+planner")
        result = json.loads(self.file.read_text())
        self.assertEqual(result["mode"], "simulated")
        self.assertEqual(set(result["settings"]), {"default", "mmk", "mps", "mps+planner"})
        traces = set()
        for name, of in result["settings"].items():
            self.check(name, of)
            traces.add(json.dumps([job[:5] for job in of["jobs"]]))
        self.assertEqual(len(traces), 1, "the same jobs, arrivals and iterations")
        table = subprocess.run([sys.executable, ROOT / "bench/testbed.py", "--table", self.file],
                               text=True, capture_output=True, timeout=30).stdout
        self.assertIn("simulated", table)
        self.assertEqual(table.count("\n"), 2 + 4)
        self.assertIn("has other jobs", self.play("mps", "--seed", "7", status=1))
        self.assertIn("has no other/1; measure it",
                      self.play("mmk", "--anew", "--online", "other/1", status=1))

    def check(self, name, of):
        self.assertEqual((of["unfinished"], of["errors"]), (0, []), name)
        self.assertEqual(len(of["jobs"]), JOBS + OFFLINE_JOBS)
        self.assertEqual(sum(job[1] for job in of["jobs"]), JOBS)
        for _, _, arrives, length, _, begins, ends in of["jobs"]:
            self.assertLessEqual(arrives, begins + 0.001)
            # Nobody is faster than alone, but for what the clock of a loaded host does.
            self.assertGreater(ends - begins, 0.7 * length)
        self.assertGreaterEqual(of["relative"]["worst"], of["relative"]["p50"])
        planned = name in ("mmk", "mps+planner")
        # One plan at least for each job that comes; the last one leaves nobody to plan for.
        self.assertEqual(of["plans"] > 0, planned, name)
        self.assertEqual(of["failed_plans"], 0)
        self.assertEqual(of["hooks_s"] > 0, planned, name)

    def test_what_is_missing_is_said(self):
        said = self.play("mmk", status=2)
        self.assertIn("name them with --data FOLDER", said)
        self.assertIn("there are default", self.play("best", status=2))


if __name__ == "__main__":
    unittest.main()
