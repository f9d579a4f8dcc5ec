#!/usr/bin/env python3
"""Sensitivity curves: how much slower each victim is beside each channel's microbenchmark, at
rising pressure (Elvinger et al., SoCC 2025, section 4). One process a pair, two streams in it;
alone and beside alternate, and a slowdown is taken against the blocks alone before and after it.

    heddle-bench interference --json curves.json [--program FILE] [--victims A;B] [--disjoint]

    heddle-bench interference --fit curves.json

Without --program, workloads/interference.cu is built with nvcc. The result is written after every
curve; --resume goes on where the file stopped.
"""

import argparse
import json
import math
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

from harness import report

HERE = pathlib.Path(__file__).resolve().parent

# Each channel's specifications, from no pressure to the most. {sms}: where they run.
CHANNELS = {
    "slots": [f"sleep,blocks=132,threads={t}" for t in (128, 512, 1024)] + [
        "sleep,blocks=264,threads=1024"],
    "issue": [f"issue,ilp={i}" for i in (1, 2, 3, 4)] + ["issue,ilp=4,threads=256"],
    "fp64": [f"fp64,ilp={i}" for i in (1, 2, 3, 4)],
    "tensor": [f"tensor,threads={t}" for t in (32, 64, 128, 256)],
    "smem": [f"smem,ways={w}" for w in (1, 2, 4, 8, 16, 32)],
    "l1_capacity": [f"l1,kb={k}" for k in (16, 32, 54, 64, 80, 108)],
    "l2_capacity": [f"l2,mb={m},blocks=66" for m in (4, 8, 12, 16, 20, 24, 32)],
    "l2": [f"l2,mb=4,blocks={b}" for b in (33, 66, 99, 132)],
    "dram": [f"dram,blocks={b}" for b in (33, 66, 99, 132)],
}
VICTIMS = ["issue,ilp=4", "fp64,ilp=2", "fp64,ilp=4", "tensor", "smem", "l1,kb=54",
           "l2,mb=16,blocks=66", "dram,blocks=66"]
# Channels that do not go by SMs are measured on disjoint ones.
OF_DEVICE = {"l2_capacity", "l2", "dram"}
VICTIM_SMS, ANTAGONIST_SMS = "sms=0-63", "sms=64-131"


class PairError(Exception):
    """A pair that could not be measured; the message names it and says why."""


class Program:
    """One process of interference.cu, holding a pair."""

    def __init__(self, program, *specs):
        self.specs = specs
        self.process = subprocess.Popen([program, *specs], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if not self.answer().get("ready"):
            raise PairError(f"{' beside '.join(specs)}: does not get ready")

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            told = self.process.stderr.read().strip().splitlines()
            raise PairError(f"{' beside '.join(self.specs)}: {told[-1] if told else 'ended'}")
        try:
            return json.loads(line)
        except ValueError as error:
            raise PairError(f"{' beside '.join(self.specs)}: said {line.strip()!r}") from error

    def ask(self, command, seconds):
        self.process.stdin.write(f"{command} {seconds}\n")
        self.process.stdin.flush()
        answer = self.answer()
        if answer["launches"] < 1:
            raise PairError(f"{' beside '.join(self.specs)}: no launch ended in {seconds} s; "
                            "give more --seconds")
        return answer

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.process.stdin.close()
            self.process.wait(10)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()


def measure(program, victim, antagonist, seconds, repetitions):
    """A point of a curve: the victim's slowdowns, each against the blocks alone around it."""
    slowdowns, pressures, unit = [], [], ""
    with Program(program, victim, antagonist) as pair:
        alone = pair.ask("alone", seconds)
        before = alone["mean_us"]
        for _ in range(repetitions):
            beside = pair.ask("beside", seconds)
            after = pair.ask("alone", seconds)["mean_us"]
            slowdowns.append(2 * beside["mean_us"] / (before + after))
            pressures.append(beside["held_pressure"])
            unit = beside["held_unit"]
            before = after
    return {"antagonist": antagonist, "slowdown": statistics.median(slowdowns),
            "slowdowns": slowdowns, "pressure": statistics.median(pressures), "unit": unit,
            "alone_pressure": alone["pressure"]}


def placed(victim, antagonist, channel, disjoint):
    if disjoint or channel in OF_DEVICE:
        return f"{victim},{VICTIM_SMS}", f"{antagonist},{ANTAGONIST_SMS}"
    return victim, antagonist


def key(curve):
    return curve["victim"], curve["channel"], curve["disjoint"]


def curves(program, victims, channels, options, done, save):
    """Measures what `done` lacks and calls save() after each curve. Points that could not be
    measured are kept with their error, and the others go on."""
    there = {key(curve) for curve in done}
    failed = 0
    for victim in victims:
        for channel in channels:
            curve = {"victim": victim, "channel": channel,
                     "disjoint": options.disjoint or channel in OF_DEVICE, "points": []}
            if key(curve) in there:
                continue
            for antagonist in CHANNELS[channel]:
                pair = placed(victim, antagonist, channel, options.disjoint)
                try:
                    point = measure(program, *pair, options.seconds, options.repetitions)
                except PairError as error:
                    point = {"antagonist": pair[1], "error": str(error)}
                    failed += 1
                    print(f"interference: {error}", file=sys.stderr)
                curve["points"].append(point)
            done.append(curve)
            save()
    return failed


# What an SM's pipelines can at most, in the microbenchmarks' unit (H100: CUDA programming guide,
# throughput of arithmetic instructions). Of the others the peak is the most that was seen.
NOMINAL = {"issue": 4.0, "fp64": 2.0}
FITTED = ("issue", "fp64", "tensor", "l2", "dram")


def smooth_max(x, sharpness):
    """daemon/model/interference.cc's."""
    log = sharpness * math.log(x) if x > 0 else -math.inf
    return x if log > 200 else (1 + math.exp(log)) ** (1 / sharpness)


def pairs_of(curves, channel):
    """(own, other's, slowdown) of that channel's microbenchmark beside itself."""
    return [(p["alone_pressure"], p["pressure"], p["slowdown"])
            for c in curves if c["channel"] == channel and c["victim"].split(",")[0] == channel
            for p in c["points"] if "error" not in p]


def fit(pairs, nominal=None):
    """The capacity and sharpness by which the estimator comes nearest to these slowdowns, in the
    mean squared error of their logarithms, and that error's root."""
    peak = nominal or max(own + other if slowdown < 1.02 else max(own, other)
                          for own, other, slowdown in pairs)

    def error(capacity, sharpness):
        total = 0.0
        for own, other, slowdown in pairs:
            alone = own / peak / capacity
            beside = (own + other) / peak / capacity
            predicted = smooth_max(beside, sharpness) / smooth_max(alone, sharpness)
            total += math.log(predicted / slowdown) ** 2
        return math.sqrt(total / len(pairs))

    return min((error(c / 200, s), c / 200, s) for c in range(120, 261)
               for s in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 12, 16, 24, 40, 64))[::-1]


