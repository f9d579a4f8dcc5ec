#!/usr/bin/env python3
"""The interference estimator against pairs that were measured (`heddle-bench pairs`, metrics in
NAME.ncu.csv): those that its constants were fitted to, and others, of other kernels.

    evaluate.py --run FITTED.json OTHERS.json    writes results/pairs/evaluation.json, no GPU
    evaluate.py --table                          prints it; bench/table.py has it as `estimator`

A pair counts twice: each of the two is a victim once. Buckets are of measured slowdown. Where the
estimator says unknown, there is no error of it, and nobody is put together.
"""

import argparse
import itertools
import json
import math
import random
import subprocess
import sys
from pathlib import Path

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
                   "estimator": pair["predicted"][i]}


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


RULES = {"the estimator, below 1.1": lambda row: (row["estimator"] or SAFE) < SAFE,
         "Orion's rule": orion, "Usher's rule": usher}


def rule_row(rows, rule):
    said = [(rule(row), row["measured"] < SAFE) for row in rows]
    return {"safe": sum(s for s, _ in said), "false_safe": sum(s and not t for s, t in said),
            "false_unsafe": sum(t and not s for s, t in said),
            "harmless": sum(t for _, t in said), "count": len(said)}


# ---- which pairs ---------------------------------------------------------------------------------

def stp(pair, key):
    return sum(1 / (s or math.inf) for s in pair[key])


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


# ---- the tables ----------------------------------------------------------------------------------

def tables():
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


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", nargs=2, type=Path, metavar="FILE",
                        help="compute, and keep the result")
    parser.add_argument("--table", action="store_true", help="print the tables")
    parser.add_argument("--heddle", default=RESULTS.parents[1] / "dist/bin/heddle")
    options = parser.parse_args()
    if options.run:
        found = evaluate(options.heddle, options.run)
        (PAIRS / "evaluation.json").write_text(json.dumps(found, indent=1) + "\n")
    if options.table:
        print("\n\n".join(tables().values()))
    return 0 if options.run or options.table else parser.error("--run or --table")


if __name__ == "__main__":
    sys.exit(main())
