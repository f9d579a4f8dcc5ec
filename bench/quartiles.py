"""What the latency job takes in its faster iterations. On a virtual host whose processors change
their speed by half within milliseconds the mean of a few blocks says little; the first quartile of
all iterations, of a row over the bare process alone, has a third of that noise."""

import json
import statistics

ROWS = ("fikit@mps", "gapfill@mps")


def quartile(values):
    return statistics.quantiles(values, n=4)[0]


def figures(result):
    """By row: the quartile over the bare process alone, and best effort's rate over alone."""
    took, share = {}, {}
    for block in result["raw"]:
        for name, job in block["jobs"].items():
            if name == "H":
                took.setdefault(block["row"], []).extend(job["us"])
    for row in ROWS:
        rate = result["figures"].get(row, {}).get("jobs", {}).get("L", {}).get("per_s_over_alone")
        share[row] = rate["value"] if rate else 0
    alone = quartile(took["alone/H@mps"])
    return {row: (quartile(took[row]) / alone, share[row]) for row in ROWS if took.get(row)}


def rows(folders):
    """One a scenario, with the header first; of the commits that measured it, the oldest first."""
    found, commits = {}, []
    for folder in folders:
        for path in sorted(folder.glob("*.json")):
            result = json.loads(path.read_text())
            commit = result["sessions"][-1]["commit"]
            commits += [commit] * (commit not in commits)
            found.setdefault(result["name"], {})[commit] = figures(result)
    header = ["first quartile of H ÷ alone"]
    header += [f"`{row.removesuffix('@mps')}`, {commit}" for row in ROWS for commit in commits]
    out = [header]
    for name, by_commit in found.items():
        cells = [name]
        for row in ROWS:
            for commit in commits:
                took, share = by_commit.get(commit, {}).get(row, (None, None))
                best_effort = f", L {share:.2f}" if share else ""
                cells.append(f"{took:.3f}{best_effort}" if took else "–")
        out.append(cells)
    return out if found else None
