"""heddle-bench plot: what its pictures say, drawn from a committed result of two simulated jobs."""

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
PLOT = ROOT / "bench/plot.py"
RESULT = Path(__file__).with_name("plot_result.json")


def has_matplotlib():
    return importlib.util.find_spec("matplotlib") or subprocess.run(
        ["/usr/bin/env", "/usr/bin/python3", "-c", "import matplotlib"],
        capture_output=True).returncode == 0


if not has_matplotlib():
    print("no matplotlib here: tests/setup.sh --plots installs python3-matplotlib")
    sys.exit(77)
sys.path.insert(0, str(PLOT.parent))
import plot  # noqa: E402

plot.load_matplotlib()  # it may begin this test anew, in Debian's interpreter


def metadata(pid, name):
    return {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}


def slice_of(pid, tid, ts, dur):
    return {"ph": "X", "name": "k", "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": {}}


TRACE = {
    "otherData": {"gpu": "NVIDIA H200", "driver": "580.1", "mode": "mps", "heddle": "0.1.0",
                  "started": "2026-01-02T03:04:05Z", "lost": 0},
    "traceEvents": [
        metadata(100, "service Q0 gpu 0"), metadata(200, "filler Q9 gpu 0"),
        slice_of(100, 0, 1000, 500), slice_of(100, 70_000, 1500, 2000),
        slice_of(200, 7, 1600, 900), slice_of(200, 70_010, 1000, 600),
        slice_of(200, 7, 30_000, 900),
        {"ph": "i", "name": "grant by policy", "pid": 200, "tid": 70_002, "ts": 1590, "s": "t"},
        {"ph": "i", "name": "gate by policy", "pid": 200, "tid": 70_002, "ts": 1000, "s": "t"},
        {"ph": "i", "name": "policy gapfill", "pid": 0, "tid": 0, "ts": 0, "s": "g"},
        {"ph": "C", "name": "0 gated, 1 open, 2 leased", "pid": 200, "ts": 5,
         "args": {"allowed": 0}}]}


def bar(svg, name):
    """The ends (x, y, x, y) of the first line of what has that id; None if nothing has."""
    found = re.search(rf'id="{re.escape(name)}">\s*<path d="M (\S+) (\S+) \s*L (\S+) (\S+)', svg)
    return [float(number) for number in found.groups()] if found else None


