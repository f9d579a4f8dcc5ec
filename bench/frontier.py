"""What best effort gets at the same slowdown of the latency job: gapfill against MPS with client
priority, thread percentages and splits. The goal: nowhere 2 % less, and 10 % more at 1.05, 1.1 and
1.2."""

from md import results_in

SLOWDOWNS = (1.05, 1.1, 1.2)
STATIC = ("mps+priority", "mps:", "split:")


def of_means(result):
    """The latency job's slowdown by row."""
    latency = next(job["name"] for job in result["jobs"] if job["role"] == "latency")
    found = {name: row["jobs"].get(latency, {}).get("mean_over_alone")
             for name, row in result["figures"].items()}
    return {name: figure["value"] for name, figure in found.items() if figure}


def points(result, slowdowns, chosen):
    """(slowdown, share) of the rows whose names begin so."""
    batch = next(job["name"] for job in result["jobs"] if job["role"] == "batch")
    return [(took, result["figures"][name]["jobs"][batch]["per_s_over_alone"]["value"])
            for name, took in slowdowns.items() if name.startswith(chosen)]


def best(found, slowdown):
    """The most that best effort gets where the latency job takes no longer; 0: nowhere."""
    return max((share for took, share in found if took <= slowdown), default=0)


def row_of(result):
    slowdowns = of_means(result)
    ours, static = (points(result, slowdowns, rows) for rows in ("gapfill", STATIC))
    cells = [result["name"]]
    for slowdown in SLOWDOWNS:
        mine, theirs = best(ours, slowdown), best(static, slowdown)
        ratio = f" ({mine / theirs:.2f})" if theirs else ""
        cells.append(f"{mine:.3f} against {theirs:.3f}{ratio}")
    lowest = min((best(ours, took) / share, took) for took, share in static if share)
    return [*cells, f"{lowest[0]:.2f} at {lowest[1]:.2f}"]


def rows(folder):
    """One a scenario, with the header first; None if there are no results."""
    found = results_in(folder)
    if not found:
        return None
    header = ["best effort, `gapfill` against the best static setting",
              *(f"H at most {slowdown}" for slowdown in SLOWDOWNS), "lowest ratio, H at"]
    return [header, *map(row_of, found)]
