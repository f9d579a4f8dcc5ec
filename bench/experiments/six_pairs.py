#!/usr/bin/env python3
"""Six pairs of programs under every way of sharing a GPU: at most 20 minutes of it, in as many
calls as it takes, the same on the simulated GPU. Results, tables and pictures lie in one folder.

    six_pairs.py --budget-s 540                   as many pairs as fit whole into this call
    six_pairs.py --budget-s 540 --resume          goes on: the next pairs, or what was cut short
    six_pairs.py --draw                           measures nothing; tables and pictures again
    six_pairs.py --device sim --pair-s 12 --block-s 0.2 --out /tmp/six      in short, without a GPU

Each pair is a scenario of bench/scenarios, measured by `heddle-bench run`: its processes load once,
all rows alternate. --pair-s is a pair's time with everything, loading too. --out gets, of what
there is so far (the pictures where matplotlib is; --draw makes them elsewhere):

    PAIR.json          the results             table.md, brief.md      their tables
    frontier.svg       all pairs               PAIR.cdf.svg            iteration times
    gapfill.trace      0.2 s of keypointrcnn under gapfill, as recorded; gapfill.perfetto.json.gz
                       opens in Perfetto, timeline.svg shows some of it

Whether a second run says the same: heddle-bench agree FIRST/PAIR.json SECOND/PAIR.json.
Exit status: 0 all is measured, 3 pairs are left for --resume, 1 something broke, 130 interrupted.
"""

import argparse
import gzip
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAIRS = ("keypointrcnn", "resnet101", "alexnet", "maskrcnn", "deeplabv3", "resnet50")
# Best effort gets 25 % and 50 % of the threads, or of the SMs.
BASELINES = ("timeslice", "mps", "mps+priority", "mps:25", "mps:50", "split:75/25", "split:50/50")
POLICIES = ("priority@mps", "gapfill@mps")
ALONE = 4  # each job, with and without MPS
TRACED = "keypointrcnn"
TRACED_ROW = "gapfill@mps"

PAIR_S = 195  # two fit into a call of 540 s, six into 20 minutes
# Until one was seen: a dozen PyTorch processes load on 16 cores, warm up and compare their outputs.
LOAD_S = {"auto": 70, "sim": 6}
SWITCH_S = 0.5   # lead, tail and policy change of a block
END_S = 6        # processes and MPS go
ENOUGH = 3       # repetitions without which a pair has no interval


class Pair:
    """One scenario and the result that it has so far."""

    def __init__(self, name, options):
        self.name, self.options = name, options
        self.path = options.out / f"{name}.json"
        self.scenario = ROOT / "bench/scenarios" / f"{name}.toml"
        self.result = {}
        self.read()

    def read(self):
        if self.path.exists():
            self.result = json.loads(self.path.read_text())

    @property
    def repetitions(self):
        return self.result.get("repetitions_done", 0)

    def used_s(self):
        return sum(session.get("wall_s", 0) for session in self.result.get("sessions", []))

    def load_s(self):
        loads = [s["prepared_s"] for s in self.result.get("sessions", []) if "prepared_s" in s]
        return max(loads, default=LOAD_S[self.options.device])

    def repetition_s(self):
        rows = len(self.result.get("rows", ())) or len(BASELINES) + len(POLICIES) + ALONE
        return rows * (self.options.block_s + SWITCH_S)

    def left_s(self):
        """What it may still take; 0 if it is done."""
        if self.result.get("finished"):
            return 0
        left = self.options.pair_s - self.used_s()
        missing = min(ENOUGH, self.options.repetitions) - self.repetitions
        least = self.load_s() + max(1, missing) * self.repetition_s() + END_S
        if left >= least or not self.result:
            return left
        return least if missing > 0 else 0

    def command(self, seconds):
        options = self.options
        command = [options.dist / "bin/heddle-bench", "run", self.scenario, "--json", self.path,
                   "--resume", "--device", options.device, "--baselines", ",".join(BASELINES),
                   "--policies", ",".join(POLICIES), "--block-s", str(options.block_s),
                   "--repetitions", str(options.repetitions), "--budget-s", str(seconds - END_S),
                   "--logs", options.out / "logs" / self.name]
        if self.name == TRACED:
            command += ["--trace", options.out / "traces"]
        return [str(word) for word in command]


def run(command):
    """To its end, whatever we are told meanwhile: heddle-bench ends its processes on SIGINT."""
    process = subprocess.Popen(command)
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)
        process.wait()
        raise


