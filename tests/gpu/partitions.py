#!/usr/bin/env python3
"""Do two programs on SMs that do not meet run as if alone? Rates of a program that fills the GPU,
under MPS and heddle: on all SMs, on one half, and beside a second one on the same half and on the
other (KRISP's isolated instances; 566 + 566 kernels/s apart, 345 + 345 on the same).

    partitions.py --dist dist --out bench/results/partitions.json       half a minute
    partitions.py --sim --out /tmp/partitions.json                      the logic alone
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from harness import report, session  # noqa: E402
from harness.processes import Job, Setting  # noqa: E402

LOW, HIGH = "50%", "50%-100%"
# Row -> the SMs of each program, "" for all.
ROWS = {"all": [""], "half": [LOW], "other half": [HIGH], "apart": [LOW, HIGH],
        "together": [LOW, LOW], "all, both": ["", ""]}
BLOCKS = 2640  # ten waves of an H200
KERNEL = "4000:0"  # µs, all alike
LEAD_S = 0.5  # between the command and the block


class Rates(Setting):
    def __init__(self, options, folder):
        super().__init__(options, folder, "mps_default", place="daemon")

    def measure(self):
        """{row: {"per_s": [...], "sms": [...], "unpartitioned": [...]}}"""
        with self.running():
            return {name: self.row(name, sms) for name, sms in ROWS.items()}

    def row(self, name, sms):
        jobs = [self.start(f"{name} {i}", part) for i, part in enumerate(sms)]
        try:
            for job in jobs:
                job.wait_ready()
            seconds = self.options.block_s
            for job in jobs:
                job.send("go", time.monotonic() + LEAD_S, seconds, LEAD_S / 2, LEAD_S / 2)
            per_s = [len(answer["us"]) / answer["span_s"] for answer in
                     [job.answer() for job in jobs]]
            clients = {c["label"]: c for c in self.daemon.status()["ps"]["clients"]}
            mine = [clients[job.name] for job in jobs]
            return {"per_s": [round(rate, 1) for rate in per_s],
                    "sms": [c["sm_count"] for c in mine],
                    "unpartitioned": [c["counters"]["off_sm_set"] for c in mine]}
        finally:
            for job in jobs:
                job.stop()

    def start(self, name, sms):
        more = ["--sms", sms] if sms else []
        command = [self.options.dist / "bin/heddle", "run", "--quiet", "--label", name, *more, "--",
                   self.options.dist / "libexec/heddle/heddle-synthetic", "--kernels", 1,
                   "--kernel-us", KERNEL, "--blocks", BLOCKS, "--seed", 1]
        log = self.folder / f"{name.replace(' ', '-')}.log"
        return Job(name, "hp" if name.endswith("0") else "be", [str(w) for w in command], self.env,
                   log)


def judge(rows):
    """Apart each keeps what it has alone on its half; together they share it."""
    alone = [rows["half"]["per_s"][0], rows["other half"]["per_s"][0]]
    apart = [rate / one for rate, one in zip(rows["apart"]["per_s"], alone)]
    together = statistics.fmean(rows["together"]["per_s"]) / alone[0]
    return {"apart_over_alone": [round(x, 3) for x in apart],
            "together_over_alone": round(together, 3),
            "isolated": min(apart) > 0.9 and together < 0.75}


def parse(arguments):
    parser = session.origin_parser(__doc__, "partitions.json")
    add = parser.add_argument
    add("--block-s", type=float, default=2)
    return session.add_origin(parser.parse_args(arguments), "tests/gpu/partitions.py", arguments)


def main():
    options = parse(sys.argv[1:])
    result = session.origin(options, "partitions")
    with tempfile.TemporaryDirectory(prefix="hp-", ignore_cleanup_errors=True) as folder:
        result["rows"] = Rates(options, Path(folder)).measure()
    result |= judge(result["rows"])
    report.write(result, options.out)
    for name, row in result["rows"].items():
        print(f"{name:12s} SMs {row['sms']}  iterations/s {row['per_s']}  "
              f"not in their partition {row['unpartitioned']}")
    print("isolated" if result["isolated"] else "NOT isolated", result["apart_over_alone"],
          result["together_over_alone"])
    return 0 if result["isolated"] else 1


if __name__ == "__main__":
    sys.exit(main())
