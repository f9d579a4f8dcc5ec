"""heddle-bench report: what the page says of a committed result of two simulated jobs, and what the
verdict makes of results that it knows."""

import copy
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import report  # noqa: E402  (the folder is known only now)
from harness import traces  # noqa: E402
from harness.verdict import verdict  # noqa: E402

RESULT = Path(__file__).with_name("plot_result.json")


def slice_of(pid, tid, ts, dur, name="k", **args):
    return {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def named(pid, name):
    return {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}


TRACE = {"otherData": {"mode": "mps", "lost": 0}, "traceEvents": [
    named(100, "filler Q9 gpu 0"), named(200, "service Q0 gpu 0"),
    slice_of(100, 7, 1000, 900, sm_set=0xf00), slice_of(100, 7, 3000, 900, sm_set=0),
    slice_of(100, 70_010, 500, 500, "wait"), slice_of(200, 0, 0, 400, "</script>")]}


def figure(value):
    return {"value": value, "lo": value * 0.99, "hi": value * 1.01, "n": 3}


def result(shared, ours, gives, alone=(1000, 1000)):
    def row(slowdown, rate):
        return {"jobs": {"api": {"mean_over_alone": figure(slowdown),
                                 "p99_over_alone": figure(slowdown)},
                         "train": {"per_s_over_alone": figure(rate)}}}
    return {"mode": "real", "jobs": [{"name": "api", "role": "latency"},
                                     {"name": "train", "role": "batch"}],
            "rows": [{"name": "alone/api", "mps": True}, {"name": "mps", "mps": True},
                     {"name": "gapfill@mps", "mps": True, "policy": "gapfill"}],
            "figures": {"mps": row(shared, 0.9), "gapfill@mps": row(ours, gives)},
            "raw": [{"row": "alone/api", "jobs": {"api": {"us": [us]}}} for us in alone]}


class Verdict(unittest.TestCase):
    def says(self, text, *about, **more):
        found = verdict(result(*about, **more))
        self.assertIn(text, found["verdict"])
        self.assertEqual(len(re.findall(r"\.(?= [A-Z h]|$)", found["verdict"])), 2, found)
        return found["sure"]

    def test_policy_that_keeps_the_service_helps(self):
        sure = self.says("heddle helps: train keeps 40 % of its rate alone meanwhile (without "
                         "heddle 90 %).", 2.0, 1.05, 0.4)
        self.assertIn("2 blocks of api alone differ by 0 %", sure)

    def test_sharing_that_costs_little_needs_no_heddle(self):
        self.says("heddle is not needed", 1.03, 1.01, 0.4)

    def test_policy_that_changes_nothing_does_not_help(self):
        self.says("heddle does not help here", 2.0, 2.0, 0.4)

    def test_job_that_hardly_runs_is_told(self):
        self.says("train hardly runs (2 % of its rate alone)", 2.0, 1.05, 0.02)

    def test_difference_that_the_service_alone_shows_too_is_none(self):
        sure = self.says("Nothing is certain", 1.2, 1.05, 0.4, alone=(1000, 1300))
        self.assertIn("differ by 30 %", sure)

    def test_service_that_is_known_by_its_launches_alone_has_a_verdict(self):
        about = result(2.0, 1.05, 0.4)
        for row in about["figures"].values():
            del row["jobs"]["api"]["p99_over_alone"]
        for block, per_s in zip(about["raw"], (100, 110)):
            block["jobs"]["api"] = {"us": [], "per_s": per_s}
        found = verdict(about)
        self.assertIn("heddle helps", found["verdict"])
        self.assertIn("differ by 10 %", found["sure"])

    def test_result_without_a_policy_has_no_verdict(self):
        about = result(2.0, 1.05, 0.4)
        del about["rows"][2]
        self.assertIn("No verdict", verdict(about)["verdict"])


class Runs(unittest.TestCase):
    def test_run_lasts_from_the_first_launch_to_the_return_that_leaves_nothing(self):
        events = [slice_of(1, traces.GAPS, begin, end - begin, "gap")
                  for begin, end in ((0, 10), (40, 44), (60, 100), (150, 200))]
        # The second gap is no end of a run: nobody waited for it. The last call returns late.
        events += [slice_of(1, traces.SYNCS, 5, 3), slice_of(1, traces.SYNCS, 50, 10),
                   slice_of(1, traces.SYNCS, 110, 45)]
        self.assertEqual(traces.runs_us(events), [50, 55])

    def test_return_at_the_moment_that_the_gap_begins_ends_the_run(self):
        called, dur = 1000.001, 0.3
        events = [slice_of(1, traces.GAPS, 0, 900, "gap"), slice_of(1, traces.SYNCS, 0, 800),
                  slice_of(1, traces.SYNCS, called, dur), slice_of(1, traces.GAPS, 1000.301, 500)]
        self.assertLess(called + dur, 1000.301)  # as numbers of a trace add up
        self.assertEqual(traces.runs_us(events), [100.301])


class Tried(unittest.TestCase):
    """What `heddle try` makes of its blocks."""

    def figures(self, us):
        def of(row, **jobs):
            return {"rep": 0, "row": row, "jobs": {label: {"us": times, "per_s": rate,
                                                           "gpu_share": 0.5}
                                                   for label, (times, rate) in jobs.items()}}
        spec = importlib.util.spec_from_file_location("trying", ROOT / "bench/try.py")
        trying = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(trying)
        return trying.figures([
            of("alone/service", service=(us, 100)), of("alone/service", service=(us, 100)),
            of("shared", service=([2 * x for x in us], 50), job=([], 30)),
            of("alone/job", job=([], 40))])["shared"]["jobs"]

    def test_service_with_runs_is_judged_by_them(self):
        found = self.figures([1000, 1000, 4000])
        self.assertEqual(found["service"]["mean_over_alone"]["value"], 2)
        self.assertEqual(found["service"]["jct_ms"]["p99"]["value"], 8)
        self.assertEqual(found["job"]["per_s_over_alone"]["value"], 0.75)

    def test_service_without_runs_is_judged_by_its_launches(self):
        found = self.figures([])
        self.assertEqual(found["service"]["mean_over_alone"]["value"], 2)
        self.assertNotIn("jct_ms", found["service"])


class Page(unittest.TestCase):
    def setUp(self):
        if not any(path.exists() for path in report.CHART_JS):
            self.skipTest("no Chart.js; tests/setup.sh installs libjs-chart.js")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def make(self, *files, code=0):
        out = self.folder / "out.html"
        done = subprocess.run([sys.executable, ROOT / "bench/report.py", *files, "--html", out],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, code, done.stderr)
        return out.read_text() if code == 0 else done.stderr

    def test_page_needs_nothing_else_and_has_every_row(self):
        text = self.make(RESULT)
        self.assertEqual(re.findall(r"<(?:script|link|img)[^>]* (?:src|href)=", text), [])
        data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.S)[1])
        known = json.loads(RESULT.read_text())
        for row in known["figures"]:
            self.assertIn(f"<td>{row}</td>", text)
        self.assertEqual({p["row"] for p in data["results"][0]["points"]},
                         {row for row in known["figures"] if not row.startswith("alone/")})
        self.assertIn("Every figure is simulated", text)

    def test_few_repetitions_have_no_interval(self):
        path = self.folder / "few.json"
        path.write_text(json.dumps(json.loads(RESULT.read_text()) | {"repetitions_done": 4}))
        text = self.make(path)
        self.assertIn("Too few repetitions for intervals: 4.", text)
        self.assertIsNone(re.search(r"<td>[^<]*\[", text))
        self.assertIsNotNone(re.search(r"<td>[^<]*\[", self.make(RESULT)), "five have some")

    def test_timeline_has_a_lane_for_each_client_and_set_of_sms(self):
        path = self.folder / "t.json"
        path.write_text(json.dumps(TRACE))
        found = report.timeline(path)
        self.assertEqual([lane["name"] for lane in found["lanes"]],
                         ["service Q0", "filler Q9", "filler Q9 · SMs of 8-11"])
        self.assertEqual(found["lanes"][1]["waits"], [[0.5, 1.0]])
        known = json.loads(RESULT.read_text())
        text = report.page([known], [found])
        self.assertNotIn('"</script>"', text)

    def test_what_is_no_result_is_refused_by_name(self):
        path = self.folder / "x.json"
        path.write_text("{}")
        self.assertIn("x.json: is no result", self.make(path, code=1))
        known = copy.deepcopy(json.loads(RESULT.read_text()))
        known["jobs"] = known["jobs"][:1]
        path.write_text(json.dumps(known))
        self.assertIn(": has not one job of each role", self.make(path, code=1))

    def test_what_is_damaged_is_told_by_its_name(self):
        path = self.folder / "x.json"
        known = json.loads(RESULT.read_text())
        path.write_text(json.dumps({key: known[key] for key in known if key != "rows"}))
        self.assertEqual(self.make(path, code=1),
                         f"heddle-bench report: {path}: incomplete, or of another release "
                         "(KeyError: 'rows'); copy it anew, or measure again\n")
        refused = 0
        for key in known:
            for value in (None, "x", 7, [], [7], {}, {"x": 7}):
                path.write_text(json.dumps(known | {key: value}))
                try:
                    report.checked(path)
                except report.ResultError as error:
                    self.assertIn(str(path), str(error))
                    refused += 1
        self.assertGreater(refused, 20)


if __name__ == "__main__":
    unittest.main()
