#!/usr/bin/env python3
"""Pictures of results and traces, as SVG: the same input gives the same bytes.

    heddle-bench plot RESULT.json... --out F.svg                what sharing costs against what it
                                                                gives, a mark a row: the frontier
    heddle-bench plot RESULT.json... --together --out F.svg     the same, all results in one panel
    heddle-bench plot RESULT.json... --kind cdf --out F.svg     iteration times, a line a row
    heddle-bench plot FILE.trace --kind timeline --out F.svg    who was on the GPU when, and why

Results are those of `heddle-bench run`, on any --device; several give a panel each. For the
frontier cells that `table.py --keep` has of them will do. Traces are those of `heddle record`, or
what `heddle trace export --perfetto` made of them (.json, .json.gz).
Needs matplotlib, which nothing else here does.

frontier  up: mean (or p99) JCT of the first latency-critical job, over alone; right: rate of the
          first best-effort one, over alone; each the median over repetitions with its 95 %
          interval. Filled marks are heddle's policies. The line joins the rows that no other row
          beats on both sides. --together: a mark is the median over the results, and its bars
          reach from the least of them to the greatest.
timeline  a lane a client. Dark: its kernels on the GPU, starts reconstructed as daemon/trace does.
          Light: its gaps. Ticks above: grants; below, hatched: launches that waited for one.
"""

import argparse
import json
import math
import os
import re
import statistics
import sys
import textwrap
from pathlib import Path

from harness import traces
from harness.report import ResultError, load, reading
from harness.traces import ASKS, GAPS
from harness.verdict import NO_POLICIES

DEBIAN_PYTHON = "/usr/bin/python3"
# Okabe and Ito's colours: told apart by everybody, and in print.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#444444",
           "#8b5a2b")
MARKERS = "osD^vP<>X"
ALONE = "#999999"
PANEL_INCHES = (3.9, 3.0)
COLUMNS_MAX = 3
LINE_INCHES, LEGEND_INCHES, CAPTION_PER_INCH = 0.19, 1.5, 17
CDF_POINTS = 250
TIMELINE_POINTS = 3000  # across


def refuse(what):
    sys.exit(f"heddle-bench plot: {what}")


