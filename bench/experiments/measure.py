#!/usr/bin/env python3
"""Measures series of scenarios (series.toml): on a GPU, in as many calls as it takes; on the
simulated GPU; in virtual time. Results and their tables lie in a folder for each series.

    measure.py pairs ratio --plan              what it would take, in seconds; starts nothing
    measure.py pairs --budget-s 540            as many scenarios as fit whole into this call
    measure.py pairs --budget-s 540 --resume   goes on: the next ones, or what was cut short
    measure.py beside_training --budget-s 560 --resume --collect "$OUT"    a call of a GPU session
    measure.py all --device virtual --seed 1 --out out/simulated                 predicts all of it
    measure.py six_pairs --device sim --scenario-s 60 --block-s 0.2 --out /tmp/m in short, no GPU

Each scenario is measured by `heddle-bench run`: its processes load once, all rows alternate. --out
gets SCENARIO.json, table.md and brief.md for each series, of what there is so far.

Whether a second run says the same: heddle-bench agree FIRST/SCENARIO.json SECOND/SCENARIO.json.
Exit status: 0 all is measured, 3 some is left for --resume, 1 something broke, 130 interrupted.
"""

import argparse
import json
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = ROOT / "bench/scenarios"
SERIES = tomllib.loads((Path(__file__).parent / "series.toml").read_text())

# Until one was seen: fifteen PyTorch processes load on 16 cores, warm up and compare their outputs.
LOAD_PROCESS_S = {"auto": 5, "sim": 0.5}
LOAD_S = {"auto": 5, "sim": 1}
PROFILE_JOB_S = 6  # as runner/run.cc keeps for each job
END_S = 6          # processes and MPS go
ENOUGH = 3         # repetitions without which a scenario says nothing of how they vary


