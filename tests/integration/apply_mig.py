#!/usr/bin/env python3
"""`heddle plan jobs --apply --allow-mig` on a library that stands in for NVML: slices are made as
planned, and those there before go; nothing is touched while a process runs, or where the slices
are there already; what fails in the middle leaves no slices: apply_mig.py FAKE_NVML"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEDDLE = ROOT / "dist/bin/heddle"
NVML = sys.argv.pop(1)
IDS = {19: "1g.10gb", 14: "2g.20gb", 9: "3g.40gb", 5: "4g.40gb", 0: "7g.80gb"}
JOBS = "".join(f'[[job]]\nname = "{name}"\nmemory_gib = {gib}\nsm_pct = {pct}\niteration_ms = 20\n'
               for name, gib, pct in (("big", 30, 40), ("small", 8, 20), ("tiny", 4, 10)))


class ApplyMig(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="heddle-mig-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.state = self.folder / "mig"
        self.jobs = self.folder / "jobs.toml"
        self.jobs.write_text(JOBS)

    def apply(self, *more, gpu="h100-80gb", code=0, **environment):
        """What it says, as JSON where it succeeds."""
        env = os.environ | {"HEDDLE_NVML": NVML, "FAKE_NVML_MIG": str(self.state),
                            "HEDDLE_SOCKET": str(self.folder / "nobody")} | environment
        done = subprocess.run(
            [HEDDLE, "--json", "plan", "jobs", self.jobs, "--data", ROOT / "profiles/jobs/miso",
             "--gpu", gpu, "--apply", "--allow-mig", *more], env=env, text=True,
            capture_output=True, timeout=60)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stderr if code else json.loads(done.stdout)

    def slices(self):
        """(mode, {start: (profile, compute instances)}) on the GPU."""
        lines = self.state.read_text().splitlines()
        slices = [list(map(int, line.split())) for line in lines[1:]]
        return int(lines[0]), {s[1]: (IDS[s[0]], s[4]) for s in slices}

    def test_slices_are_made_as_planned_and_old_ones_go(self):
        self.state.write_text("1\n9 0 4 1 1\n9 4 4 2 0\n")
        told = self.apply()
        self.assertTrue(told["changed"])
        mode, there = self.slices()
        self.assertEqual(mode, 1)
        self.assertGreater(len(there), 1)
        self.assertEqual({s["start"]: (s["profile"], 1) for s in told["slices"]}, there)
        uuids = {s["uuid"]: s["profile"] for s in told["slices"]}
        self.assertEqual(len(uuids), len(there))
        self.assertEqual({j["job"] for j in told["jobs"]}, {"big", "small", "tiny"})
        for job in told["jobs"]:
            self.assertEqual(uuids[job["environment"]["CUDA_VISIBLE_DEVICES"]], job["slice"])
        before = self.state.read_text()
        again = self.apply(FAKE_NVML_PIDS="77")  # a program in one of them
        self.assertFalse(again["changed"])
        self.assertEqual(again["slices"], told["slices"])
        self.assertEqual(self.state.read_text(), before)

    def test_mig_is_switched_on_where_the_plan_has_slices(self):
        self.state.write_text("0\n")
        self.assertTrue(self.apply()["changed"])
        self.assertEqual(self.slices()[0], 1)

    def test_nothing_is_touched_while_a_process_runs(self):
        for before in ("0\n", "1\n0 0 8 1 1\n"):
            self.state.write_text(before)
            said = self.apply(code=1, FAKE_NVML_PIDS="77")
            self.assertIn("is in use (PID 77)", said)
            self.assertEqual(self.state.read_text(), before)

    def test_what_is_not_made_leaves_no_slices(self):
        self.state.write_text("1\n0 0 8 1 1\n")
        said = self.apply(code=1, FAKE_NVML_FAIL="2")
        self.assertIn("is not made: fake error 23; the GPU has no slices now", said)
        self.assertEqual(self.slices(), (1, {}))

    def test_what_stands_in_the_way_is_said(self):
        self.assertIn("has no MIG", self.apply(code=1))
        self.state.write_text("0\n")
        self.assertIn("after a reset", self.apply(code=1, FAKE_NVML_RESET="1"))
        self.assertEqual(self.state.read_text(), "0\n")
        self.assertIn("there is no GPU 3", self.apply("--device", "3", code=1))
        self.assertIn("need NVML", self.apply(code=1, HEDDLE_NVML="/none"))
        self.state.write_text("1\n")
        self.assertIn("name its model with --gpu", self.apply(gpu="a100-40gb", code=1))


if __name__ == "__main__":
    unittest.main()
