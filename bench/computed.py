#!/usr/bin/env python3
"""Results that are computed, without a GPU, and their tables. table.py --keep makes them small.

    computed.py pairs FITTED.json OTHERS.json   writes results/pairs/evaluation.json
    computed.py jobs [--only BEGIN]             writes results/jobs.json, in a few minutes

pairs: the interference estimator against pairs that were measured (`heddle-bench pairs`, metrics in
NAME.ncu.csv): those that its constants were fitted to, and others, of other kernels. A pair counts
twice: each of the two is a victim once. Buckets are of measured slowdown. Where the estimator says
unknown, its guess counts as one, and pairs are ranked by it; no rule puts the two together.

jobs: `heddle plan` (predict, placements, simulate) and one scenario in virtual time, for JOBS.md.
Everything that simulate says is simulated. No figure of it stands in a table without that word.
"""

import argparse
import itertools
import json
import math
import random
import statistics
import subprocess
import tempfile
from pathlib import Path

from harness import report
from harness.md import NO_RESULT, RESULTS, markdown, read

PAIRS = RESULTS / "pairs"
BUCKETS = ((0, 1.1), (1.1, 1.5), (1.5, 1e9))
SAFE = 1.1  # a victim that is slowed less is no victim
BOUND_PCT = 60  # policies/papers/orion.lua
DRAWS, CANDIDATES, SEED = 200, 20, 27


def heddle_says(heddle, source):
    """A result's pairs with what is predicted, and its kernels with their metrics."""
    report = source.with_suffix(".ncu.csv")
    model = RESULTS.parents[1] / "profiles/gpu/nvidia-h100.toml"

    def answer(*words):
        done = subprocess.run([heddle, "--json", "profile", *map(str, words)], check=True,
                              capture_output=True, text=True)
        return json.loads(done.stdout)
    said = answer("predict-pairs", source, "--metrics", report, "--gpu-model", model)
    metrics = {(k["name"], k["grid_blocks"], k["block_threads"]): k["metrics"]
               for k in answer("import-ncu", report)["kernels"]}
    kernels = json.loads(source.read_text())["kernels"]
    for kernel, use in zip(kernels, said["kernels"]):
        key = kernel["name"], kernel["grid_blocks"], kernel["block_threads"]
        kernel.update(use=use or {}, metrics=metrics.get(key, {}))
    return kernels, said["pairs"]


def victims(kernels, pairs):
    """Each victim of each pair: kernels, measured, what methods say."""
    for pair in pairs:
        for i, of in enumerate(("first", "second")):
            other = pair[("first", "second")[1 - i]]
            yield {"victim": kernels[pair[of]], "other": kernels[other],
                   "halves": pair["setting"] == "halves", "measured": pair["measured"][i],
                   "estimator": pair["predicted"][i], "known": pair["known"][i]}


# ---- baselines ----------------------------------------------------------------------------------

def features(row):
    own, other = row["victim"], row["other"]
    longer = math.log(other["alone_us"] / own["alone_us"])
    found = [1, row["halves"], longer, 0 if row["halves"] else longer]
    for channel in ("issue", "smem", "l2", "dram"):
        found += [own["use"].get(channel, 0), other["use"].get(channel, 0)]
    return [float(x) for x in found]


