#!/usr/bin/env python3
"""bench/interference.py with a program of known slowdowns in the place of interference.cu."""

import json
import os
import pathlib
import stat
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "bench/interference.py"

# Alone 100 us, drifting by 2 us a block. Beside: 10 % longer for each of the antagonist's `ways`.
MOCK = r"""#!/bin/sh
case "$2" in *ways=16*) echo "mock: the GPU fell off the bus" >&2; exit 1 ;; esac
ways=0; launches=9
case "$2" in *ways=*) ways=${2#*ways=}; ways=${ways%%,*} ;; esac
case "$2" in *ways=32*) launches=0 ;; esac
echo "$1 $2" >> "$0.log"
echo '{"ready": true}'
us=100
while read -r command seconds; do
  tenths=$((us * 10))
  [ "$command" = beside ] && tenths=$((us * (10 + ways)))
  printf '{"launches": %d, "mean_us": %d.%d, "pressure": 3, "held_pressure": %d, ' \
    $launches $((tenths / 10)) $((tenths % 10)) "$ways"
  echo '"held_unit": "wavefronts/cycle/SM"}'
  us=$((us + 2))
done
"""


class CurvesTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.mock = os.path.join(self.folder.name, "mock")
        with open(self.mock, "w", encoding="utf-8") as file:
            file.write(MOCK)
        os.chmod(self.mock, stat.S_IRWXU)
        self.json = os.path.join(self.folder.name, "curves.json")

    def tearDown(self):
        self.folder.cleanup()

    def run_it(self, *arguments, victims="fp64;dram"):
        done = subprocess.run([sys.executable, SCRIPT, "--json", self.json, "--program", self.mock,
                               "--victims", victims, "--seconds", "0.01", *arguments],
                              capture_output=True, text=True, check=False)
        with open(self.json, encoding="utf-8") as file:
            return done, json.load(file)["curves"]

    def log(self):
        with open(self.mock + ".log", encoding="utf-8") as file:
            return file.read().splitlines()

    def test_slowdowns_are_taken_against_the_blocks_around_them(self):
        _, curves = self.run_it("--channels", "smem", victims="fp64")
        points = {p["antagonist"]: p for p in curves[0]["points"]}
        for ways in (1, 2, 4, 8):
            point = points[f"smem,ways={ways}"]
            self.assertAlmostEqual(point["slowdown"], 1 + 0.1 * ways, places=6)
            self.assertEqual(point["pressure"], ways)
            self.assertEqual(point["unit"], "wavefronts/cycle/SM")
            self.assertEqual(len(point["slowdowns"]), 3)

    def test_a_pair_that_fails_is_named_and_the_others_go_on(self):
        done, curves = self.run_it("--channels", "smem")
        self.assertEqual(done.returncode, 1)
        self.assertIn("fp64 beside smem,ways=16: mock: the GPU fell off the bus", done.stderr)
        self.assertIn("no launch ended in 0.01 s; give more --seconds", done.stderr)
        self.assertEqual(len(curves), 2)
        errors = [p for c in curves for p in c["points"] if "error" in p]
        self.assertEqual(len(errors), 4)

    def test_l2_and_dram_are_measured_on_disjoint_sms(self):
        self.run_it("--channels", "smem,dram", victims="fp64")
        self.assertIn("fp64 smem,ways=1", self.log())
        self.assertIn("fp64,sms=0-63 dram,blocks=33,sms=64-131", self.log())

    def test_resume_measures_what_is_missing(self):
        self.run_it("--channels", "dram", victims="fp64")
        before = len(self.log())
        _, curves = self.run_it("--channels", "dram", "--resume", victims="fp64;issue")
        self.assertEqual([c["victim"] for c in curves], ["fp64", "issue"])
        self.assertEqual(len(self.log()), 2 * before)

    def test_an_unknown_channel_is_refused_with_those_that_there_are(self):
        done = subprocess.run([sys.executable, SCRIPT, "--json", self.json, "--channels", "l3"],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("no channel l3; there are slots, issue", done.stderr)

    # Slowdowns as the estimator has them at a known capacity and sharpness.
    def test_the_fit_finds_what_the_slowdowns_were_made_of(self):
        sys.path.insert(0, str(SCRIPT.parent))
        import interference
        for capacity, sharpness in ((0.955, 40), (1.0, 3), (0.8, 8)):
            def stretch(own, other):
                return (interference.smooth_max((own + other) / 2 / capacity, sharpness)
                        / interference.smooth_max(own / 2 / capacity, sharpness))
            pairs = [(own, other, stretch(own, other)) for own in (0.5, 1.0, 1.8)
                     for other in (0.5, 1.0, 1.4, 1.8)]
            found_sharpness, found_capacity, error = interference.fit(pairs, 2.0)
            self.assertAlmostEqual(found_capacity, capacity, delta=0.011)
            self.assertEqual(found_sharpness, sharpness)
            self.assertLess(error, 0.002)

    def test_fit_prints_lines_of_a_model_and_says_what_is_missing(self):
        points = [{"alone_pressure": 1.8, "pressure": p, "slowdown": max(1, (1.8 + p) / 2)}
                  for p in (0.5, 1.0, 1.8)]
        with open(self.json, "w", encoding="utf-8") as file:
            json.dump({"curves": [{"victim": "fp64,ilp=4", "channel": "fp64", "disjoint": False,
                                   "points": points + [{"error": "x"}]}]}, file)
        done = subprocess.run([sys.executable, SCRIPT, "--fit", self.json], capture_output=True,
                              text=True, check=True)
        self.assertIn("fp64 = { capacity = 1, sharpness = ", done.stdout)
        self.assertIn("# issue: 0 points of it beside itself; 3 are needed", done.stdout)

    def test_every_channel_is_one_of_the_estimators(self):
        sys.path.insert(0, str(SCRIPT.parent))
        import interference  # noqa: E402, from bench/
        header = (ROOT / "daemon/model/interference.h").read_text(encoding="utf-8")
        for channel in interference.CHANNELS:
            self.assertIn(f'"{channel}"', header)


if __name__ == "__main__":
    unittest.main()
