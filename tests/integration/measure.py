#!/usr/bin/env python3
"""bench/experiments/measure.py in miniature on the simulated GPU: over several calls, interrupted
in between; its tables; heddle-bench agree on what it leaves; its plan, and virtual
time. And recordings of programs alone, with what plays them.

    measure.py [DIST]
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor

from runner import BENCH, DIST, ROOT, alive

PAIRS = "keypointrcnn,resnet50x32"
SHORT = ("six_pairs", "--device", "sim", "--only", PAIRS, "--scenario-s", "12", "--block-s", "0.1",
         "--repetitions", "1", "--policies", "gapfill@mps", "--baselines", "mps,mps+priority")


REPLAY = """
repetitions = 1
block_s = 0.4
policies = ["priority@mps"]
baselines = ["mps"]
[[job]]
name = "replayed"
role = "latency"
workload = "replay"
[job.sim]
trace = "resnet50-bs1.trace"
"""


class Measure(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="heddle-six-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.out = self.folder / "six_pairs"
        self.mark = f"HEDDLE_TEST_MARK={folder.name}"
        self.env = os.environ | {"HEDDLE_TEST_MARK": folder.name}

    def command(self, *arguments, series=SHORT):
        return [sys.executable, ROOT / "bench/experiments/measure.py", "--dist", DIST, "--out",
                self.folder, *series, *arguments]

    def call(self, *arguments, status=0, series=SHORT):
        done = subprocess.run(self.command(*arguments, series=series), env=self.env, text=True,
                              timeout=150, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, status, done.stdout)
        self.assertEqual(alive(self.mark), [])
        return done.stdout

    def bench(self, *arguments):
        return subprocess.run([BENCH, *arguments], env=self.env, text=True, capture_output=True,
                              timeout=100)

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
        self.assertIn("2 of 2 scenarios to measure", first)
        self.assertIn("left for --resume: resnet50x32", first)
        last = self.call("--resume", "--collect", self.folder / "collected")
        self.assertTrue((self.folder / "collected/six_pairs/resnet50x32.json").exists())
        self.assertIn("1 of 2 scenarios to measure", last)
        self.check_results(last)
        self.assertIn("0 of 2 scenarios", self.call("--resume"))

        a, b = self.out / "keypointrcnn.json", self.out / "resnet50x32.json"
        same = self.bench("agree", a, a)
        self.assertEqual(same.returncode, 0, same.stderr)
        self.assertRegex(same.stdout, r"(\d+) of \1 ratios agree")
        other = self.bench("agree", a, b)
        self.assertEqual((other.returncode, other.stderr.count("\n")), (1, 1), other.stderr)
        self.assertIn("of another scenario", other.stderr)
        kept, page = self.folder / "kept.raw", self.folder / "page.html"
        for arguments in (("keep", a, kept), ("report", kept, "--html", page)):
            done = self.bench(*arguments)
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("gapfill@mps", page.read_text())

    def check_results(self, output):
        for name in PAIRS.split(","):
            result = json.loads((self.out / f"{name}.json").read_text())
            self.assertTrue(result["finished"])
            self.assertEqual(result["mode"], "simulated")
            self.assertEqual(result["errors"], [])
            self.assertLessEqual({"mps", "mps+priority", "gapfill@mps"}, set(result["figures"]))
            missing = {m["row"] for m in result["missing"]}
            self.assertEqual(set(result["figures"]) & missing, set())
            self.assertIn(f"{name}: 1 repetitions", output)
        brief = (self.out / "brief.md").read_text()
        self.assertIn("| gapfill@mps |", brief)
        self.assertIn("| keypointrcnn: H mean |", brief)
        self.assertIn("every figure is simulated", (self.out / "table.md").read_text())

    def test_the_plan_tells_the_seconds_and_starts_nothing(self):
        plan = self.call("--plan", series=("pairs", "first", "beside_training_loads"))
        self.assertRegex(plan, r"pairs/keypointrcnn +\d+ s: 15 rows, 15 processes, 0 of 5 repet")
        self.assertRegex(plan, r"first/resnet101_first +\d+ s: 5 rows")
        self.assertIn("beside_training_loads/bert_graph_resnet50_bursts", plan)
        self.assertRegex(plan, r"in all +\d+ s")
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_a_series_that_needs_profiles_makes_them_once(self):
        series = ("krisp", "--only", "resnet152")

        def seconds():
            return int(re.search(r"in all +(\d+) s", self.call("--plan", series=series))[1])
        before = seconds()
        (self.folder / "krisp/profiles/resnet152").mkdir(parents=True)
        self.assertEqual(before - seconds(), 100, "learn_s of the series")

    def test_a_series_is_predicted_in_virtual_time(self):
        series = ("ratio", "--device", "virtual", "--only",
                  "keypointrcnn_ratio_1,keypointrcnn_ratio_10", "--repetitions", "5", "--block-s",
                  "0.5", "--seed", "1")
        self.call(series=series)
        result = json.loads((self.folder / "ratio/keypointrcnn_ratio_10.json").read_text())
        said = subprocess.run([BENCH, "--version"], text=True,
                              stdout=subprocess.PIPE, check=True).stdout
        session = result["sessions"][0]
        self.assertEqual(result["mode"], "simulated")
        self.assertIn(session["commit"], said)
        self.assertEqual("unknown" in said, not session["trees"])
        tasks = {job: result["figures"]["fikit"]["jobs"][job]["samples"] for job in "HL"}
        self.assertEqual(tasks["H"], 10 * tasks["L"], "as many as the scenario says")
        met = {e["expected"]: e["met"] for e in result["expect"]}
        self.assertTrue(all(value is not None for value in met.values()), met)
        brief = (self.folder / "ratio/brief.md").read_text()
        self.assertIn("| keypointrcnn_ratio_10: L mean |", brief)
        self.assertRegex(brief, r"fikit: L mean / exclusive <= 0.9 \| [01] of 1 \|")
        self.assertIn("0 of 2 scenarios", self.call("--resume", series=series))

    def test_a_pair_of_each_experiment_runs_and_a_policy_that_is_not_there_costs_its_row(self):
        """Two side by side, for no figure is judged; with the rows alone where that is the
        question. Blocks in which requests arrive, by a seed."""
        pairs = {"bert_graph_resnet50": "beside_training", "llama_graph_gpt2": "beside_training",
                 "vgg19_one": "graphs_beside_graphs", "us2200": "long_kernels"}

        def run(name):
            return self.bench(
                "run", ROOT / f"bench/scenarios/{pairs[name]}.toml", "--pair", name, "--device",
                "sim", "--json", self.folder / f"{name}.json", "--repetitions", "1", "--block-s",
                "0.5", "--seed", "1", "--baselines", "mps", "--policies",
                "gapfill@mps,unheard_of@mps", "--skip-outputs",
                *["--skip-alone"] * (name != "bert_graph_resnet50"))

        with ThreadPoolExecutor(2) as two:
            runs = two.map(run, pairs)
        for name, done in zip(pairs, runs):
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn("unheard_of@mps: not available: no policy 'unheard_of'", done.stdout)
            result = json.loads((self.folder / f"{name}.json").read_text())
            self.assertEqual((result["errors"], result["held_out"]), ([], False))
            h = result["figures"]["gapfill@mps"]["jobs"]["H"]
            self.assertEqual(h["jct_ms"]["p99"], {"few": h["samples"]})
            self.assertEqual("H" in result["rates"], name != "us2200")
            self.assertEqual("ttft_ms" in h, name == "llama_graph_gpt2")
            self.assertEqual("p50_over_alone" in h, name == "bert_graph_resnet50")

    def test_what_is_recorded_plays_in_virtual_time_and_as_a_workload(self):
        """Bounds for a loaded host; the stand-in takes 17 ms."""
        def figure(row, *arguments):
            file = self.folder / f"{row}-{arguments[0]}.json"
            done = self.bench(*arguments, "--json", file)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            result = json.loads(file.read_text())
            job = next(iter(result["figures"][row]["jobs"].values()))
            return job["jct_ms"]["mean"]["value"], result

        def trace(*arguments):
            return subprocess.run([DIST / "bin/heddle", "trace", *arguments], check=True, text=True,
                                  stdout=subprocess.PIPE).stdout

        real_ms, _ = figure("priority", "run", ROOT / "bench/scenarios/traces.toml", "--pair",
                            "resnet50-bs1", "--device", "sim", "--trace", self.folder,
                            "--skip-outputs", "--skip-alone", "--block-s", "2")
        made = self.folder / "resnet50-bs1.trace"
        trace("cut", self.folder / "priority.trace", made, "--seconds", "0.07")
        shown = json.loads(trace("show", made, "--json"))
        self.assertEqual(shown["lost"], 0)
        self.assertGreaterEqual(shown["clients"][0]["launches"], 40)
        self.assertLess(made.stat().st_size, 10_000)
        replay = self.folder / "replay.toml"
        replay.write_text(REPLAY)
        played_ms, _ = figure("mps", "virtual", replay)
        self.assertTrue(0.5 < played_ms / real_ms < 1.2, (played_ms, real_ms))
        run_ms, result = figure("mps", "run", replay, "--device", "sim")
        self.assertTrue(0.7 < run_ms / played_ms < 2, (run_ms, played_ms))
        self.assertTrue(result["digests"], "the launches of an iteration are the same each time")

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
