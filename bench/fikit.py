"""What FIKIT's evaluation (4.5) asks of a series, beyond each result's own table."""

import json
import statistics

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


def by_repetition(result, row, job, name):
    """The mean of the job's iterations in each block of the row, or their rate."""
    found = {}
    for block in result["raw"]:
        one = block["jobs"].get(job) if block["row"] == row else None
        if one and name == "per_s":
            found[block["rep"]] = len(one["us"]) / one["span_s"]
        elif one and one["us"]:
            found[block["rep"]] = statistics.fmean(one["us"])
    return found


def ratio(result, row, over, job, name):
    """As `expect` has it: taken within a repetition, the median over them."""
    mine, theirs = (by_repetition(result, of, job, name) for of in (row, over))
    each = [mine[rep] / theirs[rep] for rep in mine if theirs.get(rep)]
    return statistics.median(each) if each else None


def speed_ups(series):
    """4.5.1: how much faster the high priority is than under what the host has without us."""
    rows = [["H faster than under", *(f"{of}: `{row}`" for of in OVER.values() for row in RULERS)]]
    for result in results(series):
        rows.append([result["name"], *(three(ratio(result, of, row, "H", "mean"))
                                       for of in OVER for row in RULERS)])
    return rows


# What a prediction is held against, for each series: (row, job, figure, the row that it is divided
# by or None). `freeze.py` keeps these of it.
PREDICTED = {
    "pairs": [(row, job, f"{name}_over_alone", None)
              for row in ("gapfill@mps", "fikit", "mps+priority")
              for job, name in (("H", "mean"), ("L", "per_s"))],
    "preempt": [(row, job, name, "timeslice") for job, name in (("H", "mean"), ("L", "per_s"))
                for row in ("fikit", "gapfill@mps")],
    "steady": [("gapfill@mps", "H", "mean", "fikit"), ("gapfill@mps", "L", "mean", None),
               ("gapfill@mps", "L", "cv", None)],
    "first": [("gapfill@mps", "H", "mean_over_alone", None),
              ("mps+priority", "H", "mean_over_alone", None),
              ("gapfill@mps", "L", "per_s_over_alone", None)],
    "ratio": [(row, job, "mean", over) for job in ("L", "H")
              for row, over in (("fikit", "exclusive"), ("gapfill@mps", "exclusive@mps"))],
}


def title(row, job, name, over):
    name = name.replace("per_s", "rate").replace("_over_alone", " ÷ alone")
    return f"`{row}`: {job} {name}" + (f" ÷ `{over}`" if over else "")


def said(result, series):
    """What a result says of each column."""
    return [ratio(result, row, over, job, name) if over else figure(result, row, job, name)
            for row, job, name, over in PREDICTED[series]]


def written(value):
    return "0" if value == 0 else three(value)


def predicted(series):
    """What virtual time said of a series, in what was committed last before it was measured -> what
    was measured; and that commit."""
    header = ["virtual time → the H200", *(title(*column) for column in PREDICTED[series])]
    frozen = json.loads((RESULTS / f"predicted/{series}.json").read_text())
    rows = [[*header, "predicted in, before"]]
    for measured in results(series):
        before, at = frozen.get(measured["name"]), measured["sessions"][0]["date"]
        if before is None or before["committed"] >= at:
            continue
        assert before["columns"] == header[1:], f"freeze.py {series}: other columns are frozen"
        both = zip(before["said"], said(measured, series))
        rows.append([measured["name"], *(f"{written(old)} → {written(new)}" for old, new in both),
                     f"{before['commit']}, {measured['sessions'][-1]['commit']}"])
    return rows


def bounds(*series):
    """The bound per gap, as it was stated, and how many gaps exceeded theirs, in how much time and
    of how many launches, none of which has more than one gap before it. (What files up to b251113
    call gaps_filled is no count of their blocks.)"""
    rows = [["the bound", "row", "commit", "stated at most, µs", "exceeded", "seconds", "launches",
             "exceeded: one in"]]
    for result in (of for name in series for of in results(name)):
        for row in RULERS:
            blocks = [block for block in result["raw"] if block["row"] == row]
            exceeded, launches = (sum(block["counters"].get(of, 0) for block in blocks)
                                  for of in ("bound_violations", "posted"))
            stated = [us for block in blocks if (us := block.get("added_us_max"))]
            if stated:
                rows.append([result["name"], f"`{row}`", result["sessions"][-1]["commit"],
                             three(max(stated)), f"{exceeded:.0f}",
                             f"{sum(block['counted_s'] for block in blocks):.0f}",
                             f"{launches:.0f}",
                             f"{launches / exceeded:.0f}" if exceeded else "–"])
    return rows