class Scenario:
    """One of a series and the result that it has so far."""

    def __init__(self, name, series, options):
        self.series, self.options = series, options
        self.file = SCENARIOS / f"{name}.toml"
        self.name = self.file.stem
        self.pair = []
        if not self.file.exists():  # FILE/PAIR
            self.file, self.pair = self.file.parent.with_suffix(".toml"), ["--pair", self.name]
        self.out = options.out / series
        self.path = self.out / f"{self.name}.json"
        self.profiles = self.out / "profiles" / self.name
        self.plan = json.loads(subprocess.run(self.command("--plan"), text=True, check=True,
                                              stdout=subprocess.PIPE).stdout)
        self.limit_s = options.scenario_s or SERIES[series].get("scenario_s", float("inf"))
        self.result = {}
        self.read()

    def read(self):
        if self.path.exists():
            self.result = json.loads(self.path.read_text())

    def setting(self, key):
        """The command line's, the series', or None: the scenario's own."""
        return getattr(self.options, key) or SERIES[self.series].get(key)

    def command(self, *arguments):
        words = [self.options.dist / "bin/heddle-bench", "run", self.file, *self.pair,
                 "--device", self.options.device]
        if self.skips_alone:
            words.append("--skip-alone")
        if self.profiles.exists():
            words += ["--profiles", self.profiles]
        for key in ("policies", "baselines", "repetitions", "block_s", "seed"):
            value = self.setting(key)
            if value is not None:
                words += ["--" + key.replace("_", "-"),
                          ",".join(value) if isinstance(value, list) else value]
        return [str(word) for word in (*words, *arguments)]

    @property
    def skips_alone(self):
        return SERIES[self.series].get("skip_alone", False) and self.options.device != "virtual"

    @property
    def repetitions(self):
        return self.result.get("repetitions_done", 0)

    def used_s(self):
        return sum(session.get("wall_s", 0) for session in self.result.get("sessions", []))

    def learn_s(self):
        """What its programs' profiles may still take."""
        if self.profiles.exists() or self.options.device != "auto":
            return 0
        return SERIES[self.series].get("learn_s", 0)

    def learn(self):
        """False if a program's profile is not there: no policy would give it sizes."""
        verbs = [verb for verb in SERIES[self.series].get("learn", [])
                 if verb != "probe" or self.options.device == "auto"]  # it needs a GPU
        if self.profiles.exists() or not verbs or self.options.device == "virtual":
            return True
        found = self.profiles.with_suffix(".part")
        shutil.rmtree(found, ignore_errors=True)
        found.mkdir(parents=True)
        bench = self.options.dist / "bin/heddle-bench"
        status = run([bench, "learn", self.file, *self.pair, "--device", self.options.device,
                      "--profiles", found, *(f"--{verb}" for verb in verbs)])
        if status == 130:
            raise KeyboardInterrupt
        if status == 0:
            found.rename(self.profiles)
        return status == 0

    def load_s(self):
        loads = [s["prepared_s"] for s in self.result.get("sessions", []) if "prepared_s" in s]
        device, processes = self.options.device, self.plan["processes"]
        return max(loads, default=LOAD_S[device] + LOAD_PROCESS_S[device] * processes)

    def left_s(self):
        """What it may still take; 0 if it is done. In virtual time a second stands for all."""
        if self.options.device == "virtual":
            return 0 if "figures" in self.result else 1
        if self.result.get("finished"):
            return 0
        wanted = self.plan["repetitions"] * self.plan["parts"]
        repetition_s = self.plan["blocks_s"] / wanted
        profiled = 0 if self.skips_alone else self.plan["jobs"]
        extra_s = self.learn_s() + self.load_s() + PROFILE_JOB_S * profiled + END_S
        missing = min(ENOUGH * self.plan["parts"], wanted) - self.repetitions
        least = extra_s + max(1, missing) * repetition_s
        left = min(extra_s + (wanted - self.repetitions) * repetition_s,
                   self.limit_s - self.used_s())
        if left >= least or not self.result:
            return left
        return least if missing > 0 else 0

    def measure(self, seconds):
        """False if something broke."""
        begin = time.monotonic()
        if not self.learn():
            return False
        seconds = max(END_S, seconds - (time.monotonic() - begin))  # a repetition at least
        command = self.command("--json", self.path)
        if self.options.device != "virtual":
            command += ["--skip-outputs"] * self.options.skip_outputs
            command += ["--resume", "--budget-s", str(seconds - END_S),
                        "--logs", str(self.out / "logs" / self.name)]
        status = run(command)
        if status == 130:
            raise KeyboardInterrupt
        self.read()
        return status == 0


def names_of(series):
    """Its scenarios; * stands for each pair of a file."""
    for name in SERIES[series]["scenarios"]:
        file, star, _ = name.partition("/*")
        pairs = tomllib.loads((SCENARIOS / f"{file}.toml").read_text())["pair"] if star else [""]
        yield from (name.replace("*", pair) for pair in pairs)


def run(command):
    """To its end, whatever we are told meanwhile: heddle-bench ends its processes on SIGINT."""
    process = subprocess.Popen(command)
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)
        process.wait()
        raise


def measure(scenarios, options):
    """As many as fit whole into the call, and one at least. False if something broke."""
    until = time.monotonic() + options.budget_s
    todo = [scenario for scenario in scenarios if scenario.left_s()]
    print(f"{len(todo)} of {len(scenarios)} scenarios to measure", flush=True)
    whole = True
    for number, scenario in enumerate(todo):
        left, call = scenario.left_s(), until - time.monotonic()
        if number and left > call:
            break
        print(f"\n== {scenario.series}/{scenario.name}"
              + f": {min(left, call):.0f} s of {call:.0f} s" * (options.device != "virtual"),
              flush=True)
        whole = scenario.measure(min(left, call)) and whole
        if not scenario.result:  # refused at once: the others would be too
            return False
    return whole


