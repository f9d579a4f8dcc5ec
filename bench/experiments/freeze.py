#!/usr/bin/env python3
"""Keeps what virtual time had said of a series before it was measured.

    freeze.py                 of all series that a table sets beside what was measured
    freeze.py preempt steady  of these

results/simulated is made again at each change of a policy, after measurements too. So of each
result in results/SERIES its prediction is taken from the history: results/simulated/SERIES in the
last commit before the result's first session. Its figures that tables use (fikit.PREDICTED), its
seed, when it was simulated, with which commit, and in which it was committed, go to
results/predicted/SERIES.json. To be run once a series is measured and committed, in a clone with
the whole history; it says the same each time.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))

import fikit  # noqa: E402


def git(*arguments):
    return subprocess.run(["git", "-C", str(ROOT), *arguments], text=True, check=True,
                          env={**os.environ, "TZ": "UTC"}, stdout=subprocess.PIPE).stdout.strip()


def before(series, measured):
    """The prediction of a result, None if none was committed before it."""
    path = f"bench/results/simulated/{series}/{measured['name']}.json"
    begun = measured["sessions"][0]["date"]
    last = git("log", "-1", f"--before={begun}", "--date=format-local:%Y-%m-%dT%H:%M:%SZ",
               "--format=%h %cd", "--", path)
    if not last:
        return None
    commit, committed = last.split()
    simulated = json.loads(git("show", f"{commit}:{path}"))
    session = simulated["sessions"][-1]
    return {"commit": commit, "committed": committed, "seed": simulated["seed"],
            "simulated": session["date"], "simulated_with": session["commit"],
            "columns": [fikit.title(*column) for column in fikit.PREDICTED[series]],
            "said": [value if value is None else round(value, 4)
                     for value in fikit.said(simulated, series)]}


def main():
    (fikit.RESULTS / "predicted").mkdir(exist_ok=True)
    wanted = sys.argv[1:] or fikit.PREDICTED
    if unknown := [series for series in wanted if series not in fikit.PREDICTED]:
        sys.exit(f"freeze.py: {unknown[0]} is none of {', '.join(fikit.PREDICTED)}")
    for series in wanted:
        found = {of["name"]: prediction for of in fikit.results(series)
                 if (prediction := before(series, of))}
        text = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
        (fikit.RESULTS / f"predicted/{series}.json").write_text(text)
        commits = sorted({of["commit"] for of in found.values()})
        print(f"{series}: {len(found)} predictions of {', '.join(commits)}")


if __name__ == "__main__":
    main()