def measure(pairs, options):
    """As many pairs as fit whole into the call, and one at least. False if something broke."""
    until = time.monotonic() + options.budget_s
    todo = [pair for pair in pairs if pair.left_s()]
    print(f"{len(todo)} of {len(pairs)} pairs to measure, about {sum(p.left_s() for p in todo):.0f}"
          f" s of the GPU in all, loading included; {options.budget_s:.0f} s in this call",
          flush=True)
    whole = True
    for number, pair in enumerate(todo):
        left, call = pair.left_s(), until - time.monotonic()
        if number and left > call:
            break
        print(f"\n== {pair.name}: {min(left, call):.0f} s, {call:.0f} s left in this call",
              flush=True)
        status = run(pair.command(min(left, call)))
        if status == 130:
            raise KeyboardInterrupt
        pair.read()
        whole = whole and status == 0
        if not pair.result:  # refused at once: the others would be too
            return False
    return whole


def produce(command, target, what):
    """Keeps what the command prints in `target`, or says in one line why there is no such file."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        print(f"no {what}: {(done.stderr or done.stdout).strip()}")
    elif target:
        target.write_text(done.stdout)
    return done.returncode == 0


def present(pairs, options):
    """Tables, pictures and the Perfetto trace, of what there is."""
    out, bench = options.out, options.dist / "bin/heddle-bench"
    there = [pair for pair in pairs if "figures" in pair.result]
    files = [pair.path for pair in there]
    if not files:
        return
    produce([bench, "table", *files], out / "table.md", "tables")
    produce([bench, "table", "--brief", *files], out / "brief.md", "brief table")
    drawn = produce([bench, "plot", *files, "--out", out / "frontier.svg"], None, "pictures")
    for pair in there if drawn else ():
        produce([bench, "plot", pair.path, "--kind", "cdf", "--out",
                 out / f"{pair.name}.cdf.svg"], None, f"CDF of {pair.name}")
    recorded, trace = out / "traces" / f"{TRACED_ROW}.trace", out / "gapfill.trace"
    if recorded.exists():
        shutil.copyfile(recorded, trace)
    if not trace.exists():
        return
    perfetto = out / "gapfill.perfetto.json"
    if produce([options.dist / "bin/heddle", "trace", "export", trace, "--perfetto", perfetto],
               None, "Perfetto trace"):
        packed = gzip.compress(perfetto.read_bytes(), mtime=0)
        (out / "gapfill.perfetto.json.gz").write_bytes(packed)
        perfetto.unlink()
    if drawn:
        produce([bench, "plot", trace, "--kind", "timeline", "--from-ms", "50", "--ms", "40",
                 "--out", out / "timeline.svg"], None, "timeline")


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--dist", type=Path, default=ROOT / "dist", help="install tree of heddle")
    add("--out", type=Path, default=ROOT / "out/six_pairs", help="folder of the results")
    add("--device", choices=("auto", "sim"), default="auto")
    add("--pairs", default=PAIRS, type=lambda text: text.split(","), help="these only")
    add("--budget-s", type=float, default=540, help="of this call")
    add("--pair-s", type=float, default=PAIR_S, help="of each pair, over all calls")
    add("--repetitions", type=int, default=12, help="at most")
    add("--block-s", type=float, default=1.0)
    add("--resume", action="store_true", help="go on with what --out has")
    add("--draw", action="store_true", help="measure nothing: tables and pictures of what is there")
    options = parser.parse_args()
    for pair in options.pairs:
        if pair not in PAIRS:
            parser.error(f"--pairs: no pair {pair}; there are: {', '.join(PAIRS)}")
    if not (options.dist / "bin/heddle-bench").exists():
        parser.error(f"--dist: {options.dist} is no install tree; see README.md")
    if not options.resume and not options.draw and list(options.out.glob("*.json")):
        parser.error(f"--out: {options.out} has results already; --resume goes on with them")
    return options


def main():
    options = parse()
    options.out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    pairs = [Pair(name, options) for name in options.pairs]
    try:
        whole = options.draw or measure(pairs, options)
        present(pairs, options)
    except KeyboardInterrupt:
        print(f"interrupted; what was measured is in {options.out}, go on with --resume")
        return 130
    left = [pair.name for pair in pairs if pair.left_s()]
    for pair in pairs:
        print(f"{pair.name}: {pair.repetitions} repetitions, {pair.used_s():.0f} s")
    if left:
        print(f"left for --resume: {', '.join(left)}")
    print(f"results, tables and pictures: {options.out}")
    return 1 if not whole else 3 if left else 0


if __name__ == "__main__":
    sys.exit(main())