def plan(scenarios, options):
    """What is left, in seconds of the GPU, loading included."""
    totals = {}
    for scenario in scenarios:
        p, left = scenario.plan, scenario.left_s()
        totals[scenario.series] = totals.get(scenario.series, 0) + left
        print(f"{scenario.series + '/' + scenario.name:34s} {left:6.0f} s: {len(p['rows'])} rows, "
              f"{p['processes']} processes, {scenario.repetitions} of "
              f"{p['repetitions'] * p['parts']} repetitions done, {p['blocks_s']:.0f} s of blocks")
    for series, left in totals.items():
        print(f"{series:34s} {left:6.0f} s, {left / options.budget_s:.1f} calls of "
              f"{options.budget_s:.0f} s: {SERIES[series]['about']}")
    print(f"{'in all':34s} {sum(totals.values()):6.0f} s")


def present(series, scenarios, options):
    """Tables of a series, of what there is."""
    out = options.out / series
    files = [s.path for s in scenarios if s.series == series and "figures" in s.result]
    for name, words in (("table.md", ["--wide"]), ("brief.md", [])) if files else ():
        with open(out / name, "w") as file:
            subprocess.run([options.dist / "bin/heddle-bench", "table", *words, *files],
                           stdout=file, check=True)


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="series:\n" + "\n".join(f"  {name:22s} {s['about']}" for name, s in SERIES.items()))
    add = parser.add_argument
    add("series", nargs="+", choices=(*SERIES, "all"), metavar="SERIES",
        help=f"{', '.join(SERIES)}; all but the first: all")
    add("--dist", type=Path, default=ROOT / "dist", help="install tree of heddle")
    add("--out", type=Path, default=ROOT / "out/measure", help="folder of the results")
    add("--device", choices=("auto", "sim", "virtual"), default="auto")
    add("--only", default=[], type=lambda text: text.split(","), help="these scenarios, by name")
    add("--budget-s", type=float, default=540, help="of this call")
    add("--scenario-s", type=float, help="of each scenario, over all calls")
    add("--repetitions", type=int, help="at most; else the series' or the scenario's own")
    add("--block-s", type=float, help="likewise")
    add("--seed", type=int)
    add("--policies", help="only these, as heddle-bench run takes them")
    add("--baselines", help="likewise")
    add("--skip-outputs", action="store_true", help="do not compare outputs: half of the loading")
    add("--resume", action="store_true", help="go on with what --out has")
    add("--collect", type=Path, help="folder that gets a copy of --out, whole or not")
    add("--plan", action="store_true", help="print what is left to measure, and start nothing")
    options = parser.parse_args()
    if "all" in options.series:
        options.series = list(SERIES)[1:]
    if options.device == "virtual":
        options.budget_s = float("inf")  # no GPU waits
    if not (options.dist / "bin/heddle-bench").exists():
        parser.error(f"--dist: {options.dist} is no install tree; see README.md")
    found = [path for series in options.series for path in (options.out / series).glob("*.json")]
    if found and not (options.resume or options.plan):
        parser.error(f"--out: {found[0]} is there already; --resume goes on with it")
    scenarios = [Scenario(name, series, options) for series in options.series
                 for name in names_of(series)]
    known = [scenario.name for scenario in scenarios]
    for name in options.only:
        if name not in known:
            parser.error(f"--only: no scenario {name}; there are: {', '.join(known)}")
    return options, [s for s in scenarios if not options.only or s.name in options.only]


def main():
    options, scenarios = parse()
    if options.plan:
        return plan(scenarios, options)
    for series in options.series:
        (options.out / series).mkdir(parents=True, exist_ok=True)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        whole = measure(scenarios, options)
        for series in options.series:
            present(series, scenarios, options)
    except KeyboardInterrupt:
        print(f"interrupted; what was measured is in {options.out}, go on with --resume")
        return 130
    finally:
        if options.collect:
            shutil.copytree(options.out, options.collect, dirs_exist_ok=True)
    left = [scenario.name for scenario in scenarios if scenario.left_s()]
    for scenario in scenarios:
        print(f"{scenario.name}: {scenario.repetitions} repetitions, {scenario.used_s():.0f} s")
    if left:
        print(f"left for --resume: {', '.join(left)}")
    print(f"results and tables: {options.out}")
    return 1 if not whole else 3 if left else 0


if __name__ == "__main__":
    sys.exit(main())
