#!/usr/bin/env python3
"""What does a resize cost a service? Under MPS, beside training, its SMs change by `heddle policy
set` while it runs (policy `shares`): its iterations with changes, and without. Beside that a resize
by restart, as MPS's own percentage needs: from the end of the old process to the first iteration of
the new one. KRISP's Table I has about 10 s for that.

    resize.py --dist dist --out bench/results/resize.json      a minute
    resize.py --sim --out /tmp/resize.json                     the logic, on the simulated GPU
"""

import json
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "bench")]

from harness import report, session  # noqa: E402
from harness.processes import Job, Setting  # noqa: E402

SIZES = (64, 128)
LEAD_S = 1


class Resize(Setting):
    def __init__(self, options, folder):
        super().__init__(options, folder, "shares", mps=True, place="daemon")
        self.loaded = 0

    def start(self, label, percent=None):
        if self.options.sim:
            sizes = ["--kernels", 10, "--kernel-us", "100:0", "--blocks", 64, "--seed", 1]
            work = [self.options.dist / "libexec/heddle/heddle-synthetic", *sizes]
        else:
            jobs = self.options.dist / "libexec/heddle/workloads/jobs.py"
            training = ["--mode", "training", "--precision", "bf16"]
            work = [sys.executable, jobs, *(("resnet50", 8) if label == "svc" else
                                            ("resnet50", 128, *training))]
        run = [self.options.dist / "bin/heddle", "run", "--quiet", "--label", label,
               *["--sim"] * self.options.sim, "--"]
        env = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(percent)} if percent else {}
        self.loaded += 1
        job = Job(label, "hp" if label == "svc" else "be", [str(word) for word in run + work],
                  self.env | env, self.folder / f"{label}.{self.loaded}.log")
        job.wait_ready()
        return job

    def block(self, jobs, changes):
        """The service's iterations, ms, and how often its size was changed meanwhile."""
        start, made = time.monotonic() + LEAD_S, [0]

        def change():
            while (now := time.monotonic()) < start + self.options.block_s - 0.1:
                if now >= start:
                    size = SIZES[made[0] % len(SIZES)]
                    self.daemon.command("policy", "set", "shares", f"sizes=svc={size}",
                                        "--wait", "0")
                    made[0] += 1
                time.sleep(self.options.each_s)

        for job in jobs:
            job.send("go", start, self.options.block_s, LEAD_S, LEAD_S)
        thread = threading.Thread(target=change)
        if changes:
            thread.start()
        took = [us / 1e3 for us in jobs[0].answer()["us"]]
        for job in jobs[1:]:
            job.answer()
        if changes:
            thread.join()
        return {"changes": made[0], "iterations": len(took),
                "median_ms": round(statistics.median(took), 3),
                "p99_ms": round(statistics.quantiles(took, n=100)[98], 3),
                "worst_ms": round(max(took), 3)}

    def restart(self, job):
        """Until the service has done an iteration on another percentage, s."""
        begin = time.monotonic()
        job.stop()
        job = self.start("svc", percent=50)
        job.send("go", time.monotonic(), 0.1, 0, 0)
        us = job.answer()["us"]
        took = time.monotonic() - begin - 0.1 + us[0] / 1e6
        job.stop()
        return round(took, 2)

    def measure(self):
        with self.running():
            jobs = [self.start("svc"), self.start("train")]
            try:
                found = {name: self.block(jobs, changes) for name, changes in
                         (("still", False), ("resized", True), ("still again", False))}
                on_set = [client["counters"]["on_sm_set"]
                          for client in self.daemon.status()["ps"]["clients"]
                          if client["label"] == "svc"]
                return found | {"launches_on_sets": on_set, "restart_s": self.restart(jobs[0])}
            finally:
                for job in jobs:
                    job.stop()


def main():
    parser = session.origin_parser(__doc__, "resize.json")
    parser.add_argument("--block-s", type=float, default=6)
    parser.add_argument("--each-s", type=float, default=0.2, help="between two changes")
    options = session.add_origin(parser.parse_args(), "tests/gpu/resize.py", sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="hrs-", ignore_cleanup_errors=True) as folder:
        found = Resize(options, Path(folder)).measure()
    print(json.dumps(found, indent=1))
    report.write(session.origin(options, "resize") | found, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
