#!/usr/bin/env python3
"""Thirty jobs in a real Slurm of four nodes with a simulated GPU each: first fit, the least loaded
node, and the pairs of `heddle plan`. By hand, four minutes; every figure is of simulated GPUs.

    slurm_thirty.py [--jobs N] [--seed S] [--json bench/results/slurm.json]

Each way gets the same jobs at the same times. A job stands for a row of ParvaGPU's tables: its
kernels take the part of the SMs that the row needs.
"""

import argparse
import csv
import json
import pathlib
import random
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/fault"), str(ROOT / "examples/serving"), str(ROOT / "bench")]
import setting  # noqa: E402  (the folders are known only now)
import slurm  # noqa: E402
import stage  # noqa: E402
from harness.report import write  # noqa: E402
from harness.session import add_origin, origin  # noqa: E402
from setting import expect  # noqa: E402

DATA = stage.DIST / "share/heddle/jobs/parvagpu"
PROGRAMS = ("vgg16/32", "resnet152/8", "bert/4")
NODES = tuple(f"heddle{number}" for number in range(1, 5))
WAVE = 264                    # blocks that fill the simulated GPU
KERNEL_NS, ROW = 10_000_000, 8
SECONDS = 2, 20               # of a job alone, log-uniform
INTERVAL_S = 2                # from a job to the next; Slurm itself takes a second
WAYS = {"first fit": ("training", False), "least loaded node": ("gpu", False),
        "least loaded node, pairs by the plan": ("gpu", True)}  # partition, file of pairs


def blocks_of(program):
    """Of the least slice on which the row has 95 % of its pace."""
    name, _, batch = program.partition("/")
    with open(DATA / f"{name}.csv") as file:
        pace = {int(slots): float(rate) for slots, size, copies, rate, *_ in csv.reader(file)
                if size == batch and copies == "1"}
    return WAVE * min(slots for slots in pace if pace[slots] >= 0.95 * pace[7]) // 7


def work(blocks, seconds):
    """A job: what takes so long alone. Prints when it ended."""
    from decoder import Demo
    demo = Demo()
    for _ in range(round(seconds * 1e9 / KERNEL_NS / ROW)):
        demo.run([(blocks, KERNEL_NS)] * ROW)
    print(time.time())


class Cluster(slurm.Cluster):
    """Each node has a heddled and a simulated GPU, as `heddle run` there finds them."""

    def __init__(self, where):
        self.nodes = {node: setting.fresh_stage(f"slurm-{node}") for node in NODES}
        super().__init__(where, NODES, cgroups=False)

    def wrapper(self):
        return super().wrapper().replace("shift\n", "shift\ncase $SLURMD_NODENAME in\n" + "".join(
            f"{node}) export HEDDLE_SOCKET={at.socket}"
            f" HEDDLE_SIM_SOCKET={at.env['HEDDLE_SIM_SOCKET']} ;;\n"
            for node, at in self.nodes.items()) + "esac\n")

    def up(self):
        for node in self.nodes.values():
            node.start_daemon("priority")
        super().up()

    def close(self):
        super().close()
        for node in self.nodes.values():
            node.close()


def drawn(options):
    """[(program, seconds alone)]"""
    draw, (low, high) = random.Random(options.seed), SECONDS
    return [(draw.choice(PROGRAMS), low * (high / low) ** draw.random())
            for _ in range(options.jobs)]


def run(cluster, partition, jobs):
    """Submits each job when it arrives; its JCT, and what it is made of."""
    begin, sent = time.time(), []
    for number, (program, seconds) in enumerate(jobs):
        time.sleep(max(0, begin + INTERVAL_S * number - time.time()))
        name = f"job-{number}"
        sent.append((time.time(), name, cluster.submit(
            name, "-p", partition, "--heddle-class=batch", f"--comment=heddle:{program}",
            command=f"{sys.executable} {__file__} --work {blocks_of(program)} {seconds}")))
    found = []
    for (submitted, name, job), (program, seconds) in zip(sent, jobs):
        stage.wait_until(lambda: cluster.field(job, "JobState") not in ("PENDING", "RUNNING",
                                                                         "COMPLETING"), 120, name)
        text = (cluster.folder / f"{name}.out").read_text()
        expect(cluster.field(job, "JobState") == "COMPLETED", text)
        found.append({"program": program, "alone_s": round(seconds, 2),
                      "node": cluster.field(job, "NodeList"),
                      "jct_s": round(float(text.split()[-1]) - submitted, 2)})
    return {"jobs": found, "jct_s": statistics.mean(job["jct_s"] for job in found),
            "antt": statistics.mean(job["jct_s"] / job["alone_s"] for job in found),
            "makespan_s": time.time() - begin}


def measure(cluster, options):
    cluster.up()
    planned, jobs, ways = cluster.folder / "planned", drawn(options), {}
    planning = subprocess.Popen(["sh", slurm.EXAMPLES / "pairs.sh", DATA, planned, *PROGRAMS],
                                env=cluster.where.env | {"HEDDLE": str(stage.HEDDLE)})
    expect(planning.wait() == 0, "pairs.sh failed")
    for way, (partition, with_pairs) in WAYS.items():
        if with_pairs:
            planned.rename(cluster.folder / "pairs")
        ways[way] = run(cluster, partition, jobs)
        print(f"{way:40s} JCT {ways[way]['jct_s']:6.2f} s, JCT / alone {ways[way]['antt']:5.2f}, "
              f"makespan {ways[way]['makespan_s']:6.1f} s (simulated GPUs)", flush=True)
    if options.json:
        write(origin(options, "slurm") | {"seed": options.seed, "ways": ways}, options.json)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--work", nargs=2, type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        return work(int(options.work[0]), options.work[1])
    options.dist, options.sim, options.commit = stage.DIST, True, ""
    add_origin(options, "tests/integration/slurm_thirty.py", sys.argv[1:])
    slurm.tools()
    where = setting.fresh_stage("slurm-thirty")
    cluster = Cluster(where)
    try:
        setting.run(lambda: measure(cluster, options), where)
    finally:
        cluster.close()


if __name__ == "__main__":
    main()
