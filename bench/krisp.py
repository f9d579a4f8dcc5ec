#!/usr/bin/env python3
"""KRISP's comparison (its section 6, Fig. 13 and Table IV): workers of one model on one GPU, under
its policies and ours, beside MPS and every model-wise layout.

    krisp.py --out FOLDER [--models A,B] [--batches 1,8,32] [--workers 4] [--sweep] ...
                     measures; FOLDER/MODEL-bsN-wN.json each, with the curves in FOLDER/profiles
    krisp.py --table FOLDER    prints the table, as bench/table.py has it

Batches 1 and 8 run as CUDA graphs, 32 eager. --sweep measures each model's curves first (`heddle
profile sweep`), which half of the policies need. All rows of a table alternate in one run.
"""

import argparse
import json
import math
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness.md import computed, markdown, read, results_in

ROOT = Path(__file__).resolve().parents[1]
MODELS = ("albert", "alexnet", "densenet201", "resnet152", "resnext101_32x8d",
          "shufflenet_v2_x1_0", "squeezenet1_0", "vgg19")
EAGER = 32  # from this batch on: as graphs the GPU is full, and nothing is to be gained
LAYOUTS = [f"model_right_size:sms={sms}@mps" for sms in (32, 48, 64, 96)]
POLICIES = ["mps_default@mps", "static_equal@mps", "model_right_size@mps", "ring_isolated@mps",
            "krisp_o@mps", "krisp_i@mps", "right_size@mps"]
BASELINES = ["mps", "mps:25"]
ALONE_S = 2.5  # of iterations at each size of a sweep


def scenario(model, batch, workers, options):
    """The text of one; committed with the result."""
    job = f"""
role = "batch"
workload = "torchvision"
model = "{model}"
batch = {batch}
graph = {str(batch < EAGER).lower()}
[job.sim]
kernels = 5
kernel_us = 1000
blocks = 60
pause_us = 100
"""
    return (f'about = "{workers} workers of {model}, batch {batch} '
            f'(KRISP, section 6)"\nrepetitions = {options.repetitions}\n'
            f"block_s = {options.block_s}\npolicies = {json.dumps(options.policies)}\n"
            f"baselines = {json.dumps(options.baselines)}\n"
            + "".join(f'[[job]]\nname = "w{i + 1}"{job}' for i in range(workers)))


def words_of(model, batch, options):
    """The command as heddle-bench starts it, so that the profile is found."""
    if options.sim:
        return [options.dist / "libexec/heddle/heddle-synthetic", "--kernels", "5", "--kernel-us",
                "1000", "--gap-us", "0", "--pause-us", "100", "--blocks", "60", "--seed", "1"]
    return ["python3", options.dist / "libexec/heddle/workloads/jobs.py", model, str(batch),
            "--graph", str(batch < EAGER).lower()]


def sweep(model, batch, options):
    """Curves into FOLDER/profiles; said, if it failed: policies then run without."""
    profiles = options.out / "profiles"
    profiles.mkdir(parents=True, exist_ok=True)
    command = [options.dist / "bin/heddle", "profile", "sweep", "--output", profiles, "--groups",
               options.groups,
               *(["--sim"] if options.sim else []), "--", sys.executable, __file__, "--alone",
               str(ALONE_S), *words_of(model, batch, options)]
    done = subprocess.run([str(word) for word in command], text=True, capture_output=True)
    print(done.stderr[-600:], flush=True)


def alone(seconds, words):
    """Plays a job by itself for so long."""
    job = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    job.stdout.readline()
    job.stdin.write(f"go {time.monotonic()} {seconds} 0 0\n")
    job.stdin.flush()
    job.stdout.readline()
    job.communicate("quit\n", timeout=60)
    return job.returncode


def measure(options):
    for model in options.models:
        for batch in options.batches:
            if options.sweep:
                sweep(model, batch, options)
            for workers in options.workers:
                name = f"{model}-bs{batch}-w{workers}"
                with tempfile.TemporaryDirectory() as folder:
                    file = Path(folder) / f"{name}.toml"
                    file.write_text(scenario(model, batch, workers, options))
                    profiles = options.out / "profiles"
                    command = [options.dist / "bin/heddle-bench", "run", file, "--json",
                               options.out / f"{name}.json", "--skip-outputs",
                               *(["--profiles", profiles] if profiles.exists() else []),
                               *(["--device", "sim"] if options.sim else [])]
                    done = subprocess.run([str(word) for word in command], text=True,
                                          capture_output=True)
                    print(name, "rc", done.returncode, done.stderr[-400:], flush=True)


