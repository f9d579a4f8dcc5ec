"""What FIKIT's evaluation (4.5) asks of a series, beyond each result's own table."""

import statistics

from md import RESULTS, computed, results_in, three

RULERS = ("fikit", "gapfill@mps")


def results(series):
    return results_in(RESULTS / series)


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


def ratio(result, row, job, name, over):
    """As `expect` has it: taken within a repetition, the median over them."""
    mine, theirs = (by_repetition(result, of, job, name) for of in (row, over))
    each = [mine[rep] / theirs[rep] for rep in mine if theirs.get(rep)]
    return statistics.median(each) if each else None


# What is said of each series: (row, job, figure, the row that it is divided by or None).
MEASURED = {
    "preempt": [(row, job, name, "timeslice") for job, name in (("H", "mean"), ("L", "per_s"))
                for row in ("fikit", "gapfill@mps")],
    "steady": [("gapfill@mps", "H", "mean", "fikit"), ("gapfill@mps", "L", "mean", None),
               ("gapfill@mps", "L", "cv", None)],
    "first": [("gapfill@mps", "H", "mean_over_alone", None),
              ("mps+priority", "H", "mean_over_alone", None),
              ("gapfill@mps", "L", "per_s_over_alone", None)],
    "ratio": [(row, job, "mean", over) for job in ("L", "H")
              for row, over in (("fikit", "exclusive"), ("gapfill@mps", "exclusive@mps"))],
    "services": [(row, job, f"{name}_over_alone", None) for row in ("gapfill@mps", "mps+priority")
                 for job, name in (("H", "mean"), ("L", "per_s"))],
}


def title(row, job, name, over):
    name = name.replace("per_s", "rate").replace("_over_alone", " ÷ alone")
    return f"`{row}`: {job} {name}" + (f" ÷ `{over}`" if over else "")


def said(result, series):
    """What a result says of each column."""
    return [computed(result, title(*column), lambda: ratio(result, *column))
            if column[-1] else figure(result, *column[:-1]) for column in MEASURED[series]]


def written(value):
    return "0" if value == 0 else three(value)


def measured(series):
    """The columns of MEASURED, a row for each result, and its commit."""
    rows = [["on the H200", *(title(*column) for column in MEASURED[series]), "commit"]]
    return rows + [[result["name"], *map(written, said(result, series)),
                    result["sessions"][-1]["commit"]] for result in results(series)]


def between_tokens(series):
    """The times between a decoding job's tokens: p50 / p99 of each row, in ms."""
    names = ("alone/{}@mps", "mps", "mps+priority", "gapfill@mps")
    rows = [["between tokens, ms: p50 / p99", *(name.format("…") for name in names), "commit"]]
    for result in results(series):
        for job in result["jobs"]:
            found = [result["figures"].get(name.format(job["name"]), {}).get("jobs", {})
                     .get(job["name"], {}).get("tbt_ms") for name in names]
            if any(found):
                rows.append([f"{result['name']}: {job['name']}",
                             *(f"{three(of['p50']['value'])} / {three(of['p99']['value'])}"
                               if of else "–" for of in found), result["sessions"][-1]["commit"]])
    return rows


# Files of these commits have a running total for gaps_filled, which is no count of their blocks.
UNCOUNTED = {"72d2e95", "c83a9a8", "b251113"}


def bound(result, row):
    """Of a row's blocks: what was stated at most, gaps, and those that exceeded it, by how much."""
    blocks = [block for block in result["raw"] if block["row"] == row]
    exceeded, gaps = (sum(block["counters"].get(of, 0) for block in blocks)
                      for of in ("bound_violations", "gaps_filled"))
    stated, by = (max((us for block in blocks if (us := block.get(key))), default=None)
                  for key in ("added_us_max", "exceeded_us_max"))
    return stated and [stated, gaps, exceeded, by]


def bounds(*series):
    """The bound per gap, as it was stated; how many gaps ended with something in the way, how many
    of those exceeded it, and by how much at most, as far as that was counted."""
    rows = [["the bound", "row", "commit", "stated at most, µs", "gaps", "exceeded", "of the gaps",
             "by at most, µs"]]
    for result in (of for name in series for of in results(name)):
        for row in (*RULERS, "fikit@mps"):
            found = computed(result, f"bound of {row}", lambda: bound(result, row))
            commit = result["sessions"][-1]["commit"]
            if found and commit not in UNCOUNTED:
                stated, gaps, exceeded, by = found
                rows.append([result["name"], f"`{row}`", commit, three(stated), f"{gaps:.0f}",
                             f"{exceeded:.0f}", f"{exceeded / gaps:.2%}" if gaps else "–",
                             three(by)])
    return rows
