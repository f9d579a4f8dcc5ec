#!/usr/bin/env python3
"""`heddle-bench collect` on the simulated GPU: shares are changed while jobs run, samples follow
them, a job that does not start costs nobody else's samples, and `heddle plan` learns from the
tables.

    collect.py [DIST]
"""

import csv
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DIST = (ROOT / (sys.argv.pop(1) if len(sys.argv) > 1 else "dist")).resolve()
# On the simulated GPU a job has 24 blocks for each letter of its name, of as many ms as its batch.
WIDE, NARROW = "wide" + 6 * "e", "n"
COMMAND = ("collect", "--sim", "--limit", "30", "--side", "1", "--rounds", "1", "--combos", "4",
           "--sizes", "32,64,96")


class Collect(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="heddle-collect-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def call(self, *arguments):
        return subprocess.run([DIST / "bin/heddle-bench", *map(str, arguments)], text=True,
                              capture_output=True, timeout=100)

    def collect(self, jobs, *more):
        file = self.folder / "samples.json"
        done = self.call(*COMMAND, "--jobs", jobs, "--json", file, "--csv", self.folder / "csv",
                         *more)
        self.assertTrue(file.exists(), done.stderr)
        return done, json.loads(file.read_text())

    def test_samples_follow_the_shares(self):
        done, result = self.collect(f"{WIDE}/1,{NARROW}/1")
        self.assertEqual((done.returncode, result["errors"]), (0, []), done.stdout + done.stderr)
        self.assertEqual(result["mode"], "simulated")
        # Each job alone on three sizes and on all SMs, and both beside each other four times.
        self.assertEqual(len(result["samples"]), 2 * (3 + 1 + 4))
        counters = result["rounds"][0]["clients"].values()
        self.assertTrue(all(c["on_sm_set"] > 0 for c in counters), counters)
        self.assertTrue(all(c["off_sm_set"] == 0 for c in counters), counters)
        self.check_paces(self.folder / "csv")
        predicted = subprocess.run(
            [DIST / "bin/heddle", "--json", "plan", "predict", "--data", self.folder / "csv"],
            text=True, capture_output=True, timeout=60)
        self.assertEqual(predicted.returncode, 0, predicted.stderr)
        document = json.loads(predicted.stdout)
        self.assertEqual(document["samples"], 8)  # those beside a neighbour
        # With two jobs, each the other's neighbour, no model can be left out.
        self.assertEqual({row["split"] for row in document["errors"]}, {"samples", "neighbours"})
        self.assertLessEqual({"table-one", "curves"},
                             {row["features"] for row in document["errors"]})
        again = self.folder / "again"
        self.assertEqual(self.call("collect", "--from", self.folder / "samples.json", "--csv",
                                   again).returncode, 0)
        for name in ("jobs.csv", "samples.csv"):
            self.assertEqual((again / name).read_text(), (self.folder / "csv" / name).read_text())

    def check_paces(self, folder):
        with open(folder / "samples.csv") as file:
            rows = list(csv.DictReader(file))
        alone = {(row["model"], float(row["share"])): float(row["pace"]) for row in rows
                 if not row["neighbour"]}
        wide = [pace for (model, _), pace in sorted(alone.items()) if model == WIDE]
        # 240 blocks need the whole GPU, 24 of them a fifth.
        self.assertEqual(len(wide), 4)
        self.assertLess(wide[0], 0.6)
        self.assertAlmostEqual(wide[-1], 1, delta=0.01)
        for (model, share), pace in alone.items():
            if model == NARROW:
                self.assertAlmostEqual(pace, 1, delta=0.35, msg=share)
        beside = [row for row in rows if row["neighbour"]]
        self.assertEqual({(row["model"], row["neighbour"]) for row in beside},
                         {(WIDE, NARROW), (NARROW, WIDE)})
        with open(folder / "jobs.csv") as file:
            self.assertEqual({row["model"] for row in csv.DictReader(file)}, {WIDE, NARROW})

    def test_a_job_that_does_not_start_is_said_and_left_out(self):
        done, result = self.collect("broken/0,good/1")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(len(result["errors"]), 1, result["errors"])
        self.assertIn("broken/0", result["errors"][0])
        self.assertEqual({s["job"] for s in result["samples"]}, {"good/1"})

    def test_wrong_options_are_refused(self):
        for words, complaint in {
                ("--json", "x", "--jobs", "a/1"): "2 are resident",
                ("--json", "x", "--jobs", "a,b"): "MODEL/BATCH",
                ("--json", "x", "--sizes", "8,16,32,64,96"): "one to four",
                ("--jobs", "a/1,b/1"): "--json is missing"}.items():
            done = self.call("collect", "--side", "1", "--sim", *words)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(complaint, done.stderr)


if __name__ == "__main__":
    unittest.main()
