"""heddle-bench report: what the page and the picture say of a committed result of two simulated
jobs, and what the verdict makes of results that it knows."""

import contextlib
import copy
import importlib.util
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import report  # noqa: E402  (the folder is known only now)
from harness import frontier, traces  # noqa: E402
from harness.verdict import verdict  # noqa: E402

RESULT = Path(__file__).with_name("report_result.json")
try:
    frontier.load_matplotlib()  # it may begin this test anew, in Debian's interpreter
    MATPLOTLIB = True
except report.ResultError:
    MATPLOTLIB = False


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

    def test_policy_that_changes_little_hardly_helps(self):
        self.says("heddle hardly helps api", 2.17, 2.06, 0.74)

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

    def test_few_slices_have_no_interval(self):
        path = self.folder / "few.json"
        path.write_text(re.sub(r'("hi": ?[\d.]+)', r'\1, "n": 4', RESULT.read_text()))
        text = self.make(path)
        self.assertIsNone(re.search(r"<td>[^<]*\[", text))
        self.assertIsNotNone(re.search(r"<td>[^<]*\[", self.make(RESULT)), "it has no n")

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


def bar(svg, name):
    """The ends (x, y, x, y) of the first line of what has that id; None if nothing has."""
    found = re.search(rf'id="{re.escape(name)}">\s*<path d="M (\S+) (\S+) \s*L (\S+) (\S+)', svg)
    return [float(number) for number in found.groups()] if found else None