def print_fit(path):
    """[limit] lines for profiles/gpu/NAME.toml."""
    curves = json.loads(pathlib.Path(path).read_text())["curves"]
    print("[limit]")
    for channel in FITTED:
        pairs = pairs_of(curves, channel)
        if len(pairs) < 3:
            print(f"# {channel}: {len(pairs)} points of it beside itself; 3 are needed")
            continue
        sharpness, capacity, error = fit(pairs, NOMINAL.get(channel))
        print(f"{channel} = {{ capacity = {capacity:g}, sharpness = {sharpness:g} }}"
              f"  # fitted: {len(pairs)} points of {os.path.basename(path)}, {100 * error:.1f} %")


def build():
    """interference.cu, compiled for this host's GPU."""
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not os.access(nvcc, os.X_OK):
        raise PairError("nvcc is not there; install the CUDA toolkit, or name what it built with "
                        "--program")
    source = next(p for p in (HERE / "workloads/interference.cu",
                              HERE / "interference.cu") if p.exists())
    built = os.path.join(tempfile.mkdtemp(prefix="heddle-interference-"), "interference")
    told = subprocess.run([nvcc, "-O2", "-arch=native", "-std=c++17", source, "-o", built,
                           "-lcuda"], capture_output=True, text=True, check=False)
    if told.returncode != 0:
        raise PairError(f"{source} does not build: {told.stderr[-2000:]}")
    return built


def parse(arguments):
    parser = argparse.ArgumentParser(prog="heddle-bench interference", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="the result")
    parser.add_argument("--fit", metavar="FILE",
                        help="measure nothing: print the [limit] lines of profiles/gpu/NAME.toml "
                        "that a result asks for")
    parser.add_argument("--program", help="what interference.cu was built to")
    parser.add_argument("--victims", help="specifications, apart by ; (a microbenchmark of each)")
    parser.add_argument("--channels", help="apart by commas (all)")
    parser.add_argument("--seconds", type=float, default=0.3, help="of each block (0.3)")
    parser.add_argument("--repetitions", type=int, default=3, help="blocks beside, a point (3)")
    parser.add_argument("--disjoint", action="store_true", help="all pairs on disjoint SMs")
    parser.add_argument("--resume", action="store_true", help="go on where the file stopped")
    options = parser.parse_args(arguments)
    if not options.json and not options.fit:
        parser.error("--json FILE is where the result goes")
    unknown = set((options.channels or "").split(",")) - set(CHANNELS) - {""}
    if unknown:
        parser.error(f"no channel {', '.join(sorted(unknown))}; there are {', '.join(CHANNELS)}")
    return options


def main(arguments):
    options = parse(arguments)
    if options.fit:
        print_fit(options.fit)
        return 0
    victims = options.victims.split(";") if options.victims else VICTIMS
    channels = options.channels.split(",") if options.channels else list(CHANNELS)
    result = {"version": 1, "seconds": options.seconds, "repetitions": options.repetitions,
              "curves": []}
    path = pathlib.Path(options.json)
    if options.resume and path.exists():
        result["curves"] = json.loads(path.read_text())["curves"]

    def save():
        report.write(result, path)

    try:
        program = options.program or build()
    except PairError as error:
        print(f"interference: {error}", file=sys.stderr)
        return 1
    failed = curves(program, victims, channels, options, result["curves"], save)
    save()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
