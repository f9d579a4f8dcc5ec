#!/usr/bin/env python3
"""bench/experiments/six_pairs.py in miniature on the simulated GPU: over several calls, interrupted
in between; its tables and pictures; heddle-bench agree and --device virtual on what it leaves.

    six_pairs.py [DIST]
"""

import gzip
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

from runner import BENCH, DIST, ROOT, alive

PAIRS = "keypointrcnn,resnet50"
SHORT = ("--device", "sim", "--pairs", PAIRS, "--pair-s", "12", "--block-s", "0.1",
         "--repetitions", "1")


class SixPairs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="heddle-six-")
        self.addCleanup(folder.cleanup)
        self.out = pathlib.Path(folder.name) / "six"
        self.mark = f"HEDDLE_TEST_MARK={folder.name}"
        self.env = os.environ | {"HEDDLE_TEST_MARK": folder.name, "HEDDLE_COMMIT": "test"}

    def command(self, *arguments):
        return [sys.executable, ROOT / "bench/experiments/six_pairs.py", "--dist", DIST, "--out",
                self.out, *SHORT, *arguments]

    def call(self, *arguments, status=0):
        done = subprocess.run(self.command(*arguments), env=self.env, text=True, timeout=150,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, status, done.stdout)
        self.assertEqual(alive(self.mark), [])
        return done.stdout

    def bench(self, *arguments):
        return subprocess.run([BENCH, *arguments], text=True, capture_output=True, timeout=60)

    def test_it_goes_on_over_calls_and_leaves_nothing_behind(self):
        process = subprocess.Popen(self.command(), env=self.env, text=True, stdout=subprocess.PIPE)
        for line in process.stdout:
            if "1/1" in line:  # measuring
                break
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        process.stdout.close()
        self.assertEqual(process.wait(60), 130, rest)
        self.assertIn("go on with --resume", rest)
        self.assertEqual(alive(self.mark), [])

        self.assertIn("--resume goes on", self.call(status=2))
        first = self.call("--resume", "--budget-s", "8", status=3)
        self.assertIn("2 of 2 pairs to measure", first)
        self.assertIn("left for --resume: resnet50", first)
        last = self.call("--resume")
        self.assertIn("1 of 2 pairs to measure", last)
        self.check_results(last)
        self.assertIn("0 of 2 pairs", self.call("--resume"))
        (self.out / "brief.md").unlink()
        self.assertNotIn("to measure", self.call("--draw"))
        self.assertTrue((self.out / "brief.md").exists())

        a, b = self.out / "keypointrcnn.json", self.out / "resnet50.json"
        same = self.bench("agree", a, a)
        self.assertEqual(same.returncode, 0, same.stderr)
        self.assertRegex(same.stdout, r"(\d+) of \1 ratios agree")
        other = self.bench("agree", a, b)
        self.assertEqual((other.returncode, other.stderr.count("\n")), (1, 1), other.stderr)
        self.assertIn("of another scenario", other.stderr)

    def check_results(self, output):
        for name in PAIRS.split(","):
            result = json.loads((self.out / f"{name}.json").read_text())
            self.assertTrue(result["finished"])
            self.assertEqual(result["mode"], "simulated")
            self.assertEqual(result["errors"], [])
            self.assertLessEqual({"timeslice", "mps", "mps+priority", "priority@mps",
                                  "gapfill@mps"}, set(result["figures"]))
            missing = {m["row"] for m in result["missing"]}
            self.assertEqual(set(result["figures"]) & missing, set())
            self.assertIn(f"{name}: 1 repetitions", output)
        brief = (self.out / "brief.md").read_text()
        self.assertIn("| gapfill@mps |", brief)
        self.assertIn("every figure is simulated", (self.out / "table.md").read_text())
        packed = (self.out / "gapfill.perfetto.json.gz").read_bytes()
        events = json.loads(gzip.decompress(packed))["traceEvents"]
        self.assertGreater(sum(event["ph"] == "X" for event in events), 50)
        if "no pictures: " in output:  # said, with the package's name
            self.assertIn("python3-matplotlib", output)
            return
        for picture in ("frontier.svg", "keypointrcnn.cdf.svg", "timeline.svg"):
            self.assertIn("simulated", (self.out / picture).read_text(), picture)

    def test_run_on_the_virtual_device_prints_what_virtual_prints(self):
        scenario = ROOT / "bench/scenarios/synthetic.toml"
        one = self.bench("run", scenario, "--device", "virtual", "--repetitions", "1", "--block-s",
                         "0.3")
        self.assertEqual(one.returncode, 0, one.stderr)
        for part in ("distance from the clairvoyant policy", "every figure is simulated",
                     "blocks of 0.300 s, 1 repetitions"):
            self.assertIn(part, one.stdout)
        refused = self.bench("run", scenario, "--device", "virtual", "--resume")
        self.assertEqual((refused.returncode, refused.stderr.count("\n")), (1, 1))
        self.assertIn("--resume is for runs in real time", refused.stderr)


if __name__ == "__main__":
    if not BENCH.exists():
        print(f"{BENCH} is not there: build and install first")
        sys.exit(77)
    unittest.main(verbosity=2)