class Picture(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.at = Path(folder.name)
        self.svg = self.at / "f.svg"
        self.result = json.loads(RESULT.read_text())

    def run_report(self, *arguments, status=0, env=None):
        done = subprocess.run([sys.executable, ROOT / "bench/report.py", *map(str, arguments),
                               "--svg", self.svg], text=True, capture_output=True, env=env)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stderr

    def test_without_matplotlib_the_package_is_named_and_help_told(self):
        (self.at / "matplotlib.py").write_text("raise ImportError\n")
        env = {**os.environ, "PYTHONPATH": str(self.at)}
        done = subprocess.run([sys.executable, ROOT / "bench/report.py", "--help"], text=True,
                              capture_output=True, env=env)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("--together", done.stdout)
        self.assertEqual(self.run_report(RESULT, status=1, env=env),
                         "heddle-bench report: matplotlib is not there; install the package "
                         "python3-matplotlib\n")

    def draw(self, *arguments):
        """As run_report(), without the start of a process: the picture, and its words."""
        if not MATPLOTLIB:
            self.skipTest("no matplotlib; tests/setup.sh --plots installs it")
        self.addCleanup(frontier.plt.close, "all")
        with mock.patch("sys.argv", ["report", *map(str, arguments), "--svg", str(self.svg)]), \
                contextlib.redirect_stdout(None):
            report.main()
        text = self.svg.read_text()
        return text, re.findall(r"<text [^>]*>([^<]*)</text>", text)

    def written(self, name, document):
        path = self.at / name
        path.write_text(json.dumps(document))
        return path

    def refused(self, *arguments):
        with self.assertRaises(SystemExit) as ended:
            self.draw(*arguments)
        error = ended.exception.code
        self.assertNotIn("\n", error)
        self.assertTrue(error.startswith("heddle-bench report: "), error)
        self.assertFalse(self.svg.exists())
        return error

    def test_the_frontier_has_a_mark_a_row_and_says_what_it_is(self):
        svg, words = self.draw(RESULT)
        for word in ("timeslice", "mps", "gapfill@mps", "oracle@mps", "pair (simulated)",
                     "filler: rate ÷ alone", "service: mean JCT ÷ alone"):
            self.assertIn(word, words)
        self.assertNotIn("alone/service", words)
        caption = " ".join(words)
        for part in ("every figure is simulated", "commit test", "5 repetitions"):
            self.assertIn(part, caption)

    def test_marks_lie_where_the_figures_are(self):
        svg, _ = self.draw(RESULT)
        shares, slowdowns = {}, {}
        for name, row in self.result["figures"].items():
            ends = {of: bar(svg, f"pair:{name}:{of}") for of in ("share", "slowdown")}
            if name.startswith("alone/"):
                self.assertEqual(ends, {"share": None, "slowdown": None})
                continue
            share = row["jobs"]["filler"]["per_s_over_alone"]
            slowdown = row["jobs"]["service"]["mean_over_alone"]
            for key, end in (("lo", 0), ("hi", 2)):
                shares[share[key]] = ends["share"][end]
                slowdowns[math.log(slowdown[key])] = -ends["slowdown"][end + 1]
        for found in (shares, slowdowns):
            (low, at_low), *_, (high, at_high) = sorted(found.items())
            for figure, place in found.items():
                expected = at_low + (figure - low) / (high - low) * (at_high - at_low)
                self.assertAlmostEqual(place, expected, delta=0.5)

    def test_the_frontier_may_be_of_the_p99(self):
        mean, _ = self.draw(RESULT)
        p99, words = self.draw(RESULT, "--figure", "p99")
        self.assertIn("service: p99 JCT ÷ alone", words)
        self.assertNotEqual(bar(mean, "pair:mps:slowdown"), bar(p99, "pair:mps:slowdown"))
        self.assertEqual(bar(mean, "pair:mps:share")[::2], bar(p99, "pair:mps:share")[::2])

    def test_the_marks_of_policies_are_filled_and_no_others(self):
        svg, _ = self.draw(RESULT)
        filled = {}
        for row in ("timeslice", "mps", "gapfill@mps", "oracle"):
            after = svg.split(f'id="pair:{row}:slowdown"')[1]
            colour = re.search(r"stroke: (#\w+)", after)[1]
            marks = [m for m in re.findall(r'<use [^>]*style="([^"]*)"', svg)
                     if f"stroke: {colour}" in m]
            filled[row] = any(f"fill: {colour}" in m for m in marks)
        self.assertEqual(filled, {"timeslice": False, "mps": False, "gapfill@mps": True,
                                  "oracle": False})

    def test_a_real_result_is_not_called_simulated(self):
        self.result |= {"mode": "real", "gpu": "NVIDIA H200"}
        self.result["sessions"][-1]["driver"] = "580.1"
        _, words = self.draw(self.written("real.json", self.result))
        self.assertIn("pair", words)
        self.assertNotIn("simulated", " ".join(words))
        self.assertIn("NVIDIA H200, driver 580.1; commit test", " ".join(words))

    def test_several_results_are_several_panels_of_one_legend(self):
        other = self.written("other.json", self.result | {"name": "other"})
        _, words = self.draw(RESULT, other)
        self.assertEqual([words.count(w) for w in ("pair (simulated)", "other (simulated)", "mps")],
                         [1, 1, 1])

    def test_together_a_mark_is_the_median_of_the_results_and_reaches_over_them(self):
        other = json.loads(RESULT.read_text())
        for row in other["figures"].values():
            for job in row["jobs"].values():
                for name in ("mean_over_alone", "per_s_over_alone"):
                    if name in job:
                        job[name] = {key: 3 * job[name][key] for key in ("value", "lo", "hi")}
        self.draw(RESULT, RESULT, self.written("other.json", other), "--together")
        svg = self.svg.read_text()
        x0, y0, x1, y1 = bar(svg, "3 results:mps:share")
        self.assertEqual(y0, y1)
        self.assertGreater(abs(x1 - x0), 10, "from the least to three times that")
        self.assertIn(">3 results", svg)

    def test_the_same_input_gives_the_same_bytes(self):
        first, _ = self.draw(RESULT)
        self.run_report(RESULT)
        self.assertEqual(first, self.svg.read_text())
        self.assertNotIn("<dc:date>", first)

    def test_what_cannot_be_drawn_is_told_in_one_line(self):
        no_batch = self.result | {"jobs": self.result["jobs"][:1]}
        cut = {key: value for key, value in self.result.items() if key != "figures"}
        for document, message in ((no_batch, "has not one job of each role"),
                                  (cut, "finish it by --resume"),
                                  ({"a": 1}, "is no result of heddle-bench run")):
            self.assertIn(message, self.refused(self.written("x.json", document)))
        self.assertIn("cannot be read", self.refused(self.at / "none.json"))


if __name__ == "__main__":
    unittest.main()