class Plot(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.at = Path(folder.name)
        self.svg = self.at / "f.svg"
        self.result = json.loads(RESULT.read_text())

    def run_plot(self, *arguments, status=0, env=None):
        done = subprocess.run([sys.executable, PLOT, *map(str, arguments), "--out", self.svg],
                              text=True, capture_output=True, env=env)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stderr

    def plot(self, *arguments):
        """As run_plot(), without the start of a process."""
        self.addCleanup(plot.plt.close, "all")
        with mock.patch("sys.argv", ["plot", *map(str, arguments), "--out", str(self.svg)]):
            plot.main()

    def test_helps_without_matplotlib(self):
        self.written("matplotlib.py", None).write_text("raise ImportError\n")
        env = {**os.environ, "PYTHONPATH": str(self.at)}
        done = subprocess.run([sys.executable, PLOT, "--help"], text=True, capture_output=True,
                              env=env)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("--together", done.stdout)
        self.assertIn("python3-matplotlib", self.run_plot(RESULT, status=1, env=env))

    def draw(self, *arguments):
        self.plot(*arguments)
        text = self.svg.read_text()
        return text, re.findall(r"<text [^>]*>([^<]*)</text>", text)

    def written(self, name, document):
        path = self.at / name
        path.write_text(json.dumps(document))
        return path

    def refused(self, *arguments):
        with self.assertRaises(SystemExit) as ended:
            self.plot(*arguments)
        error = ended.exception.code
        self.assertNotIn("\n", error)
        self.assertTrue(error.startswith("heddle-bench plot: "), error)
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

    def test_kept_cells_are_panels(self):
        rows = {"mps": {"mean": 2.0, "p99": 3.0, "l": 0.9}, "auto@mps": {"p99": 1.1, "l": 0.4},
                "mps:25": {"p99": "few", "l": 0.3}}
        kept = self.written("cells.json", {
            "mode": "real", "gpu": "NVIDIA X1", "commit": "c1, c2", "date": "2026-01-02",
            "cells": {"one": {"rows": rows}, "two": {"rows": rows}}})
        svg, words = self.draw(kept, "--figure", "p99")
        for word in ("one", "two", "H: p99 JCT ÷ alone", "mps", "auto@mps"):
            self.assertIn(word, words)
        self.assertNotIn("mps:25", words)
        self.assertIn("NVIDIA X1; commits c1, c2, 2026-01-02", " ".join(words))
        self.assertLess(bar(svg, "one:auto@mps:share")[0], bar(svg, "one:mps:share")[0])
        self.svg.unlink()
        self.assertIn("cells have no iterations", self.refused(kept, "--kind", "cdf"))

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
        for arguments in ((RESULT,), (RESULT, "--kind", "cdf"),
                          (self.written("t.json", TRACE), "--kind", "timeline")):
            first, _ = self.draw(*arguments)
            self.run_plot(*arguments)
            self.assertEqual(first, self.svg.read_text())
            self.assertNotIn("<dc:date>", first)

    def test_distributions_have_a_line_a_row_of_the_job_asked_for(self):
        _, words = self.draw(RESULT, "--kind", "cdf")
        for word in ("alone", "alone@mps", "mps", "gapfill@mps", "service: JCT in ms"):
            self.assertIn(word, words)
        _, words = self.draw(RESULT, "--kind", "cdf", "--job", "filler", "--rows", "mps")
        self.assertIn("filler: JCT in ms", words)
        self.assertNotIn("gapfill@mps", words)

    def test_the_timeline_begins_where_the_first_kernel_ran(self):
        later = json.loads(json.dumps(TRACE))
        for event in later["traceEvents"]:
            if "ts" in event:
                event["ts"] += 5_000_000
        _, words = self.draw(self.written("t.json", later), "--kind", "timeline", "--ms", "10")
        self.assertIn("ms, from 5001 ms after the trace began", words)

    def test_the_timeline_has_a_lane_a_client_and_what_was_decided(self):
        svg, words = self.draw(self.written("t.json", TRACE), "--kind", "timeline", "--ms", "10")
        for word in ("service Q0 gpu 0", "filler Q9 gpu 0", "gate", "policy gapfill"):
            self.assertIn(word, words)
        self.assertIn("NVIDIA H200, driver 580.1, mps; heddle", " ".join(words))
        # The kernel at 30 ms is beyond.
        for part in ("service Q0 gpu 0:kernels", "service Q0 gpu 0:gaps",
                     "filler Q9 gpu 0:kernels"):
            self.assertEqual(svg.split(f'id="{part}">')[1].split("</g>")[0].count("<path"), 1)
        left = bar(svg, "service Q0 gpu 0:kernels")[0], bar(svg, "service Q0 gpu 0:gaps")[0]
        wait, grant = (bar(svg, f"filler Q9 gpu 0:{what}")[0] for what in ("waits", "grants"))
        self.assertAlmostEqual(wait, left[0], delta=0.1)
        self.assertTrue(left[0] < left[1] < grant < bar(svg, "filler Q9 gpu 0:kernels")[0])

    def test_what_cannot_be_drawn_is_told_in_one_line(self):
        no_batch = self.result | {"jobs": self.result["jobs"][:1]}
        cut = {key: value for key, value in self.result.items() if key != "figures"}
        for document, arguments, message in (
                (no_batch, (), "has no batch job"), (cut, (), "finish it by --resume"),
                ({"a": 1}, (), "is no result of heddle-bench run"),
                ({"a": 1}, ("--kind", "timeline"), "is no trace"),
                (self.result, ("--kind", "cdf", "--job", "x"), "has no job 'x'; there are service"),
                (self.result, ("--kind", "cdf", "--rows", "x"), "has no iteration of service"),
                (TRACE, ("--kind", "timeline", "--from-ms", "500"), "no kernel ran in those 20")):
            self.assertIn(message, self.refused(self.written("x.json", document), *arguments))
        self.assertIn("cannot be read", self.refused(self.at / "none.json"))

    def test_what_is_no_svg_is_refused(self):
        self.svg = self.at / "picture.png"
        self.assertIn("name an --out that ends in .svg", self.refused(RESULT))

    def test_without_matplotlib_the_package_is_named(self):
        (self.at / "matplotlib.py").write_text("raise ImportError\n")
        error = self.run_plot(RESULT, status=1, env={"PYTHONPATH": str(self.at)})
        self.assertEqual(error, "heddle-bench plot: matplotlib is not there; install the package "
                                "python3-matplotlib\n")


if __name__ == "__main__":
    unittest.main()