def solve(matrix, vector):
    """Gauss with pivots."""
    n = len(vector)
    rows = [list(row) + [value] for row, value in zip(matrix, vector)]
    for i in range(n):
        pivot = max(range(i, n), key=lambda r: abs(rows[r][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for r in range(n):
            if r != i and rows[i][i]:
                factor = rows[r][i] / rows[i][i]
                rows[r] = [a - factor * b for a, b in zip(rows[r], rows[i])]
    return [row[n] / row[i] if row[i] else 0 for i, row in enumerate(rows)]


def linear(rows):
    """Weights of ordinary least squares, for the logarithm of the slowdown."""
    x = [features(row) for row in rows]
    n = len(x[0])
    square = [[sum(f[i] * f[j] for f in x) + (i == j) * 1e-9 for j in range(n)] for i in range(n)]
    return solve(square, [sum(f[i] * math.log(row["measured"]) for f, row in zip(x, rows))
                          for i in range(n)])


def methods(fitted):
    """Name -> slowdown of a row. What is fitted saw the fitted pairs alone."""
    mean = sum(row["measured"] for row in fitted) / len(fitted)
    weights = linear(fitted)
    return {
        "the estimator": lambda row: row["estimator"],
        "where it says that it knows": lambda row: row["estimator"] if row["known"] else None,
        "linear model": lambda row: math.exp(sum(w * f for w, f in zip(weights, features(row)))),
        "always 1.0": lambda row: 1.0,
        "always the mean": lambda row: mean,
    }


def bucket_rows(rows, method):
    found = []
    for low, high in BUCKETS:
        said = [(method(row), row["measured"]) for row in rows if low <= row["measured"] < high]
        errors = [(slowdown - measured, measured) for slowdown, measured in said
                  if slowdown is not None]
        count = max(1, len(errors))
        found.append({"count": len(said), "unknown": len(said) - len(errors),
                      "within_5": sum(abs(e) <= 0.05 * m for e, m in errors) / count,
                      "within_10": sum(abs(e) <= 0.10 * m for e, m in errors) / count,
                      "mean_error": sum(abs(e) for e, _ in errors) / count})
    return found


# ---- who may run beside whom --------------------------------------------------------------------

def orion(row):
    """policies/papers/orion.lua: the other needs few SMs, and is of the other kind."""
    def kind(kernel):
        m = kernel["metrics"]
        compute = max(m.get("fma_pct", 0), m.get("fp64_pct", 0), m.get("tensor_pct", 0))
        memory = m.get("dram_pct", 0)
        if compute >= BOUND_PCT and compute >= memory:
            return "compute"
        return "memory" if memory >= BOUND_PCT else None
    other = row["other"]
    few = other["grid_blocks"] / max(1, other["blocks_per_sm"]) < 132
    return few and not (kind(other) and kind(other) == kind(row["victim"]))


def usher(row):
    """policies/papers/usher.lua: achieved occupancies and DRAM use add up to less than all."""
    def total(key):
        return sum(row[k]["metrics"].get(key, 100) for k in ("victim", "other"))
    return total("occupancy_pct") < 100 and total("dram_pct") < 100


RULES = {"the estimator, below 1.1": lambda row: row["known"] and row["estimator"] < SAFE,
         "Orion's rule": orion, "Usher's rule": usher}


def rule_row(rows, rule):
    said = [(rule(row), row["measured"] < SAFE) for row in rows]
    return {"safe": sum(s for s, _ in said), "false_safe": sum(s and not t for s, t in said),
            "false_unsafe": sum(t and not s for s, t in said),
            "harmless": sum(t for _, t in said), "count": len(said)}


# ---- which pairs ---------------------------------------------------------------------------------

def stp(pair, key):
    return sum(1 / s for s in pair[key])


def tau(a, b):
    """Kendall's."""
    signs = [((x > y) - (x < y)) * ((u > v) - (u < v))
             for (x, u), (y, v) in itertools.combinations(list(zip(a, b)), 2)]
    return sum(signs) / len(signs)


def choice(pairs):
    """Of 20 candidates, drawn again and again: the ranking, and what the better half gains."""
    chance, taus, gains = random.Random(SEED), [], []
    for _ in range(DRAWS):
        drawn = chance.sample(pairs, CANDIDATES)
        said, true = [stp(p, "predicted") for p in drawn], [stp(p, "measured") for p in drawn]
        taus.append(tau(said, true))
        best = sorted(zip(said, true), reverse=True)[:CANDIDATES // 2]
        gains.append(sum(t for _, t in best) / len(best) / (sum(true) / len(true)) - 1)
    taus.sort()
    return {"draws": DRAWS, "candidates": CANDIDATES, "tau": sum(taus) / DRAWS,
            "tau_p10": taus[DRAWS // 10], "gain": sum(gains) / DRAWS}


def evaluate(heddle, paths):
    data = {path.stem: heddle_says(heddle, path) for path in paths}
    fitted, held_out = data
    rows = {name: list(victims(*of)) for name, of in data.items()}
    found = {"benchmark": "estimator", "mode": "computed", "fitted": fitted,
             "held_out": held_out, "sets": {}}
    for name, of in rows.items():
        together = [row for row in of if not row["halves"]]
        found["sets"][name] = {
            "victims": len(of),
            "methods": {m: bucket_rows(of, f) for m, f in methods(rows[fitted]).items()},
            "rules": {r: rule_row(together, f) for r, f in RULES.items()},
            "choice": {setting: choice([p for p in data[name][1] if p["setting"] == setting])
                       for setting in ("all", "halves")}}
    return found


def estimator_tables():
    path = PAIRS / "evaluation.json"
    if not path.exists():
        return dict.fromkeys(("estimator", "rules", "choice"), NO_RESULT)
    found = read(path)
    held = found["sets"][found["held_out"]]
    cells = []
    for method, buckets in held["methods"].items():
        mean = {k: sum(b[k] for b in buckets) / len(buckets) for k in ("within_5", "within_10")}
        cells.append([method, *(f"{b['within_5']:.0%} / {b['within_10']:.0%}" for b in buckets),
                      f"{mean['within_5']:.0%} / {mean['within_10']:.0%}",
                      *(f"{b['mean_error']:.2f}" for b in buckets),
                      str(sum(b["unknown"] for b in buckets))])
    counts = [b["count"] for b in next(iter(held["methods"].values()))]
    names = ["< 1.1", "1.1–1.5", "> 1.5"]
    estimator = markdown(["within 5 % / 10 % of the measured slowdown",
                          *(f"{n} ({c})" for n, c in zip(names, counts)), "mean of the three",
                          *(f"mean error, {n}" for n in names), "unknown"], cells)
    rules = markdown(["a victim beside another, all SMs", "said to be harmless", "of those harmful",
                      "harmless, and refused"],
                     [[r, f"{v['safe']} of {v['count']}", f"{v['false_safe']}",
                       f"{v['false_unsafe']} of {v['harmless']}"]
                      for r, v in held["rules"].items()])
    choices = markdown(["20 candidate pairs, by throughput", "Kendall's tau", "a tenth is below",
                        "the better half gains"],
                       [[{"all": "both on all SMs", "halves": "each on its half"}[s],
                         f"{c['tau']:.2f}", f"{c['tau_p10']:.2f}", f"{c['gain']:+.1%}"]
                        for s, c in held["choice"].items()])
    return {"estimator": estimator, "rules": rules, "choice": choices}


# ---- jobs ----------------------------------------------------------------------------------------

JOBS = RESULTS / "jobs.json"
TABLES = Path(__file__).resolve().parent.parent / "profiles" / "jobs"
# The forest's settings were chosen on seeds 1 to 5: the figures are of others.
PREDICT_SEED = "11"
MAIN = ["default", "mps", "miso", "miger", "mmk", "heddle-fcfs", "heddle"]
# MMK's test bed, on one GPU: 60 jobs, an arrival every 40 s.
BED = ["--online", "40", "--offline", "20", "--gpus", "1", "--interval", "40", "--seeds", "20"]
BED_ROWS = ["default", "mps", "mmk-no-ks", "mmk", "heddle", "miso", "miger"]
# MMK's DURATION, which its paper does not print, by the policy itself in virtual time.
DURATION = ["virtual", "come_and_go.toml", "--seed", "1", "--block-s", "600",
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
    return found


def run(heddle, only):
    for name, arguments in commands().items():
        if not name.startswith(only):
            continue
        done = subprocess.run([heddle, "--json", "plan", *arguments], capture_output=True,
                              text=True, check=True)
        said = json.loads(done.stdout.replace(str(TABLES), "profiles/jobs"))
        shown = [argument.replace(str(TABLES), "profiles/jobs") for argument in arguments]
        document = {"mode": "computed", **said, "command": "heddle plan " + " ".join(shown)}
        save(name, document)


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
    scenario = TABLES.parents[1] / "bench" / "scenarios" / DURATION[1]
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "raw.json"
        subprocess.run([bench, DURATION[0], scenario, *DURATION[2:], "--json", raw],
                       capture_output=True, check=True)
        rows = ended(json.loads(raw.read_text()))
    save("duration", {"mode": "simulated", "rows": rows,
                      "command": "heddle-bench " + " ".join(DURATION)})


def save(name, document):
    documents = json.loads(JOBS.read_text()) if JOBS.exists() else {}
    report.write(documents | {name: document}, JOBS)
    print(name, flush=True)


def load(name):
    return read(JOBS).get(name) if JOBS.exists() else None


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
             against(of[policy], of["mps"], "jct_s") if "mps" in of else "–",
             *(against(of[policy], of["miger"], key) if "miger" in of else "–"
               for key in ("jct_s", "makespan_s", "stp"))]
            for policy in policies if policy in of]
    return markdown(["simulated", "JCT, s", "of online jobs", "makespan, s", "STP a GPU", "ANTT",
                     "queueing, s", "MIG / restarts", "JCT ÷ plain MPS", "JCT ÷ MIGER", "makespan",
                     "STP"], rows)


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


STUDENT_95 = {3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571}  # by the number of values


def placements_table():
    document = load("placements-h100")
    if not document:
        return NO_RESULT
    rounds = document["rounds"]
    common = [row for row in rounds if sum(row["shares"]) > 1]

    def cell(of, judge):
        stp, random = (sum(row[by] for row in of) / len(of) for by in (judge, "random"))
        return f"{stp:.3f} ({stp / random - 1:+.1%})"

    def interval(judge):
        """Of the gain over the mean of all, by groups: their rounds are of the same pairs."""
        gains = {}
        for row in rounds:
            gains.setdefault(row["group"], []).append(row[judge] / row["random"] - 1)
        means = [statistics.mean(of) for of in gains.values()]
        half = STUDENT_95[len(means)] * statistics.stdev(means) / math.sqrt(len(means))
        return f"{statistics.mean(means) - half:+.1%} to {statistics.mean(means) + half:+.1%}"

    rows = [[label, cell(rounds, judge), interval(judge), cell(common, judge)] for judge, label in (
        ("best", "the best placement, known afterwards"),
        ("measured", "the same pairs, measured at other shares"),
        ("seen", "the forest, which has seen the same pairs at other shares"),
        ("forest", "the forest, which has seen none of the pairs"),
        ("rule", "the rule of cluster.h"),
        ("random", "nobody: the mean of all placements"),
        ("worst", "the worst placement"))]
    return markdown(["chosen by", f"measured sum of paces a GPU: {len(rounds)} rounds",
                     "95 % of the gain, by groups of jobs",
                     f"{len(common)} rounds whose sides have SMs in common"], rows)


def duration_table():
    document = load("duration")
    if not document:
        return NO_RESULT
    rows = [[row, *(f"{of[key]:.2f}" for key in ("jct_s", "online_s", "offline_s")),
             str(of["jobs"])] for row, of in document["rows"].items()]
    return markdown(["simulated", "JCT, s", "of online jobs", "offline", "jobs"], rows)


def job_tables():
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
            "cdf": cdf_table("simulate-60"), "error": error_table(),
            "placements": placements_table()}


def tables():
    return {**estimator_tables(), **job_tables()}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("pairs", "jobs"))
    parser.add_argument("results", nargs="*", type=Path, help="of pairs: fitted, others")
    parser.add_argument("--only", default="", help="results whose names begin so")
    parser.add_argument("--heddle", default=RESULTS.parents[1] / "dist/bin/heddle")
    options = parser.parse_args()
    if options.what == "pairs":
        if len(options.results) != 2:
            parser.error("pairs: two results")
        found = evaluate(options.heddle, options.results)
        (PAIRS / "evaluation.json").write_text(json.dumps(found, indent=1) + "\n")
        return
    run(options.heddle, options.only)
    if "duration".startswith(options.only):
        run_duration(f"{options.heddle}-bench")


if __name__ == "__main__":
    main()
