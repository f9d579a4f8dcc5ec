"""Figures that noise of the host reaches less. On a virtual host whose processors change their
speed by half within milliseconds the mean of a few blocks says little; the first quartile of all
of the latency job's iterations, of a row over the bare process alone, is less wide. And where such
a host makes best effort now faster, now slower, a task differs less from the next than from all."""

import statistics

from harness import figures
from md import computed, results_in

ALONE = "alone/H@mps"
ROUNDS = 200  # of the bootstrap, over repetitions


def quartile(lists):
    return statistics.quantiles([us for us_of_one in lists for us in us_of_one], n=4)[0]


def slowdown(repetitions):
    """Of pairs of a row's iterations and the bare process's."""
    beside, alone = zip(*repetitions)
    return quartile(beside) / quartile(alone)


def pairs_of(result):
    """By row: H's iterations of each repetition, and the bare process's of the same."""
    took = {}
    for block in result["raw"]:
        if "H" in block["jobs"]:
            took.setdefault(block["row"], {})[block["rep"]] = block["jobs"]["H"]["us"]
    pairs = {row: [(us, took[ALONE][rep]) for rep, us in of.items() if us and rep in took[ALONE]]
             for row, of in took.items() if row != ALONE}
    return {row: both for row, both in pairs.items() if both}


def slowdowns(result):
    """By row, with the 95 % interval."""
    return {row: [slowdown(both), *figures.interval(both, slowdown, ROUNDS)]
            for row, both in pairs_of(result).items()}


def cells(result):
    """By row: the slowdown with its 95 % interval, and best effort's rate over alone."""
    found = {}
    for row, (took, lo, hi) in computed(result, "slowdowns", lambda: slowdowns(result)).items():
        rate = result["figures"][row]["jobs"].get("L", {}).get("per_s_over_alone", {}).get("value")
        best_effort = f", L {rate:.2f}" if rate else ""
        found[row] = f"{took:.2f} [{lo:.2f}, {hi:.2f}]{best_effort}"
    return found


def rows(folder):
    """One a scenario, with the header first: all rows of the first result."""
    results = results_in(folder)
    if not results:
        return None
    names = [row["name"] for row in results[0]["rows"] if not row["name"].startswith("alone/")]
    commits = ", ".join(dict.fromkeys(of["sessions"][-1]["commit"] for of in results))
    return [["first quartile of H ÷ alone [95 %]",
             *(f"`{row.removesuffix('@mps')}`, {commits}" for row in names)],
            *([of["name"], *(cells(of).get(row, "–") for row in names)] for of in results)]


def spread(times):
    return statistics.pstdev(times) / statistics.fmean(times)


def from_one_to_the_next(times):
    """What the CV would be if nothing but a task and the next differed (von Neumann)."""
    squares = [(one - other) ** 2 for one, other in zip(times, times[1:])]
    return (statistics.fmean(squares) / 2) ** 0.5 / statistics.fmean(times)


def spreads(result, row):
    """Of L's tasks in all blocks of the row; within one: median, least, most; from task to task."""
    blocks = [block["jobs"]["L"]["us"] for block in result["raw"] if block["row"] == row]
    each = [spread(times) for times in blocks]
    return [spread(sum(blocks, [])), statistics.median(each), min(each), max(each),
            statistics.median(map(from_one_to_the_next, blocks))]


def steady(folder, row="gapfill@mps"):
    """How steady best effort's tasks are: of all blocks, within one, and from task to task."""
    header = [f"CV of L's tasks, `{row.removesuffix('@mps')}`", "all blocks",
              "within a block: median [all]", "from one task to the next"]
    found = []
    for result in results_in(folder):
        whole, median, lo, hi, following = computed(result, "spreads", lambda: spreads(result, row))
        found.append([result["name"].removesuffix("_steady"), f"{whole:.2f}",
                      f"{median:.2f} [{lo:.2f}, {hi:.2f}]", f"{following:.2f}"])
    return [header, *found] if found else None