def load_matplotlib():
    """Once the arguments are read: --help needs nothing that is not in Python."""
    global plt, FixedLocator, FuncFormatter, NullLocator
    try:
        import matplotlib
    except ImportError:
        # Debian's package belongs to Debian's interpreter, which need not be the first on the PATH.
        if os.path.realpath(sys.executable) != os.path.realpath(DEBIAN_PYTHON) \
                and os.path.exists(DEBIAN_PYTHON):
            os.execv(DEBIAN_PYTHON, [DEBIAN_PYTHON, *sys.argv])
        refuse("matplotlib is not there; install the package python3-matplotlib")
    matplotlib.use("svg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
    matplotlib.rcParams.update({
        "svg.hashsalt": "heddle",  # else ids are drawn at random
        "svg.fonttype": "none",    # text stays text
        "font.size": 9, "axes.titlesize": 10, "axes.titlelocation": "left",
        "axes.spines.top": False, "axes.spines.right": False,
        "axes.grid": True, "grid.color": "#e6e6e6", "grid.linewidth": 0.6, "axes.axisbelow": True,
        "legend.frameon": False,
    })


def origin(result):
    """Where the figures come from, in words that a reader of the picture alone needs."""
    last = result["sessions"][-1]
    where = result["gpu"]
    if "kept" in result:
        return f"{where}; commits {last['commit']}, {last['date'][:10]}"
    if result["mode"] == "simulated":
        where = ("simulated GPU" if where == "simulated" else where) + ": every figure is simulated"
    else:
        where += f", driver {last['driver']}"
    return (f"{where}; commit {last['commit']}, {last['date'][:10]}, "
            f"{result['repetitions_done']} repetitions of {result['block_s']:g} s a row")


def captions(results):
    """One line a distinct origin; with the names of those it is of, if there are several."""
    names = {}
    for result in results:
        names.setdefault(origin(result), []).append(result["name"])
    if len(names) == 1:
        return list(names)
    return [f"{', '.join(of)}: {line}" for line, of in names.items()]


def job_of(result, role, path):
    for job in result["jobs"]:
        if job["role"] == role:
            return job["name"]
    return refuse(f"{path}: has no {role} job, and the frontier needs one of each role")


def panels(count):
    columns = min(count, COLUMNS_MAX) if count != 4 else 2
    rows = math.ceil(count / columns)
    size = (max(PANEL_INCHES[0] * columns, 6), PANEL_INCHES[1] * rows)
    figure, grid = plt.subplots(rows, columns, figsize=size, squeeze=False)
    for spare in grid.flat[count:]:
        spare.axis("off")
    return figure, list(grid.flat[:count])


def finish(figure, handles, lines, out):
    """Adds legend and caption below, and writes the file."""
    width, height = figure.get_size_inches()
    lines = [part for line in lines for part in textwrap.wrap(line, int(width * CAPTION_PER_INCH))]
    columns = int(width / LEGEND_INCHES)
    caption = LINE_INCHES * len(lines) + 0.1
    below = caption + LINE_INCHES * math.ceil(len(handles) / columns) + 0.1
    figure.set_size_inches(width, height + below)
    figure.tight_layout(rect=(0, below / (height + below), 1, 1))
    if handles:
        figure.legend(handles.values(), handles.keys(), loc="lower center", ncol=columns,
                      bbox_to_anchor=(0.5, caption / (height + below)), borderaxespad=0)
    for i, line in enumerate(reversed(lines)):
        figure.text(0.01, (LINE_INCHES * i + 0.08) / (height + below), line, fontsize=7.5,
                    color="#555555")
    try:
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    except OSError as error:
        refuse(f"{out}: cannot be written: {error.strerror}; name another --out")
    print(out)


def plain_log(axis, low, high):
    """A logarithmic axis with numbers that people read."""
    steps = [m * 10 ** e for e in range(-3, 6) for m in (1, 1.2, 1.5, 2, 3, 5, 7)]
    if high / low > 20:
        steps = [m * 10 ** e for e in range(-3, 6) for m in (1, 2, 5)]
    if high / low > 2000:
        steps = [10 ** e for e in range(-3, 6)]
    axis.set_major_locator(FixedLocator([s for s in steps if low * 0.99 <= s <= high * 1.01]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


class Styles:
    """A colour for each way of sharing and a mark for each row, alike in all panels. Policies' rows
    are filled."""

    def __init__(self, results):
        self.policies, self.of = set(), {}
        stems = {}
        for row in (row for result in results for row in result["rows"]):
            name = row["name"]
            if row.get("policy", "builtin") not in NO_POLICIES:
                self.policies.add(name)
            if name.startswith("alone/") or name in self.of:
                continue
            same = stems.setdefault(re.split("[@:]", name)[0], [])
            place = list(stems.values()).index(same)
            mark = len(same) + place // len(COLOURS)
            same.append(name)
            self.of[name] = COLOURS[place % len(COLOURS)], MARKERS[mark % len(MARKERS)]

    def colour(self, name):
        return self.of.get(name, (ALONE,))[0]

    def mark(self, name):
        colour, marker = self.of[name]
        return {"marker": marker, "color": colour,
                "markerfacecolor": colour if name in self.policies else "white"}


def unbeaten(points):
    """Of (share, slowdown) those that no other beats on both sides, by share."""
    best, out = math.inf, []
    for share, slowdown in sorted(points, key=lambda p: (-p[0], p[1])):
        if slowdown < best:
            best = slowdown
            out.append((share, slowdown))
    return out[::-1]


def frontier_points(result, path, figure):
    """Row -> (best effort's share, the latency job's slowdown), each {value, lo, hi}."""
    latency, batch = job_of(result, "latency", path), job_of(result, "batch", path)
    points = {}
    for name, row in result["figures"].items():
        share = row["jobs"].get(batch, {}).get("per_s_over_alone")
        slowdown = row["jobs"].get(latency, {}).get(f"{figure}_over_alone")
        if share and slowdown and "few" not in slowdown:
            points[name] = (share, slowdown)
    if not points:
        refuse(f"{path}: no row has both jobs beside each other; measure a baseline or a policy")
    return latency, batch, points


def upper(figure):
    """The interval's end; of few repetitions, which have none, the value."""
    return figure["value"] if figure.get("hi") is None else figure["hi"]


def lower(figure):
    return figure.get("lo", figure["value"])


def draw_frontier(axes, result, path, styles, handles, figure):
    latency, batch, points = frontier_points(result, path, figure)
    for name, (x, y) in points.items():
        errors = [[[abs(f["value"] - lower(f))], [abs(upper(f) - f["value"])]] for f in (x, y)]
        mark = axes.errorbar(
            x["value"], y["value"], xerr=errors[0], yerr=errors[1], linestyle="none", markersize=6,
            elinewidth=0.8, zorder=3, **styles.mark(name))
        handles[name] = mark
        for bar, of in zip(mark.lines[2], ("share", "slowdown")):
            bar.set_gid(f"{result['name']}:{name}:{of}")  # ids tell what a mark is
    line = unbeaten([(x["value"], y["value"]) for x, y in points.values()])
    axes.plot(*zip(*line), color="#bbbbbb", linewidth=1, zorder=2)
    axes.set_yscale("log")
    lowest = [lower(y) or y["value"] for _, y in points.values()]  # few samples: 0
    low = min(1.0, *lowest) * 0.97
    high = max(upper(y) for _, y in points.values()) * 1.05
    axes.set_ylim(low, high)
    plain_log(axes.yaxis, low, high)
    axes.set_xlim(-0.02, max(1.0, *(upper(x) for x, _ in points.values())) * 1.03)
    axes.axhline(1, color="#888888", linewidth=0.8, zorder=1)
    axes.set_title(title(result))
    axes.set_xlabel(f"{batch}: rate ÷ alone")
    axes.set_ylabel(f"{latency}: {figure} JCT ÷ alone")


def title(result):
    return result["name"] + (" (simulated)" if result["mode"] == "simulated" else "")


def draw_cdf(axes, result, path, styles, handles, job, rows):
    jobs = [j["name"] for j in result["jobs"]]
    if job and job not in jobs:
        refuse(f"{path}: has no job '{job}'; there are {', '.join(jobs)}")
    job = job or next((j["name"] for j in result["jobs"] if j["role"] == "latency"), jobs[0])
    samples = {}
    for block in result["raw"]:
        times = block["jobs"].get(job, {}).get("us", ())
        if not rows or block["row"] in rows:
            samples.setdefault(block["row"], []).extend(times)
    samples = {row: sorted(times) for row, times in samples.items() if times}
    if not samples:
        refuse(f"{path}: has no iteration of {job} in those rows; its rows are "
               + ", ".join(row["name"] for row in result["rows"]))
    for row in (row["name"] for row in result["rows"]):
        if row not in samples:
            continue
        times, alone = samples[row], row.startswith("alone/")
        count = len(times)
        picked = sorted({round(i * (count - 1) / CDF_POINTS) for i in range(CDF_POINTS + 1)})
        mps = row.endswith(("@mps", "@mps+priority"))
        handles[row.replace(f"/{job}", "") if alone else row], = axes.plot(
            [max(times[i], 1) / 1e3 for i in picked], [(i + 1) / count for i in picked],
            color=styles.colour(row), linestyle=(0, (4, 1.5)) if mps else "-",
            linewidth=1.6 if row in styles.policies else 1.0)
    axes.set_xscale("log")
    low = max(1, min(times[0] for times in samples.values()))
    plain_log(axes.xaxis, low / 1e3, max(times[-1] for times in samples.values()) / 1e3)
    axes.set_ylim(0, 1.01)
    axes.set_title(title(result))
    axes.set_xlabel(f"{job}: JCT in ms")
    axes.set_ylabel("share of iterations")


def spread_over(figures):
    values = sorted(figure["value"] for figure in figures)
    return {"value": statistics.median(values), "lo": values[0], "hi": values[-1]}


def together(results, paths, figure):
    """One result with the rows that all results have, spread over those."""
    points = [frontier_points(result, path, figure) for result, path in zip(results, paths)]
    latency, batch, first = points[0]
    figures = {}
    for row in (row for row in first if all(row in of for _, _, of in points)):
        share, slowdown = (spread_over([of[row][side] for _, _, of in points]) for side in (0, 1))
        figures[row] = {"jobs": {latency: {f"{figure}_over_alone": slowdown},
                                 batch: {"per_s_over_alone": share}}}
    mode = "simulated" if any(result["mode"] == "simulated" for result in results) else "real"
    return results[0] | {"name": f"{len(results)} results", "figures": figures, "mode": mode}


def kept_result(pair, document):
    """A cell as a result. The latency-critical job is H; all batch jobs together are L."""
    rows = {name: row for name, row in document["cells"][pair]["rows"].items() if "l" in row}

    def figure(value):
        told = isinstance(value, (int, float))
        return {"value": value, "lo": value, "hi": value} if told else {"few": 0}
    figures = {}
    for name, row in rows.items():
        h = {f"{key}_over_alone": figure(row.get(key)) for key in ("mean", "p99")}
        figures[name] = {"jobs": {"H": h, "L": {"per_s_over_alone": figure(row["l"])}}}
    baselines = {"timeslice", "mps", "split"}
    return {"kept": True, "name": pair, "mode": document["mode"], "gpu": document["gpu"],
            "sessions": [{"commit": document["commit"], "date": document["date"]}],
            "jobs": [{"name": "H", "role": "latency"}, {"name": "L", "role": "batch"}],
            "rows": [{"name": name, "policy": "builtin" if re.split("[:@+]", name)[0] in baselines
                      else name} for name in rows],
            "figures": figures}


def results_of(path):
    """Of a file, each with its path: a result of heddle-bench run, or the cells kept of several."""
    try:
        document = json.loads(Path(path).read_text())
    except (OSError, ValueError):
        document = {}
    if isinstance(document, dict) and "cells" in document:
        return [(kept_result(pair, document), path) for pair in document["cells"]]
    return [(load(path), path)]


def draw_results(options):
    found = []
    for path in options.files:
        with reading(path):
            found += results_of(path)
    results, options.files = map(list, zip(*found))
    if options.kind != "frontier" and not all("raw" in result for result in results):
        refuse("cells have no iterations; name the results of heddle-bench run")
    with reading(", ".join(options.files)):
        draw_panels(options, results)


def draw_panels(options, results):
    styles, lines, handles = Styles(results), captions(results), {}
    if options.together:
        results = [together(results, options.files, options.figure)]
    figure, axes = panels(len(results))
    for axis, result, path in zip(axes, results, options.files):
        if options.kind == "frontier":
            draw_frontier(axis, result, path, styles, handles, options.figure)
        else:
            draw_cdf(axis, result, path, styles, handles, options.job, options.rows)
    finish(figure, handles, lines, options.out)


def joined(spans, least):
    """Spans of (begin, length) in their order, those that the eye cannot tell apart as one."""
    out = []
    for begin, length in sorted(spans):
        if out and begin - sum(out[-1]) < least:
            out[-1] = (out[-1][0], max(begin + length, sum(out[-1])) - out[-1][0])
        else:
            out.append((begin, length))
    return out


class Lane:
    """What one client did between two times, in ms from the first: (begin, length) and instants."""

    def __init__(self, events, begin_us, end_us):
        self.kernels, self.gaps, self.waits, self.grants, self.allowed = [], [], [], [], []
        for event in events:
            at, tid = event.get("ts", 0), event.get("tid")
            if event["ph"] == "X":
                begin, end = max(at, begin_us), min(at + event["dur"], end_us)
                if begin >= end:
                    continue
                kind = (self.gaps if tid == GAPS else self.waits if tid >= ASKS
                        else self.kernels if tid < GAPS else [])
                kind.append(((begin - begin_us) / 1e3, (end - begin) / 1e3))
            elif event["ph"] == "i" and begin_us <= at <= end_us:
                where = (at - begin_us) / 1e3
                word = event["name"].split(" by ")[0]
                self.grants.append(where) if word == "grant" else self.allowed.append((where, word))
        least = (end_us - begin_us) / 1e3 / TIMELINE_POINTS
        self.kernels, self.waits = joined(self.kernels, least), joined(self.waits, least)
        self.gaps = [gap for gap in self.gaps if gap[1] >= least]
        self.grants = [at for at, _ in joined([(at, 0) for at in self.grants], least)]


def draw_lane(axes, y, name, lane, colour):
    axes.broken_barh(lane.gaps, (y, 0.5), facecolors=colour, alpha=0.15, linewidth=0,
                     gid=f"{name}:gaps")
    axes.broken_barh(lane.kernels, (y, 0.5), facecolors=colour, linewidth=0, gid=f"{name}:kernels")
    axes.broken_barh(lane.waits, (y - 0.16, 0.1), facecolors="none", edgecolor="#888888",
                     hatch="//////", linewidth=0, gid=f"{name}:waits")
    axes.vlines(lane.grants, y + 0.53, y + 0.63, colors="#444444", linewidth=0.6,
                gid=f"{name}:grants")
    for at, word in lane.allowed:
        axes.annotate(word, (at, y + 0.5), (at, y + 0.66), fontsize=6.5,
                      color="#444444", ha="left", clip_on=True, annotation_clip=True,
                      arrowprops={"arrowstyle": "-", "linewidth": 0.5, "color": "#444444"})


def draw_timeline(options):
    if len(options.files) != 1:
        refuse("a timeline is of one trace")
    try:
        document = traces.load(options.files[0])
    except traces.TraceError as error:
        refuse(error)
    clients = traces.clients(document)
    if options.from_ms is None:
        kernels = (event["ts"] for _, events in clients for event in events
                   if event["ph"] == "X" and event["tid"] < GAPS)
        options.from_ms = min(kernels, default=0) // 1000
    begin_us, end_us = options.from_ms * 1e3, (options.from_ms + options.ms) * 1e3
    lanes = [(name, Lane(events, begin_us, end_us)) for name, events in clients]
    if not any(lane.kernels for _, lane in lanes):
        last = max((e["ts"] for e in document["traceEvents"] if "ts" in e), default=0)
        refuse(f"{options.files[0]}: no kernel ran in those {options.ms:g} ms from "
               f"{options.from_ms:g}; the trace is {last / 1e3:.0f} ms long: see --from-ms")
    figure, axes = plt.subplots(figsize=(11, 0.75 * len(lanes) + 0.8))
    for i, (name, lane) in enumerate(lanes):
        draw_lane(axes, len(lanes) - 1 - i, name, lane, COLOURS[i % len(COLOURS)])
    axes.set_yticks([len(lanes) - 0.75 - i for i in range(len(lanes))], [name for name, _ in lanes])
    axes.set_ylim(-0.25, len(lanes) - 0.1)
    axes.set_xlim(0, options.ms)
    axes.grid(False)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(f"ms, from {options.from_ms:g} ms after the trace began")
    policies = sorted({e["name"] for e in document["traceEvents"]
                       if e["name"].startswith("policy ")})
    axes.set_title(", ".join(policies) or "built-in policy")
    about = document.get("otherData", {})
    # Without NVML there is no NVIDIA driver to name.
    real = about.get("driver", "")[:1].isdigit()
    where = f"{about['gpu']}, driver {about['driver']}" if real else "simulated GPU"
    line = (f"{Path(options.files[0]).name}: {where}, {about.get('mode', '?')}; heddle "
            f"{about.get('heddle', '?')}, {about.get('started', '?')[:10]}, "
            f"{about.get('lost', 0)} records lost")
    finish(figure, {}, [line], options.out)


def main():
    parser = argparse.ArgumentParser(prog="heddle-bench plot", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("files", nargs="+", metavar="FILE")
    add("--kind", choices=("frontier", "cdf", "timeline"), default="frontier")
    add("--out", required=True, metavar="F.svg", help="replaced if it is there")
    add("--figure", choices=("mean", "p99"), default="mean", help="frontier: of the JCT")
    add("--together", action="store_true", help="frontier: all results in one panel")
    add("--job", help="cdf: whose times; default: the first latency-critical one's")
    add("--rows", type=lambda text: text.split(","), default=[], help="cdf: these only")
    add("--from-ms", type=float, help="timeline: where it begins; default: the first kernel")
    add("--ms", type=float, default=20, help="timeline: how long it is")
    options = parser.parse_args()
    if Path(options.out).suffix != ".svg":
        refuse(f"{options.out}: pictures are SVG; name an --out that ends in .svg")
    load_matplotlib()
    try:
        draw_timeline(options) if options.kind == "timeline" else draw_results(options)
    except ResultError as error:
        refuse(error)


if __name__ == "__main__":
    main()
