"""The frontier as a picture: what sharing costs against what it gives, as SVG. The same input gives
the same bytes. `heddle-bench report --svg` draws it.

Up: mean (or p99) JCT of the first latency-critical job, over alone; right: rate of the first
best-effort one, over alone; each the median over repetitions with its 95 % interval. Filled marks
are heddle's policies. The line joins the rows that no other row beats on both sides. Several
results give a panel each, or `together` one: a mark is then the median over the results, and its
bars reach from the least of them to the greatest.

Needs matplotlib, which nothing else here does.
"""

import math
import os
import re
import statistics
import sys
import textwrap

from harness.report import ResultError, load, reading
from harness.verdict import pair, policies

DEBIAN_PYTHON = "/usr/bin/python3"
# Okabe and Ito's colours: told apart by everybody, and in print.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#444444",
           "#8b5a2b")
MARKERS = "osD^vP<>X"
PANEL_INCHES = (3.9, 3.0)
COLUMNS_MAX = 3
LINE_INCHES, LEGEND_INCHES, CAPTION_PER_INCH = 0.19, 1.5, 17


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
        raise ResultError("matplotlib is not there; install the package "
                          "python3-matplotlib") from None
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
    commits = " and ".join(dict.fromkeys(of["commit"] for of in result["sessions"]))
    where = result["gpu"]
    if result["mode"] == "simulated":
        where = ("simulated GPU" if where == "simulated" else where) + ": every figure is simulated"
    else:
        where += f", driver {last['driver']}"
    return (f"{where}; commit {commits}, {last['date'][:10]}, "
            f"{result['repetitions_done']} repetitions of {result['block_s']:g} s a row")


def captions(results):
    """One line a distinct origin; with the names of those it is of, if there are several."""
    names = {}
    for result in results:
        names.setdefault(origin(result), []).append(result["name"])
    if len(names) == 1:
        return list(names)
    return [f"{', '.join(of)}: {line}" for line, of in names.items()]


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
    figure.legend(handles.values(), handles.keys(), loc="lower center", ncol=columns,
                  bbox_to_anchor=(0.5, caption / (height + below)), borderaxespad=0)
    for i, line in enumerate(reversed(lines)):
        figure.text(0.01, (LINE_INCHES * i + 0.08) / (height + below), line, fontsize=7.5,
                    color="#555555")
    try:
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    except OSError as error:
        raise ResultError(f"{out}: cannot be written: {error.strerror}; name another "
                          "--svg") from None


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
        self.policies = {name for result in results for name in policies(result)}
        self.of, stems = {}, {}
        for row in (row for result in results for row in result["rows"]):
            name = row["name"]
            if name.startswith("alone/") or name in self.of:
                continue
            same = stems.setdefault(re.split("[@:]", name)[0], [])
            place = list(stems.values()).index(same)
            mark = len(same) + place // len(COLOURS)
            same.append(name)
            self.of[name] = COLOURS[place % len(COLOURS)], MARKERS[mark % len(MARKERS)]

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
    latency, batch = pair(result)
    if latency is None or batch is None:
        raise ResultError(f"{path}: has not one job of each role, latency and batch")
    points = {}
    for name, row in result["figures"].items():
        share = row["jobs"].get(batch, {}).get("per_s_over_alone")
        slowdown = row["jobs"].get(latency, {}).get(f"{figure}_over_alone")
        if share and slowdown and "few" not in slowdown:
            points[name] = (share, slowdown)
    if not points:
        raise ResultError(f"{path}: no row has both jobs beside each other; measure a baseline or "
                          "a policy")
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


def draw(files, figure, in_one, out):
    """Writes `out`: the frontier of all results, of their "mean" or "p99"."""
    results = []
    for path in files:
        with reading(path):
            results.append(load(path))
    with reading(", ".join(files)):
        styles, lines, handles = Styles(results), captions(results), {}
        if in_one:
            results = [together(results, files, figure)]
        canvas, axes = panels(len(results))
        for axis, result, path in zip(axes, results, files):
            draw_frontier(axis, result, path, styles, handles, figure)
        finish(canvas, handles, lines, out)
