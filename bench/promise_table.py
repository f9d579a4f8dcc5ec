"""What promise.py measured: blocks judged, rows summed up, static settings compared, Markdown."""

import math
import statistics

from harness.md import markdown, three

ALL_KEPT, CELL_KEPT = 0.95, 0.80  # of all blocks of a policy, and of each cell's
OF_BEST = 0.95                    # best effort, over the best static setting that keeps the promise
STATIC = ("static:", "percent:")


def judged(blocks, bar):
    """(slowdown, kept) of each block together, by the blocks alone on either side of it; infinite
    where no run of the victim ended."""
    found = []
    for i, block in enumerate(blocks):
        if block["kind"] != "beside":
            continue
        around = [b["mean_us"] for b in (*blocks[max(0, i - 1):i], *blocks[i + 1:i + 2])
                  if b["kind"] == "alone" and b["n"]]
        if len(around) < 2:
            continue
        slowdown = block["mean_us"] / statistics.fmean(around) if block["n"] else math.inf
        found.append((slowdown, slowdown <= bar))
    return found


def middle(values):
    values = list(values)
    return statistics.median(values) if values else None


def of_row(cell, name, bar):
    """A row's figures in a cell; None where it was not measured. `be` is the sum over best effort
    of its throughput over its own alone, `stp` that and the victim's."""
    row = cell["rows"].get(name, {})
    verdicts = judged(row.get("blocks", ()), bar)
    if not verdicts:
        return None
    alone = {of: statistics.fmean(b["per_s"] for b in blocks)
             for of, blocks in cell["alone"].items()}
    own_us = statistics.fmean(b["mean_us"] for b in cell["alone"][cell["victim"]] if b["n"])
    beside = [b for b in row["blocks"] if b["kind"] == "beside"]
    best_effort = [sum(per_s / alone[of] for of, per_s in zip(cell["antagonists"], b["others"])
                       if alone[of]) for b in beside]
    tail = middle(b["p99_us"] for b in row["blocks"] if b["kind"] == "alone" and b["n"])
    p99 = middle(b["p99_us"] for b in beside if b["n"])
    return {"blocks": len(verdicts), "kept": sum(kept for _, kept in verdicts),
            "slowdown": middle(slowdown for slowdown, _ in verdicts),
            "p99": p99 / tail if p99 and tail else None,
            "be": middle(best_effort),
            "stp": middle(be + (own_us / b["mean_us"] if b["n"] else 0)
                          for be, b in zip(best_effort, beside)),
            "fewest": min(b["n"] for b in beside),
            "told": told(row.get("promise"))}


def told(promise):
    """Of a promise before and after a row: how many of heddle's own blocks broke it meanwhile."""
    if not promise:
        return None
    broken, blocks = (promise[1][key] - promise[0][key] for key in ("broken", "blocks"))
    return f"{broken} of {blocks}"


def keeps(found):
    """A static setting keeps the promise of its pair if so many of its blocks do."""
    return found is not None and found["kept"] >= ALL_KEPT * found["blocks"]


def static_rows(result):
    return list(dict.fromkeys(name for cell in result["cells"] for name in cell["rows"]
                              if name.startswith(STATIC)))


def best_static(cell, bar):
    """(name, figures) of the static setting with the most best effort among those that keep this
    cell's promise; None if none does."""
    found = {name: of_row(cell, name, bar) for name in cell["rows"] if name.startswith(STATIC)}
    kept = {name: of for name, of in found.items() if keeps(of)}
    return max(kept.items(), key=lambda item: item[1]["be"]) if kept else None


def single_static(result):
    """(name, mean best effort) of the one setting for all: it keeps the promise of every cell. None
    if there is none; only settings that every cell has can be."""
    found = []
    for name in static_rows(result):
        rows = [of_row(cell, name, result["bar"]) for cell in result["cells"]]
        if rows and all(keeps(of) for of in rows):
            found.append((name, statistics.fmean(of["be"] for of in rows)))
    return max(found, key=lambda item: item[1]) if found else None


def title(cell):
    return f"{cell['victim']} beside {' + '.join(cell['antagonists'])}"


def share(kept, blocks):
    return f"{kept} of {blocks}"


def cells_of(found):
    if found is None:
        return ["–"] * 7
    slowdown = "∞" if math.isinf(found["slowdown"]) else three(found["slowdown"])
    return [share(found["kept"], found["blocks"]), slowdown, three(found["p99"]),
            three(found["be"]), three(found["stp"]), str(found["fewest"]), found["told"] or "–"]


def line(cell, name, bar=1.10):
    """Of a row just measured, for the log."""
    if "error" in cell["rows"].get(name, {}):
        return f"{title(cell)}: {name}: {cell['rows'][name]['error']}"
    kept, slowdown, p99, be, stp, *_ = cells_of(of_row(cell, name, bar))
    return (f"{title(cell)}: {name}: kept {kept}, mean x {slowdown}, p99 x {p99}, best effort "
            f"{be}, STP {stp}")


