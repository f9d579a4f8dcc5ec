#!/usr/bin/env python3
"""Job results: runs `heddle plan` (predict, placements, simulate) and one scenario in virtual time,
and has the tables of JOBS.md.

    jobs.py [--heddle dist/bin/heddle]   writes results/jobs/*.json (a few minutes, no GPU), which
                                         keep.py makes small

Everything that simulate says is simulated. No figure of it stands in a table without that word.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

from harness import report
from harness.md import NO_RESULT, RESULTS, markdown, read

JOBS = RESULTS / "jobs"
TABLES = Path(__file__).resolve().parent.parent / "profiles" / "jobs"
# The forest's settings were chosen on seeds 1 to 5: the figures are of others.
PREDICT_SEED = "11"
MAIN = ["default", "mps", "miso", "miger", "mmk", "heddle-fcfs", "heddle"]
# MMK's test bed, on one GPU: 60 jobs, an arrival every 40 s.
BED = ["--online", "40", "--offline", "20", "--gpus", "1", "--interval", "40", "--seeds", "20"]
BED_ROWS = ["default", "mps", "mmk-no-ks", "mmk", "heddle", "miso", "miger"]
# MMK's DURATION, which its paper does not print, by the policy itself in virtual time.
DURATION = ["virtual", "come_and_go.toml", "--pair", "calm", "--seed", "1", "--block-s", "600",
            "--policies", ",".join([*(f"mmk:duration_us={us}@mps" for us in (
                100, 1000, 20000, 1000000)), "gapfill@mps", "auto@mps"])]
PAPER_LEARNERS = {"svr": "27.2 / 27.08", "linear": "21.7 / 20.01", "perceptron": "11.1 / 4.65",
                  "forest": "3.60 / 3.51"}


def commands():
    """Result name -> arguments of `heddle plan`."""
    parva, miso = str(TABLES / "parvagpu"), str(TABLES / "miso")
    simulate = ["simulate", "--data", parva]
    found = {
        "predict-parvagpu": ["predict", "--data", parva, "--seed", PREDICT_SEED],
        "predict-miso": ["predict", "--data", miso, "--seed", PREDICT_SEED],
        "simulate-miso-60": ["simulate", "--data", miso, "--policy", ",".join(MAIN), "--interval",
                             "60"],
    }
    if (TABLES / "h100").is_dir():  # of `heddle-bench collect`
        found["predict-h100"] = ["predict", "--data", str(TABLES / "h100"), "--seed", PREDICT_SEED]
        found["placements-h100"] = ["placements", "--data", str(TABLES / "h100"), "--seed",
                                    PREDICT_SEED]
        found["simulate-h100-60"] = ["simulate", "--data", str(TABLES / "h100"), "--policy",
                                     ",".join(MAIN), "--interval", "60"]
    found["testbed-60"] = [*simulate, *BED, "--policy", ",".join(BED_ROWS)]
    for interval in ("40", "60", "80"):
        found[f"simulate-{interval}"] = [*simulate, "--interval", interval]
    for error in ("0", "3.5", "10", "20"):
        found[f"error-{error}"] = [*simulate, "--interval", "60", "--error", error, "--policy",
                                   "miso,miger,mmk,heddle"]
    for judge, options in {"forest": [], "exact": ["--error", "0"],
                           "estimator": ["--estimator"]}.items():
        found[f"pairs-{judge}"] = [*simulate, "--interval", "80", *options, "--policy",
                                   "pairs-first,pairs-random,pairs-estimate"]
    return found


def run(heddle, only):
    for name, arguments in commands().items():
        if not name.startswith(only):
            continue
        done = subprocess.run([heddle, "--json", "plan", *arguments], capture_output=True,
                              text=True, check=True)
        said = json.loads(done.stdout.replace(str(TABLES), "profiles/jobs"))
        document = {"benchmark": f"jobs-{name}", **said}
        shown = [argument.replace(str(TABLES), "profiles/jobs") for argument in arguments]
        document["command"] = "heddle plan " + " ".join(shown)
        if document.get("mode") != "simulated":
            document["mode"] = "computed"
        report.write(document, JOBS / f"{name}.json")
        print(name, flush=True)


def ended(result):
    """Of each row the jobs that ended and the mean seconds from their arrival."""
    online = {job["name"] for job in result["jobs"] if job["role"] == "latency"}
    rows = {}
    for block in result["raw"]:
        of = rows.setdefault(block["row"], {"online": [], "offline": []})
        for name, job in block["jobs"].items():
            of["online" if name in online else "offline"] += job["us"]
    return {row: {"jobs": len(all_us := of["online"] + of["offline"]),
                  "jct_s": statistics.mean(all_us) / 1e6,
                  **{f"{kind}_s": statistics.mean(us) / 1e6 for kind, us in of.items()}}
            for row, of in rows.items() if not row.startswith(("alone/", "oracle"))}


def run_duration(bench):
    raw = JOBS / "duration.raw"
    scenario = TABLES.parents[1] / "bench" / "scenarios" / DURATION[1]
    try:
        subprocess.run([bench, DURATION[0], scenario, *DURATION[2:], "--json", raw],
                       capture_output=True, check=True)
        rows = ended(json.loads(raw.read_text()))
    finally:
        raw.unlink(missing_ok=True)
    document = {"benchmark": "jobs-duration", "mode": "simulated", "rows": rows,
                "command": "heddle-bench " + " ".join(DURATION)}
    (JOBS / "duration.json").write_text(json.dumps(document, indent=1) + "\n")
    print("duration", flush=True)


def load(name):
    path = JOBS / f"{name}.json"
    return read(path) if path.exists() else None


def predict_table(name):
    document = load(name)
    if not document:
        return NO_RESULT
    splits = list(dict.fromkeys(row["split"] for row in document["errors"]))
    of = {(row["learner"], row["features"], row["split"]): row for row in document["errors"]}
    rows = []
    for learner, features in dict.fromkeys(key[:2] for key in of):
        cells = [of[learner, features, split] for split in splits]
        paper = PAPER_LEARNERS.get(learner, "–") if features == "table-one" else "–"
        label = learner if features == "-" else f"{learner}, {features}"
        rows.append([label, *(f"{100 * c['absolute']:.1f} / {100 * c['relative']:.1f}"
                              for c in cells), paper])
    return markdown([f"{document['source']}: absolute / relative error, %", *splits,
                     "MMK's Table IV"], rows)


def mean(row, key, digits=0, times=1):
    figure = row[key]
    text = f"{times * figure['mean']:.{digits}f}"
    return f"{text} ± {times * figure['ci95']:.{digits}f}" if "ci95" in figure else text


def against(row, other, key):
    return f"{row[key]['mean'] / other[key]['mean'] - 1:+.0%}"


def simulate_table(name, policies):
    document = load(name)
    if not document:
        return NO_RESULT
    of = {row["policy"]: row for row in document["policies"]}
    rows = [[policy, mean(of[policy], "jct_s"), mean(of[policy], "online_jct_s"),
             mean(of[policy], "makespan_s"), mean(of[policy], "stp", 2),
             mean(of[policy], "antt", 1), mean(of[policy], "queueing_s"),
             f"{of[policy]['mig_part']['mean']:.1%} / {of[policy]['checkpoint_part']['mean']:.1%}",
             *(against(of[policy], of["miger"], key) if "miger" in of else "–"
               for key in ("jct_s", "makespan_s", "stp"))]
            for policy in policies if policy in of]
    return markdown(["simulated", "JCT, s", "of online jobs", "makespan, s", "STP a GPU", "ANTT",
                     "queueing, s", "MIG / restarts", "JCT ÷ MIGER", "makespan", "STP"], rows)


def cdf_table(name):
    document = load(name)
    if not document:
        return NO_RESULT
    keys = ("relative_p50", "relative_p90", "relative_p99", "relative_worst")
    rows = [[row["policy"], *(mean(row, key, 1) for key in keys)]
            for row in document["policies"] if row["policy"] in MAIN]
    return markdown(["simulated: JCT ÷ alone", "p50", "p90", "p99", "worst job"], rows)


def error_table():
    documents = {error: load(f"error-{error}") for error in ("0", "3.5", "10", "20")}
    if not all(documents.values()):
        return NO_RESULT
    policies = [row["policy"] for row in documents["0"]["policies"]]
    rows = []
    for i, policy in enumerate(policies):
        rows.append([policy, *(mean(document["policies"][i], "jct_s")
                               for document in documents.values())])
    return markdown(["simulated JCT, s; judge off by", *(f"{e} %" for e in documents)], rows)


def pairs_table():
    found = {judge: load(f"pairs-{judge}") for judge in ("forest", "exact", "estimator")}
    if not all(found.values()):
        return NO_RESULT
    rows = []
    for row in found["forest"]["policies"][:2]:
        rows.append([row["policy"], mean(row, "jct_s"), mean(row, "makespan_s"),
                     mean(row, "antt", 2)])
    for judge, document in found.items():
        row = document["policies"][2]
        rows.append([f"pairs-estimate, {judge}", mean(row, "jct_s"), mean(row, "makespan_s"),
                     mean(row, "antt", 2)])
    return markdown(["simulated", "JCT, s", "makespan, s", "ANTT"], rows)


def placements_table():
    document = load("placements-h100")
    if not document:
        return NO_RESULT
    rounds = document["rounds"]
    common = [row for row in rounds if sum(row["shares"]) > 1]

    def cell(of, judge):
        stp, random = (sum(row[by] for row in of) / len(of) for by in (judge, "random"))
        return f"{stp:.3f} ({stp / random - 1:+.1%})"

    rows = [[label, cell(rounds, judge), cell(common, judge)] for judge, label in (
        ("best", "the best placement, known afterwards"),
        ("measured", "the same pairs, measured at other shares"),
        ("forest", "the forest, which has seen none of the pairs"),
        ("rule", "the rule of truth.h"),
        ("estimator", "core's interference estimator"),
        ("random", "nobody: the mean of all placements"),
        ("worst", "the worst placement"))]
    return markdown(["chosen by", f"measured sum of paces a GPU: {len(rounds)} rounds",
                     f"{len(common)} rounds whose sides have SMs in common"], rows)


def duration_table():
    document = load("duration")
    if not document:
        return NO_RESULT
    rows = [[row, *(f"{of[key]:.2f}" for key in ("jct_s", "online_s", "offline_s")),
             str(of["jobs"])] for row, of in document["rows"].items()]
    return markdown(["simulated", "JCT, s", "of online jobs", "offline", "jobs"], rows)


def tables():
    ablation = ["mmk-7g", "mmk-no-ks", "mmk"]
    return {"predict-parvagpu": predict_table("predict-parvagpu"),
            "predict-miso": predict_table("predict-miso"),
            "predict-h100": predict_table("predict-h100"),
            **{f"simulate-{i}": simulate_table(f"simulate-{i}", MAIN) for i in ("40", "60", "80")},
            "simulate-miso-60": simulate_table("simulate-miso-60", MAIN),
            "simulate-h100-60": simulate_table("simulate-h100-60", MAIN),
            "testbed-60": simulate_table("testbed-60", BED_ROWS),
            "duration-simulated": duration_table(),
            "ablation": simulate_table("simulate-60", ablation),
            "cdf": cdf_table("simulate-60"), "error": error_table(), "pairs": pairs_table(),
            "placements": placements_table()}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="results whose names begin so")
    parser.add_argument("--heddle", default="dist/bin/heddle")
    options = parser.parse_args()
    run(options.heddle, options.only)
    if "duration".startswith(options.only):
        run_duration(f"{options.heddle}-bench")


if __name__ == "__main__":
    sys.exit(main())
