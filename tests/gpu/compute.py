#!/usr/bin/env python3
"""Do programs get what rules request of the GPU's time, and never more than their limits? Under
`auto`, time-sliced and under MPS: four programs that are busy with 40, 30, 20 and 10 %; the same
while the first asks for nothing, and while it works for a third of the time, of which the parts
are then; one with a limit, alone and beside another; and one with both below a service that never
pauses, and while that is idle.

    compute.py --dist dist --out bench/results/compute.json      three minutes
    compute.py --sim --block-s 6 --out /tmp/compute.json         the logic, on the simulated GPU
"""

import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from harness import report, session  # noqa: E402
from harness.processes import Job, Setting  # noqa: E402

FOUR = {"r40": {"request": 0.4}, "r30": {"request": 0.3}, "r20": {"request": 0.2},
        "r10": {"request": 0.1}}
HELD = {"l30": {"limit": 0.3}, "free": {}}
SERVED = {"service": {}, "j20": {"request": 0.2, "limit": 0.5}}  # the first is latency-critical
# Row -> programs, those of them that are at work, and what each is to get: at least, at most. The
# first of BURSTS is at work in the middle third.
BURSTS = "one bursts"
ROWS = {
    "busy": (FOUR, FOUR, {"r40": (0.4, 1), "r30": (0.3, 1), "r20": (0.2, 1), "r10": (0.1, 1)}),
    "one idle": (FOUR, ("r30", "r20", "r10"), {"r30": (0.3, 1), "r20": (0.2, 1), "r10": (0.1, 1)}),
    BURSTS: (FOUR, FOUR, {"r40": (0.4, 1), "r30": (0.3, 1), "r20": (0.2, 1), "r10": (0.1, 1)}),
    "limit, alone": (HELD, ("l30",), {"l30": (0, 0.3)}),
    "limit, beside": (HELD, HELD, {"l30": (0, 0.3), "free": (0.65, 1)}),
    "below a service": (SERVED, SERVED, {"j20": (0.2, 0.5)}),
    "the service idle": (SERVED, ("j20",), {"j20": (0, 0.5)}),
}
BLOCKS = 528  # four waves of an H200
LEAD_S = 2  # slices and gates settle
POINTS = 0.02


def rules(programs):
    for name, parts in programs.items():
        given = ", ".join(f'{key} = "{100 * part:.0f}%"' for key, part in parts.items())
        if given:
            yield from ("[[rule]]", f'label = "{name}"', f"compute = {{ {given} }}")


class Parts(Setting):
    def __init__(self, options, folder, mps, programs):
        super().__init__(options, folder, "auto", mps=mps, place="daemon")
        self.daemon.config_lines += rules(programs)
        self.programs = programs

    def measure(self, names):
        """By row, of each program at work its part of the GPU's time as `heddle ps` counts it: of
        all of a block, the least and the most of a second, and what ps tells of ten seconds."""
        rows = {}
        with self.running():
            jobs = {name: self.start(name) for name in self.programs}
            try:
                for job in jobs.values():
                    job.wait_ready()
                for name in names:
                    rows[name] = self.row([jobs[program] for program in ROWS[name][1]],
                                          bursts=name == BURSTS)
            finally:
                for job in jobs.values():
                    job.stop()
        return rows

    def row(self, jobs, bursts=False):
        seconds = self.options.block_s
        start = time.monotonic() + LEAD_S
        third = seconds / 3 if bursts else 0
        for job in jobs[bursts:]:
            job.send("go", start, seconds, LEAD_S, LEAD_S)
        if bursts:
            jobs[0].send("go", start + third, third, 0, 0)
        seen = []
        for second in range(int(seconds) + 1):
            time.sleep(max(0, start + second - time.monotonic()))
            seen.append((time.monotonic(), self.had()))
        answers = {job.name: job.answer() for job in jobs}
        if bursts:  # whole seconds in which the first is at work
            seen = [(at, had) for at, had in seen if third < at - start <= 2 * third]
        (begun, first), (ended, last) = seen[0], seen[-1]
        found = {}
        for job in jobs:
            each = [(b[job.name][0] - a[job.name][0]) / 1e6 / (tb - ta)
                    for (ta, a), (tb, b) in zip(seen, seen[1:])]
            found[job.name] = {
                "part": round((last[job.name][0] - first[job.name][0]) / 1e6 / (ended - begun), 4),
                "of_a_second": [round(part, 3) for part in (min(each), max(each))],
                "told": last[job.name][1],
                "per_s": round(len(answers[job.name]["us"]) /
                               (answers[job.name]["span_s"] or seconds), 2)}
        return found

    def had(self):
        """Label -> µs of GPU time so far, and what is told of the last ten seconds."""
        found = {}
        for client in self.daemon.status()["ps"]["clients"]:
            for device in client["devices"]:
                got = (device["compute"] or {}).get("got", [None] * 3)
                found[client["label"]] = (device["gpu_us"], got[1])
        return found

    def start(self, name):
        command = [self.options.dist / "bin/heddle", "run", "--quiet", "--label", name,
                   "--class", "latency" if name == "service" else "batch",
                   *["--sim"] * self.options.sim, "--",
                   self.options.dist / "libexec/heddle/heddle-synthetic", "--kernels", 20,
                   "--kernel-us", f"{self.options.kernel_us}:0", "--blocks", BLOCKS, "--seed", 1]
        return Job(name, "be", [str(w) for w in command], self.env, self.folder / f"{name}.log")


def judge(rows, points):
    """What is not as requested or limited."""
    wrong = []
    for name, found in rows.items():
        for program, (least, most) in ROWS[name][2].items():
            part = found[program]["part"]
            if not least - points <= part <= most + points:
                wrong.append(f"{name}: {program} got {part}, not {least} to {most}")
    return wrong


def parse(arguments):
    parser = session.origin_parser(__doc__, "compute.json")
    add = parser.add_argument
    add("--block-s", type=float, default=11)
    add("--kernel-us", type=int, default=300)
    add("--points", type=float, default=POINTS)
    options = parser.parse_args(arguments)
    if options.block_s < 6:
        parser.error("--block-s: 6 at least, for a third of it is looked at by the second")
    return session.add_origin(options, "tests/gpu/compute.py", arguments)


def main():
    options = parse(sys.argv[1:])
    result = session.origin(options, "compute") | {"block_s": options.block_s, "modes": {},
                                                     "wrong": {}}
    for mode, mps in (("timeslice", False), ("mps", True)):
        rows = {}
        for programs in (FOUR, HELD, SERVED):
            names = [name for name, row in ROWS.items() if row[0] is programs]
            with tempfile.TemporaryDirectory(prefix="hc-", ignore_cleanup_errors=True) as folder:
                rows |= Parts(options, Path(folder), mps, programs).measure(names)
        result["modes"][mode], result["wrong"][mode] = rows, judge(rows, options.points)
        for name, found in rows.items():
            told = ", ".join(f"{p} {f['part']:.3f} ({f['of_a_second'][0]:.2f} to "
                             f"{f['of_a_second'][1]:.2f})" for p, f in found.items())
            total = sum(f["part"] for f in found.values())
            print(f"{mode:9s} {name:14s} {told}; all {total:.3f}", flush=True)
        print(*result["wrong"][mode], sep="\n", flush=True)
        report.write(result, options.out)
    return 1 if any(result["wrong"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