# ---- the table ----

def summed(result, row):
    """(throughput, worst p95) of all workers ÷ alone in the same repetition, the median of
    repetitions; None where the row is not there. From the blocks, so that a run that was cut short
    counts too."""
    blocks = {}
    for block in result["raw"]:
        blocks.setdefault(block["row"], {})[block["rep"]] = block["jobs"]
    rates, tails = [], []
    for rep, jobs in blocks.get(row, {}).items():
        alone = {name: blocks.get(f"alone/{name}@mps", {}).get(rep, {}).get(name) for name in jobs}
        if not all(alone.values()) or not all(job.get("us") for job in jobs.values()):
            continue
        rates.append(sum(rate(job) / rate(alone[name]) for name, job in jobs.items()))
        tails.append(max(p95(job) / p95(alone[name]) for name, job in jobs.items()))
    return (statistics.median(rates), statistics.median(tails)) if rates else None


def rate(job):
    return len(job["us"]) / job["span_s"]


def p95(job):
    return sorted(job["us"])[len(job["us"]) * 95 // 100]


def table(folder):
    """Throughput ÷ one worker (the worst p95 ÷ alone's) of each model and policy."""
    results = results_in(folder)
    rows = [*BASELINES, *LAYOUTS, *POLICIES]
    lines, products, all_found = [], {}, []
    for result in results:
        found = {row: computed(result, f"summed {row}", lambda: summed(result, row))
                 for row in rows}
        layouts = [value for row, value in found.items() if row in LAYOUTS and value]
        found["best layout"] = max(layouts, default=None)
        all_found.append(found)
    columns = [row for row in COLUMNS if any(found.get(row) for found in all_found)]
    for result, found in zip(results, all_found):
        cells = [result["name"]]
        for row in columns:
            value = found.get(row)
            cells.append(f"{value[0]:.2f} ({value[1]:.2f})" if value else "–")
            if value:
                products.setdefault(row, []).append(value[0])
        lines.append([*cells, result["sessions"][0]["commit"]])
    if not lines:
        return None
    means = [math.exp(sum(map(math.log, products[row])) / len(products[row]))
             if len(products.get(row, ())) == len(results) else None for row in columns]
    lines.append(["geometric mean", *(f"{mean:.2f}" if mean else "–" for mean in means), ""])
    header = ["× one worker (worst p95 ÷ alone)",
              *(f"`{row.removesuffix('@mps')}`" for row in columns), "commit"]
    return [header, *lines]


COLUMNS = [*BASELINES, "best layout", *POLICIES]


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument

    def listed(kind):
        return lambda text: [kind(word) for word in text.split(",")]

    add("--out", type=Path)
    add("--table", type=Path)
    add("--dist", type=lambda text: Path(text).resolve(), default=ROOT / "dist")
    add("--models", type=listed(str), default=list(MODELS))
    add("--batches", type=listed(int), default=[1, 8, 32])
    add("--workers", type=listed(int), default=[4])
    add("--policies", type=lambda text: re.split(r"(?<=@mps),", text),
        default=[*LAYOUTS, *POLICIES])
    add("--baselines", type=listed(str), default=BASELINES)
    add("--repetitions", type=int, default=3)
    add("--block-s", type=float, default=1)
    add("--sweep", action="store_true")
    add("--groups", default="1,2,4,8,12", help="of the sweep")
    add("--sim", action="store_true")
    return parser.parse_args()


def main():
    if sys.argv[1:2] == ["--alone"]:
        return alone(float(sys.argv[2]), sys.argv[3:])
    options = parse()
    if options.table:
        rows = table(options.table)
        print(markdown(rows[0], rows[1:]) if rows else "no results")
        return 0
    if not options.out:
        sys.exit("krisp.py: --out FOLDER or --table FOLDER")
    measure(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
