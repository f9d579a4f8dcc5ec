#!/usr/bin/env python3
"""Mixes of real models (scenarios/mixes) under each policy: the tail of the latency-critical job H,
STP, and whether `combined` leads.

    mixes.py RESULT.json ...    of `heddle-bench run bench/scenarios/mixes/X.toml --json ...`

A cell is H's p99 ÷ alone, and STP: H's mean alone over its mean, and the others' throughputs over
alone, so that who never ran counts as 0. `combined` leads a mix if nobody has more STP and nobody a
lower p99 of H; EQUAL says how near is equal. Who is better on one without being worse on the other
is named.
"""

import sys
from pathlib import Path

from md import markdown, read, three

OURS = "combined@mps"
ROWS = (OURS, "ipc_budget@mps", "fikit@mps", "krisp_i@mps", "gapfill@mps", "priority@mps", "mps",
        "mps+priority")
EQUAL = 1.02  # two repetitions tell no less apart
H = "H"


def figures(result, row):
    """(H's p99 over alone, STP) of a row; None where one of them is not there."""
    jobs = result["figures"].get(row, {}).get("jobs", {})
    tail, mean = (jobs.get(H, {}).get(key) for key in ("p99_over_alone", "mean_over_alone"))
    rates = [job.get("per_s_over_alone") for name, job in jobs.items() if name != H]
    if not tail or not mean or not rates or not all(rates):
        return None
    return tail["value"], 1 / mean["value"] + sum(rate["value"] for rate in rates)


def verdict(result):
    """(leads, who is better): leads is None without figures of `combined`."""
    ours = figures(result, OURS)
    if ours is None:
        return None, []
    leads, better = True, []
    for row in ROWS[1:]:
        other = figures(result, row)
        if other is None:
            continue
        tail, stp = other[0] / ours[0], other[1] / ours[1]
        leads &= stp <= EQUAL and tail >= 1 / EQUAL
        if tail <= EQUAL and stp >= 1 / EQUAL and (stp > EQUAL or tail < 1 / EQUAL):
            better.append(row)
    return leads, better


def cell(found):
    return f"{three(found[0])} · {three(found[1])}" if found else "–"


def names(rows):
    return ", ".join(f"`{row.removesuffix('@mps')}`" for row in rows)


def table(results):
    """Rows of Markdown, the header first; None without results."""
    lines, led, judged = [], 0, 0
    for result in results:
        leads, better = verdict(result)
        led, judged = led + bool(leads), judged + (leads is not None)
        simulated = " (simulated)" if result.get("mode") == "simulated" else ""
        lines.append([result["name"] + simulated, *(cell(figures(result, row)) for row in ROWS),
                      {True: "yes", False: "no", None: "–"}[leads], names(better) or "–",
                      result["sessions"][-1]["commit"][:7]])
    if not lines:
        return None
    lines.append(["`combined` leads", *[""] * len(ROWS), f"{led} of {judged}", "", ""])
    return [["H's p99 ÷ alone · STP", *(f"`{row.removesuffix('@mps')}`" for row in ROWS),
             "`combined` leads", "better on one, no worse on the other", "commit"], *lines]


def main(arguments):
    if not arguments or arguments[0].startswith("-"):
        print(__doc__.strip())
        return 0 if arguments in (["-h"], ["--help"]) else 2
    try:
        rows = table([read(Path(name)) for name in sorted(arguments)])
    except (OSError, ValueError, KeyError) as error:
        print(f"mixes.py: {error!r}: give results of heddle-bench run --json", file=sys.stderr)
        return 1
    print(markdown(rows[0], rows[1:]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
