"""What best effort gets at the same slowdown of the latency job: gapfill against MPS with client
priority, thread percentages and splits. The goal: nowhere 2 % less, and 10 % more at 1.05, 1.1 and
1.2 (DESIGN)."""

import json

SLOWDOWNS = (1.05, 1.1, 1.2)
STATIC = ("mps+priority", "mps:", "split:")


def points(result, chosen):
    """(slowdown, share) of the rows whose names begin so."""
    jobs = {job["role"]: job["name"] for job in result["jobs"]}
    out = []
    for name, row in result["figures"].items():
        latency, batch = (row["jobs"].get(jobs[role], {}) for role in ("latency", "batch"))
        if name.startswith(chosen) and "mean_over_alone" in latency:
            out.append((latency["mean_over_alone"]["value"], batch["per_s_over_alone"]["value"]))
    return out


def best(found, slowdown):
    """The most that best effort gets where the latency job takes no longer; 0: nowhere."""
    return max((share for took, share in found if took <= slowdown), default=0)


def row_of(result):
    ours, static = points(result, "gapfill"), points(result, STATIC)
    cells = [result["name"]]
    for slowdown in SLOWDOWNS:
        mine, theirs = best(ours, slowdown), best(static, slowdown)
        ratio = f" ({mine / theirs:.2f})" if theirs else ""
        cells.append(f"{mine:.3f} against {theirs:.3f}{ratio}")
    lowest = min((best(ours, took) / share, took) for took, share in static if share)
    return [*cells, f"{lowest[0]:.2f} at {lowest[1]:.2f}"]


def rows(folder):
    """One a scenario, with the header first; None if there are no results."""
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    if not found:
        return None
    header = ["best effort, `gapfill` against the best static setting",
              *(f"H at most {slowdown}" for slowdown in SLOWDOWNS), "lowest ratio, H at"]
    return [header, *(row_of(result) for result in found)]
