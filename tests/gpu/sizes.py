#!/usr/bin/env python3
"""Do models compute the same on sizes that change at every launch? Digests of every output tensor,
bare and under experiments/cycle.lua, under MPS: leased, where all kernels' sizes change every
10 ms, and gated, where each launch gets the next size; eager and as a CUDA graph.

    sizes.py --dist dist --out bench/results/sizes.json         three minutes on a GPU
    sizes.py --sim --out /tmp/sizes.json                        the simulated GPU: the logic alone
"""

import os
import shutil
import signal
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from harness import report, session  # noqa: E402
from harness.processes import PINNED, HostError, Job, Setting  # noqa: E402

# KRISP's eight (Table III).
MODELS = ("albert", "alexnet", "densenet201", "resnet152", "resnext101_32x8d",
          "shufflenet_v2_x1_0", "squeezenet1_0", "vgg19")
CONDITIONS = ("bare", "leased", "gated")
POLICY = ROOT / "bench/experiments/cycle.lua"
HASHES = 3
READY_S = 40
SECONDS = 1.0  # of iterations before the digests, so that every size is met


class Sizes(Setting):
    def __init__(self, options, folder):
        super().__init__(options, folder, "cycle", env=PINNED | {"PYTHONFAULTHANDLER": "1"})

    def measure(self, save):
        """{"MODEL eager|graph": {condition: {"digests", "median_us", "client"} or {"error"}}},
        given to `save` after each condition."""
        rows = {f"{model} {kind}": {} for model in self.options.models
                for kind in self.options.kinds}
        self.daemon.shipped = self.with_policy()
        with self.running():
            for condition in CONDITIONS:
                if condition != "bare":
                    self.daemon.use("cycle", {"leased": str(condition == "leased").lower()})
                with ThreadPoolExecutor(self.options.jobs) as pool:
                    for name, answer in zip(rows, pool.map(
                            lambda name: self.cell(name, condition), rows)):
                        rows[name][condition] = answer
                        print(condition, name, answer.get("median_us"), answer.get("error", ""),
                              flush=True)
                save(rows)

    def with_policy(self):
        """The shipped policies and this one."""
        both = self.folder / "policies"
        shutil.copytree(self.daemon.shipped, both)
        shutil.copy(POLICY, both)
        return both

    def cell(self, name, condition):
        model, kind = name.split()
        label = f"{name} {condition}".replace(" ", "-")
        command = [sys.executable, ROOT / "bench/workloads/jobs.py", model, 1,
                   *(["--graph", "true"] if kind == "graph" else [])]
        if self.options.sim:
            command = [self.options.dist / "libexec/heddle/heddle-synthetic", "--kernels", 20,
                       "--kernel-us", "300:0", "--blocks", 264, "--seed", 1]
        if condition != "bare":
            command = [self.daemon.heddle, "run", "--quiet", "--label", label, "--", *command]
        job = Job(label, "be", [str(word) for word in command], self.env,
                  self.folder / f"{label}.log")
        try:
            job.wait_ready(READY_S)
            job.send("go", time.monotonic(), SECONDS, 0, 0)
            taken = sorted(job.answer()["us"])
            job.send("hash", HASHES)
            found = {"digests": job.answer(), "median_us": taken[len(taken) // 2]}
            return found | ({"client": self.client(label)} if condition != "bare" else {})
        except HostError as error:
            return {"error": str(error), **self.stuck(job, condition)}
        finally:
            job.stop()

    def stuck(self, job, condition):
        """Where it is, by Python's own fault handler, and what heddled knows of it."""
        if not job.running():
            return {}
        client = self.client(job.name) if condition != "bare" else None
        os.kill(job.process.pid, signal.SIGABRT)  # `heddle run` has become the program
        time.sleep(1)
        return {"client": client, "stack": job.log.read_text(errors="replace")[-2000:]}

    def client(self, label):
        return next(c["counters"] for c in self.daemon.status()["ps"]["clients"]
                    if c["label"] == label)


def alike(row):
    """Of the conditions that were measured beside bare."""
    return [row[c].get("digests") == row["bare"].get("digests") and "error" not in row[c]
            for c in CONDITIONS[1:] if c in row]


def main():
    parser = session.origin_parser(__doc__, "sizes.json")
    add = parser.add_argument
    add("--models", type=lambda text: text.split(","), default=MODELS)
    add("--kinds", type=lambda text: text.split(","), default=("eager", "graph"))
    add("--jobs", type=int, default=4, help="programs at a time")
    arguments = sys.argv[1:]
    options = session.add_origin(parser.parse_args(arguments), "tests/gpu/sizes.py", arguments)
    if options.sim:
        options.models, options.kinds = ("synthetic",), ("eager",)
    result = session.origin(options, "sizes")

    def save(rows):
        result["rows"] = rows
        report.write(result, options.out)
        print(f"{len([r for r in rows.values() if all(alike(r))])} of {len(rows)} alike so far",
              flush=True)

    with tempfile.TemporaryDirectory(prefix="hz-", ignore_cleanup_errors=True) as folder:
        Sizes(options, Path(folder)).measure(save)
    good = True
    for name, row in result["rows"].items():
        errors = {c: row[c]["error"] for c in row if "error" in row[c]}
        print(f"{name:28s} bit-equal leased, gated: {alike(row)}  µs "
              f"{[row[c].get('median_us') for c in row]}", errors or "", flush=True)
        good = good and all(alike(row))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
