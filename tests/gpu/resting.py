#!/usr/bin/env python3
"""What heddled costs a GPU host while nobody launches, and what heddle doctor says there: first
with no program, then with a managed one and one that bypasses heddle, both of which rest.

    resting.py --dist dist --out bench/results/resting.json       half a minute
    resting.py --sim --out /tmp/resting.json                      the logic alone
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from harness import report, session  # noqa: E402
from harness.processes import Job, Setting  # noqa: E402

SETTLE_S = 2      # until what came before is believed to be over
BAR = 0.001       # cores
SIM_BAR = 0.01    # machines that tests run on are slow


class Host(Setting):
    def __init__(self, options, folder):
        super().__init__(options, folder, "gapfill", mps=False)

    def measure(self):
        jobs = []
        with self.running():
            try:
                found = {"cores_with_nobody": self.cores()}
                prefix = [str(word) for word in self.daemon.prefix("be", "managed")]
                for name, words in (("managed", prefix), ("bypassing", [])):
                    jobs.append(self.start(name, words))
                for job in jobs:
                    job.wait_ready()
                    job.send("go", time.monotonic(), 0.2, 0, 0)
                    job.answer()
                found["clients"] = len(self.daemon.status()["ps"]["clients"])
                found["cores_with_a_client_that_rests"] = self.cores()
                return found | {"doctor": self.doctor(), "pids": [j.process.pid for j in jobs]}
            finally:
                for job in jobs:
                    job.stop()

    def start(self, name, prefix):
        command = [self.options.dist / "libexec/heddle/heddle-synthetic", "--kernels", 10,
                   "--kernel-us", "100:0", "--blocks", 132, "--seed", 1]
        return Job(name, "be", [str(word) for word in [*prefix, *command]], self.env,
                   self.folder / f"{name}.log")

    def cores(self):
        """The least of three: a virtual machine that is short of time or memory makes all dear."""
        time.sleep(SETTLE_S)
        return min(self.cores_for(self.options.seconds / 3) for _ in range(3))

    def cores_for(self, seconds):
        pid = self.daemon.process.pid
        before, start = cpu_ns(pid), time.monotonic_ns()
        time.sleep(seconds)
        return round((cpu_ns(pid) - before) / (time.monotonic_ns() - start), 6)

    def doctor(self):
        """Exits with 1 if it finds an error, which is its answer."""
        done = subprocess.run([self.daemon.heddle, "doctor", "--json"], text=True, timeout=60,
                              capture_output=True, env=os.environ | self.env, check=False)
        return json.loads(done.stdout)


def cpu_ns(pid):
    return sum(int((task / "schedstat").read_text().split()[0])
               for task in Path(f"/proc/{pid}/task").iterdir())


def main():
    parser = session.origin_parser(__doc__, "resting.json")
    add = parser.add_argument
    add("--seconds", type=float, default=8, help="each time that processor time is counted")
    arguments = sys.argv[1:]
    options = session.add_origin(parser.parse_args(arguments), "tests/gpu/resting.py", arguments)
    result = session.origin(options, "resting")
    with tempfile.TemporaryDirectory(prefix="hr-", ignore_cleanup_errors=True) as folder:
        result |= Host(options, Path(folder)).measure()
    report.write(result, options.out)
    idle = {key: value for key, value in result.items() if key.startswith("cores")}
    print(idle)
    for finding in result["doctor"]["findings"]:
        print(f"{finding['level']:5s} {finding['topic']}: {finding['text']}")
    named = f"pid {result['pids'][1]} "
    bypassing = [f for f in result["doctor"]["findings"] if named in f["text"]]
    if not options.sim and [f["topic"] for f in bypassing] != ["bypassed"]:
        print(f"FAILED: doctor does not say that {named}bypasses heddle")
        return 1
    bar = SIM_BAR if options.sim else BAR
    return 0 if result["clients"] == 1 and max(idle.values()) <= bar else 1


if __name__ == "__main__":
    sys.exit(main())
