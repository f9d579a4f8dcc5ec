"""What FIKIT's evaluation (4.5) asks of a series, beyond each result's own table."""

import json

from md import RESULTS, three

OVER = {"timeslice": "time-slicing", "mps": "MPS", "mps+priority": "MPS + client priority"}
RULERS = ("fikit", "gapfill@mps")


def results(series):
    return [json.loads(path.read_text()) for path in sorted((RESULTS / series).glob("*.json"))]


def figure(result, row, job, name):
    found = result["figures"].get(row, {}).get("jobs", {}).get(job, {})
    found = found.get("jct_ms", {}) if name == "mean" else found
    value = found.get(name)
    return value["value"] if isinstance(value, dict) else value


def speed_ups(series):
    """4.5.1: how much faster the high priority is than under what the host has without us; by the
    means over alone of one result, each a median over its repetitions."""
    rows = [["H faster than under", *(f"{of}: `{row}`" for of in OVER.values() for row in RULERS)]]
    for result in results(series):
        took = {row: figure(result, row, "H", "mean_over_alone") for row in (*OVER, *RULERS)}
        rows.append([result["name"],
                     *(three(took[of] / took[row]) if took[of] and took[row] else "–"
                       for of in OVER for row in RULERS)])
    return rows


def cell(result, row, job, name, over):
    mine, theirs = (figure(result, of, job, name) for of in (row, over or row))
    if not mine or not theirs:
        return "–"
    return three(mine / theirs if over else mine)


def predicted(series, columns):
    """What virtual time said of a series before it was measured -> what was measured. `columns`:
    (row, job, figure, the row that it is held against or None)."""
    rows = [["virtual time → the H200", *(f"`{row}`: {job} {name}" + (f" ÷ {over}" if over else "")
                                          for row, job, name, over in columns)]]
    simulated = {of["name"]: of for of in results(f"simulated/{series}")}
    for measured in results(series):
        before = simulated[measured["name"]]
        rows.append([measured["name"], *(f"{cell(before, *column)} → {cell(measured, *column)}"
                                         for column in columns)])
    return rows


PREEMPT = [("fikit", "H", "mean", "timeslice"), ("gapfill@mps", "H", "mean", "timeslice"),
           ("fikit", "L", "per_s", "timeslice"), ("gapfill@mps", "L", "per_s", "timeslice")]
STEADY = [("gapfill@mps", "H", "mean", "fikit"), ("gapfill@mps", "L", "mean", None),
          ("gapfill@mps", "L", "cv", None)]


def bounds(*series):
    """The bound per gap, as it was stated, and how many gaps exceeded theirs, in how much time and
    of how many launches, none of which has more than one gap before it. (What files up to b251113
    call gaps_filled is no count of their blocks.)"""
    rows = [["the bound", "row", "commit", "stated at most, µs", "exceeded", "seconds", "launches"]]
    for result in (of for name in series for of in results(name)):
        for row in RULERS:
            blocks = [block for block in result["raw"] if block["row"] == row]
            grown = {of: sum(block["counters"].get(of, 0) for block in blocks)
                     for of in ("bound_violations", "posted")}
            stated = [us for block in blocks if (us := block.get("added_us_max"))]
            if stated:
                rows.append([result["name"], f"`{row}`", result["sessions"][-1]["commit"],
                             three(max(stated)), f"{grown['bound_violations']:.0f}",
                             f"{sum(block['counted_s'] for block in blocks):.0f}",
                             f"{grown['posted']:.0f}"])
    return rows
