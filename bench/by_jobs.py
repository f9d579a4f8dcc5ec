#!/usr/bin/env python3
"""The kernel scheduler's overhead by number of jobs (MMK's Fig. 10b): N processes of small models
on one GPU under MPS, under a policy and bare, in alternating blocks of one run for each N.

    by_jobs.py --out FOLDER [--jobs 1,2,4,8,16] [--sim] ...    measures; FOLDER/nN.json each
    by_jobs.py --table FOLDER                      prints the table, as bench/table.py has it

Half of the jobs are online, with Poisson arrivals; the others are offline, in closed loops. All
online jobs together get --arrivals a second, whatever N is: the number of jobs grows, not the load.

Rows: `mps` is bare. POLICY@mps is all jobs under it, and what it changes is its decisions too, not
overhead alone. With `daemon.contended_spin_us=0` heddled does not poll while launches wait.
POLICY@mps/JOB is that job with the GPU to itself, held against the same job bare: overhead alone.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from harness.figures import median_with_interval
from harness.md import computed, markdown, read

ROOT = Path(__file__).resolve().parents[1]
ONLINE = (("resnet18", 32), ("mobilenet_v2", 64))  # of bench/testbed.py, the shortest
OFFLINE = (("resnet50", 8), ("densenet121", 8))  # training
SPIN = ":daemon.contended_spin_us=0"
MOST_PROCESSES = 48  # clients of an MPS server


def jobs_of(count):
    """[(name, online, model, batch)]; of one job, the online one."""
    out = []
    for i in range(count):
        online, at = i % 2 == 0, i // 2
        model, batch = (ONLINE if online else OFFLINE)[at % 2]
        out.append((f"{'on' if online else 'off'}{at + 1}", online, model, batch))
    return out


def policies_of(count, options):
    """Each beside the others, without polling where there are others, and alone for --alone-at."""
    out = [f"{policy}@mps" for policy in options.policies]
    first = options.policies[0]
    if 1 < count and 3 * count <= MOST_PROCESSES - 1:  # bare, and of two daemons
        out.append(f"{first}{SPIN}@mps")
    if count == options.alone_at and count > 1:
        out += [f"{first}@mps/{name}" for name, *_ in jobs_of(count)]
    return out


def scenario(count, options):
    """The text of one; it stands in the result too."""
    jobs = jobs_of(count)
    online = sum(job[1] for job in jobs)
    text = (f'about = "{count} jobs: {online} online, {count - online} offline"\n'
            f"repetitions = {options.repetitions}\nblock_s = {options.block_s}\n"
            f"policies = {json.dumps(policies_of(count, options))}\nbaselines = [\"mps\"]\n")
    for name, first, model, batch in jobs:
        kind = (f'role = "latency"\narrivals = "poisson {options.arrivals / online:g}"' if first
                else 'role = "batch"\nmode = "training"')
        text += (f'[[job]]\nname = "{name}"\nworkload = "torchvision"\nmodel = "{model}"\n'
                 f"batch = {batch}\n{kind}\n[job.sim]\nkernels = {4 if first else 10}\n"
                 f"kernel_us = 500\nblocks = 132\npause_us = 100\n")
    return text


def measure(options):
    status = 0
    for count in options.jobs:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / f"n{count}.toml"
            file.write_text(scenario(count, options))
            command = [options.dist / "bin/heddle-bench", "run", file, "--skip-outputs", "--json",
                       options.out / f"n{count}.json",
                       *([] if count == options.alone_at else ["--skip-alone"]),
                       *(["--budget-s", options.budget_s] if options.budget_s else []),
                       *(["--device", "sim"] if options.sim else [])]
            done = subprocess.run([str(word) for word in command], text=True, capture_output=True)
        print(count, "jobs: rc", done.returncode, done.stderr[-400:], flush=True)
        status |= done.returncode
    return status


# ---- the table ----

def blocks_of(result, row):
    """{repetition: block}"""
    return {block["rep"]: block for block in result["raw"] if block["row"] == row}


def mean_of(blocks, value):
    found = [one for one in map(value, blocks.values()) if one is not None]
    return statistics.mean(found) if found else None


def against(result, row, bare, latency):
    """Mean iteration of online jobs, or throughput of offline ones, under `row` ÷ bare: the jobs'
    mean in a repetition; over repetitions the median and its interval. Who began nothing has a
    throughput of 0. An online job that nothing came to in the block is left out of it."""
    role = "latency" if latency else "batch"
    names = {job["name"] for job in result["jobs"] if job["role"] == role}
    ours, others = blocks_of(result, row), blocks_of(result, bare)
    ratios = []
    for rep in sorted(ours.keys() & others.keys()):
        pairs = [(job, others[rep]["jobs"].get(name, {"us": []}))
                 for name, job in ours[rep]["jobs"].items() if name in names]
        if latency:
            pairs = [pair for pair in pairs if pair[0]["us"] or pair[1]["us"]]
        whole = all(other["us"] and (mine["us"] or not latency) for mine, other in pairs)
        if pairs and whole:
            value = (lambda job: statistics.mean(job["us"])) if latency else rate
            ratios.append(statistics.mean(value(mine) / value(other) for mine, other in pairs))
    return median_with_interval(ratios)


def rate(job):
    return len(job["us"]) / job["span_s"] if job["us"] else 0


def change(found):
    """Of one repetition there is no interval."""
    if not found:
        return "–"
    bounds = f" [{found['lo'] - 1:+.1%}, {found['hi'] - 1:+.1%}]" if found["n"] > 1 else ""
    return f"{found['median'] - 1:+.1%}{bounds}"


def figures(result, row, bare):
    """Decisions a second and shares of the time, each against bare, and how many blocks."""
    blocks = blocks_of(result, row)
    shares = [mean_of(blocks, value) for value in (
        lambda b: b.get("daemon_cpu"),
        lambda b: sum(b["shim_cpu"].values()) if b.get("shim_cpu") else None,
        lambda b: max(0, b["counters"]["hooks_us"]) / 1e6 / b["counted_s"]
        if "hooks_us" in b.get("counters", {}) else None)]
    granted = mean_of(blocks, lambda b: b.get("counters", {}).get("granted", 0) / b["counted_s"])
    return blocks and [granted, shares, against(result, row, bare, True),
                       against(result, row, bare, False), len(blocks)]


def table(folder):
    """None without results."""
    results = sorted((read(path) for path in folder.glob("n*.json")),
                     key=lambda result: len(result["jobs"]))
    if not results:
        return None
    lines = []
    for result in results:
        for row in result["rows"]:
            if "policy" not in row:
                continue
            name, _, job = row["name"].partition("/")
            label = name.removesuffix("@mps").replace(SPIN, ", no polling")
            bare = f"alone/{job}@mps" if job else "mps"
            if job or len(result["jobs"]) == 1:
                label += ", alone" + (f": {job}" if job else "")
            found = computed(result, row["name"], lambda: figures(result, row["name"], bare))
            if not found:
                continue
            granted, shares, online, offline, count = found
            lines.append([f"{1 if job else len(result['jobs'])}, {label}", f"{granted:.0f}",
                          *("–" if share is None else f"{share:.3%}" for share in shares),
                          change(online), change(offline), str(count),
                          result["sessions"][0]["commit"][:7]])
    return [[f"{results[0]['gpu']}: jobs, policy", "decisions a second",
             "heddled's CPU ÷ time", "shim threads' CPU ÷ time", "in hooks ÷ time",
             "online mean ÷ bare [95 %]", "offline throughput ÷ bare [95 %]", "repetitions",
             "commit"], *lines]


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--out", type=Path)
    add("--table", type=Path)
    add("--dist", type=lambda text: Path(text).resolve(), default=ROOT / "dist")
    add("--jobs", type=lambda text: [int(n) for n in text.split(",")], default=[1, 2, 4, 8, 16])
    add("--policies", type=lambda text: text.split(","), default=["mmk"],
        help="mmk, priority, gapfill; apart by commas")
    add("--alone-at", type=int, default=4, help="the N whose jobs run alone too (4)")
    add("--arrivals", type=float, default=40, help="a second, of all online jobs (40)")
    add("--repetitions", type=int, default=8)
    add("--block-s", type=float, default=0.6)
    add("--budget-s", type=int, help="of each run: no repetition begins that would end later")
    add("--sim", action="store_true", help="on the simulated GPU: the logic")
    return parser.parse_args(arguments)


def main():
    options = parse(sys.argv[1:])
    if options.table:
        rows = table(options.table)
        print(markdown(rows[0], rows[1:]) if rows else "no results")
        return 0
    return measure(options) if options.out else "by_jobs.py: --out FOLDER or --table FOLDER"


if __name__ == "__main__":
    sys.exit(main())