def cell_table(cell, bar):
    header = ["", "blocks kept", "victim mean ÷ alone", "p99 ÷ alone", "best effort ÷ alone",
              "STP", "fewest runs of a block", "broken, as heddle counts"]
    return markdown(header, [[f"`{name}`", *cells_of(of_row(cell, name, bar))]
                             for name in cell["rows"]])


def summary(result):
    """A row for every policy and setting, over all cells that have it."""
    bar, rows = result["bar"], []
    names = dict.fromkeys(name for cell in result["cells"] for name in cell["rows"])
    for name in names:
        found = [(cell, of) for cell in result["cells"] if (of := of_row(cell, name, bar))]
        if not found:
            continue
        blocks, kept = (sum(of[key] for _, of in found) for key in ("blocks", "kept"))
        worst = min(of["kept"] / of["blocks"] for _, of in found)
        over = [of["be"] / best[1]["be"] for cell, of in found
                if (best := best_static(cell, bar)) and best[1]["be"] > 0]
        rows.append([f"`{name}`", str(len(found)), f"{kept / blocks:.0%} of {blocks}",
                     f"{worst:.0%}",
                     "yes" if kept >= ALL_KEPT * blocks and worst >= CELL_KEPT else "no",
                     three(statistics.fmean(of["be"] for _, of in found)),
                     three(statistics.fmean(of["stp"] for _, of in found)),
                     three(middle(over)), share(sum(x >= OF_BEST for x in over), len(over))])
    return rows


def merged(results):
    """Cells of several files as of one; they are of one GPU model and one promise."""
    first = results[0]
    for result in results[1:]:
        for key in ("mode", "gpu", "slowdown_max", "bar"):
            if result[key] != first[key]:
                raise SystemExit(f"promise.py: results of {key} {first[key]} and {result[key]} are "
                                 "no one table; print each by itself")
    commits = dict.fromkeys(result["commit"] for result in results)
    return {**first, "commit": ", ".join(commits),
            "cells": [cell for result in results for cell in result["cells"]]}


def beside(result):
    """A row for each policy and setting, a column for each cell; None if nothing was measured."""
    cells = [cell for cell in result["cells"] if cell["rows"]]
    names = dict.fromkeys(name for cell in cells for name in cell["rows"])

    def figures(cell, name):
        found = of_row(cell, name, result["bar"])
        if found is None:
            return "–"
        mean = "∞" if math.isinf(found["slowdown"]) else three(found["slowdown"])
        return " · ".join((mean, three(found["p99"]), three(found["be"])))

    header = [f"H's mean · H's p99 · best effort, each ÷ alone; {result['gpu']}, commit "
              f"{result['commit'][:7]}", *map(title, cells)]
    return [header, *([f"`{name}`", *(figures(cell, name) for cell in cells)]
                      for name in names)] if cells else None


FENCES = ("0", "64", "32")


def fences(results):
    """Of `combined` by its fence_sm: a row for each cell. What it is without the parameter is the
    one of 0 and 64 that the cell does not name."""
    rows = []
    for result in results:
        for cell in result["cells"]:
            there = {fence: f"combined:fence_sm={fence}" for fence in FENCES}
            default = "64" if there["0"] in cell["rows"] else "0"
            found = [of_row(cell, "combined" if fence == default else name, result["bar"])
                     for fence, name in there.items()]
            rows.append([title(cell), *(" · ".join(cells_of(of)[:5]) if of else "–"
                                        for of in found), result["commit"][:7]])
    return [[f"kept · H's mean · p99 · best effort · STP; {results[0]['gpu']}",
             *(f"`fence_sm={fence}`" for fence in FENCES), "commit"], *rows] if rows else None


def text(result):
    """All of a result as Markdown."""
    where = "on the simulated GPU: says nothing of a real one" if result["mode"] == "simulated" \
        else f"on {result['gpu']}"
    measured = [cell for cell in result["cells"] if cell["rows"]]
    parts = [f"Promise of {result['slowdown_max']:g}, {where}, commit {result['commit']}"]
    result = {"bar": result["bar"], "cells": measured}
    rows = summary(result)
    if not rows:
        return parts[0] + "\n\nNo row was measured yet; --resume goes on."
    parts.append(markdown(
        ["all cells", "cells", "blocks kept", "worst cell",
         f"≥ {ALL_KEPT:.0%} of all, ≥ {CELL_KEPT:.0%} of each", "best effort ÷ alone", "STP",
         "best effort ÷ the pair's best static", f"≥ {OF_BEST:g} of it, cells"], rows))
    single = single_static(result)
    parts.append(f"One static setting for all cells that keeps every promise: `{single[0]}`, best "
                 f"effort {three(single[1])} of alone." if single else
                 "No static setting keeps the promise of every cell.")
    for cell in measured:
        best = best_static(cell, result["bar"])
        best = f"`{best[0]}`, best effort {three(best[1]['be'])}" if best else "none keeps it"
        parts += [f"**{title(cell)}** (blocks of {cell.get('block_s', 0):g} s; best static "
                  f"setting: {best})", cell_table(cell, result["bar"])]
    return "\n\n".join(parts)
