#!/usr/bin/env python3
"""Is a promise kept? A victim whose rule says slowdown_max = 1.10 beside best effort: under
heddle's policies, MPS alone, and static settings.

    promise.py --json FILE [--victims A,B] [--antagonists X,Y+Z] [--rows ROW,ROW] [--limit SECONDS]
                             measures; --resume goes on where FILE stopped; --plan starts nothing
    promise.py --table FILE ...   prints what came out, as Markdown
    promise.py --sim --json /tmp/promise.json     stand-ins on the simulated GPU: the logic alone

A cell is a victim beside one antagonist, or several at once (Y+Z; --random N draws N pairs). All
of a cell's processes stay: in blocks alone the antagonists wait for their next command. Each row
is blocks A B A B ... A: A the victim alone, B all together. A block B is kept if the victim's mean
run is at most 1.10 x the mean of the two blocks A around it. A block lasts a second, and longer
where the victim needs it for 30 runs.

    ROW    ipc_budget, combined:fence_sm=32, ...   a policy, both jobs under heddle
           mps, mps+priority   MPS without heddle, alike or with best effort at client priority 1
           static:G, static:G+priority    best effort on G of the 16 SM groups, by heddle's sets;
                    with +priority the victim's blocks go first
           percent:G, percent:G+priority  the same by MPS's active thread percentage, without heddle
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import promise_rows
import promise_table
from harness import figures, report
from harness.processes import PINNED, Daemon, HostError, Job, Mps
from harness.session import Session, add_origin, origin

HERE = Path(__file__).resolve().parent
BAR = 1.10
LEAD_S, TAIL_S, SEND_S = 0.3, 0.1, 0.05
STAGE_S = 8     # at most, until heddle knows a program
START_S = 45    # of a cell's processes, for the plan
LEARN_S = 150   # of a program's sweep or probe, at most
ALONE_BLOCKS = 2


def block_seconds(mean_us, options):
    """Long enough for the runs asked for, also where they take half as long again."""
    return max(options.block_s, 1.5 * options.runs * mean_us / 1e6)


def told(answer):
    """What is kept of a block of a job."""
    us = sorted(answer["us"])
    if not us or answer["span_s"] <= 0:
        return {"n": 0, "per_s": 0.0}
    return {"n": len(us), "mean_us": round(statistics.fmean(us), 1),
            "p99_us": figures.quantile(us, 0.99), "per_s": round(len(us) / answer["span_s"], 4)}


def row_seconds(row, options, block_s):
    """Of a row with so many blocks B, and A around each."""
    around = LEAD_S + TAIL_S + SEND_S
    settles = options.settle_s + around + 0.3 if row.by else 0
    return (2 * options.blocks + 1) * (block_s + around) + settles


class PromiseDaemon(Daemon):
    """heddled with the rule that promises, and static.lua among its policies."""

    def __init__(self, cell, name, policy):
        options = cell.options
        lines = ["[[rule]]", 'name = "victims"', 'label = "victim"', "priority = 0",
                 f"slowdown_max = {options.slowdown_max}",
                 "[[rule]]", 'name = "best effort"', 'label = "best-effort*"', "priority = 9"]
        folder = cell.folder / name
        if options.profiles:
            shutil.copytree(options.profiles, folder / "profiles")
            lines.insert(0, f'profiles.directory = "{folder / "profiles"}"')
        # The host's quarantine is none of ours.
        super().__init__(options.dist, folder, True, cell.env | {"STATE_DIRECTORY": str(folder)},
                         lines, policy)
        self.sim = options.sim
        self.extra_policies = [HERE / "scenarios/static.lua"]

    def prefix(self, role, label):
        return [self.heddle, "run", "--quiet", "--label", label, *["--sim"] * self.sim, "--"]

    def command(self, *arguments):
        # Nobody runs while a policy changes: there are no first decisions to wait for.
        changes = arguments[:2] in (("policy", "load"), ("policy", "set"))
        return super().command(*arguments, *["--wait", "0"] * changes)

    def policy_now(self):
        return self.status()["status"]["policy"]

    def restart(self, clients):
        """Anew, so that what programs did while they loaded is no measurement of them."""
        self.stop()
        self.loaded = None
        self.spawn()
        end = time.monotonic() + 10
        while len(self.status()["ps"]["clients"]) < clients:
            if time.monotonic() > end:
                raise HostError(f"heddled's clients do not come back; see {self.log}")
            time.sleep(0.05)


class SimulatedGpu:
    """In the place of Mps: a GPU whose clients run beside each other."""

    def __init__(self, folder, dist):
        self.folder, self.dist, self.process = folder, dist, None
        self.env = {"HEDDLE_SIM_SOCKET": str(folder / "gpu"), "HEDDLE_SIM_MODE": "mps"}

    def start(self):
        self.folder.mkdir(parents=True)
        self.process = subprocess.Popen([self.dist / "lib/heddle/sim/heddle-sim-gpu"],
                                        env=os.environ | self.env, stdout=subprocess.DEVNULL)
        end = time.monotonic() + 10
        while not (self.folder / "gpu").exists():
            if self.process.poll() is not None or time.monotonic() > end:
                raise HostError("heddle-sim-gpu did not start; build and install heddle first")
            time.sleep(0.01)

    def stop(self):
        if self.process:
            self.process.terminate()
            self.process.wait()


def words_of(name, options):
    script, (kernels, us, blocks) = promise_rows.WORKLOADS[name]
    if options.sim:
        return [str(options.dist / "libexec/heddle/heddle-synthetic"), "--kernels", str(kernels),
                "--kernel-us", str(us), "--gap-us", "0", "--pause-us", "100", "--blocks",
                str(blocks), "--seed", "1"]
    return ["python3", str(options.dist / "libexec/heddle/workloads" / script[0]), *script[1:]]


class Cell:
    """The processes of one victim and its antagonists, and their blocks."""

    def __init__(self, victim, antagonists, rows, options, folder):
        self.victim, self.antagonists, self.rows = victim, antagonists, rows
        self.options, self.folder = options, folder
        self.mps = (SimulatedGpu(folder / "mps", options.dist) if options.sim
                    else Mps(folder / "mps"))
        self.env = dict(self.mps.env)
        self.daemons, self.victims, self.others = {}, {}, {}
        self.block_s = options.block_s

    def start(self):
        self.mps.start()
        for name in dict.fromkeys(row.by for row in self.rows if row.by):
            self.daemons[name] = PromiseDaemon(self, name, "static" if name == "static"
                                               else "priority")
            self.daemons[name].start()
        bare = ("", ())  # what each is alone
        for own, beside in [(bare, bare), *(row.processes() for row in self.rows)]:
            if own not in self.victims:
                self.victims[own] = self.job(self.victim, "hp", "victim", own)
            if beside not in self.others:
                self.others[beside] = [
                    self.job(name, "be" if i == 0 else "", f"best-effort-{i}", beside)
                    for i, name in enumerate(self.antagonists)]
        for job in self.jobs():
            job.wait_ready()
        for name, daemon in self.daemons.items():
            managed = [job for by, job in self.by_daemon() if by == name]
            daemon.restart(len(managed))
            for job in managed:
                self.learn(daemon, job)

    def job(self, name, side, label, key):
        by, environment = key
        command, env = words_of(name, self.options), PINNED | self.env | dict(environment)
        if by:
            command = self.daemons[by].prefix(side, label) + command
            env["HEDDLE_SOCKET"] = str(self.daemons[by].socket)
        elif self.options.sim:
            env["LD_LIBRARY_PATH"] = str(self.options.dist / "lib/heddle/sim")
        self.made = getattr(self, "made", 0) + 1
        log = self.folder / f"{self.made}.{label}.log"
        return Job(f"{label} ({name}, {by or 'bare'})", side, command, env, log)

    def jobs(self):
        return [*self.victims.values(), *(job for group in self.others.values() for job in group)]

    def by_daemon(self):
        return [*((by, job) for (by, _), job in self.victims.items()),
                *((by, job) for (by, _), group in self.others.items() for job in group)]

    def learn(self, daemon, job):
        """Its measurement stage, alone, until heddle has a profile of it."""
        end = time.monotonic() + STAGE_S
        while time.monotonic() < end:
            self.together([job], 0.5)
            found = [device.get("profiled") for client in daemon.status()["ps"]["clients"]
                     if client["pid"] == job.about.get("pid") for device in client["devices"]]
            if found and all(found):
                return

    def together(self, jobs, seconds):
        """A block of these at the same time; the others wait."""
        start = time.monotonic() + SEND_S + LEAD_S
        for job in jobs:
            # The victim's neighbours outlast it, so that it has company for the whole of its block.
            job.send("go", f"{start:.6f}", seconds, LEAD_S, TAIL_S)
        return [told(job.answer(seconds + 60)) for job in jobs]

    def alone(self):
        """Each by itself, without heddle: what throughputs and STP are taken over."""
        found = {}
        for name, job in zip((self.victim, *self.antagonists),
                             (self.victims["", ()], *self.others["", ()])):
            first = self.together([job], min(self.options.block_s, 1))[0]
            if not first["n"]:
                raise HostError(f"{job.name}: no run ended in a block; give a longer --block-s")
            seconds = block_seconds(first["mean_us"], self.options)
            if name == self.victim:
                self.block_s = seconds
            found.setdefault(name, []).extend(
                self.together([job], seconds)[0] for _ in range(ALONE_BLOCKS))
        return found

    def measure(self, row):
        """A B A B ... A of a row."""
        own, beside = row.processes()
        victim, others = self.victims[own], self.others[beside]
        if any(job.broken for job in (victim, *others)):
            raise HostError("a process of it died in an earlier row")
        daemon = self.daemons.get(row.by)
        if daemon:
            daemon.use(row.policy, row.params)
            self.together([victim, *others], self.options.settle_s)
            faults = daemon.policy_now()["faults"]
        before = self.promise(daemon)
        blocks = [self.block(victim, [])]
        for _ in range(self.options.blocks):
            blocks += [self.block(victim, others), self.block(victim, [])]
        after = self.promise(daemon)
        if daemon and ((now := daemon.policy_now())["name"], now["faults"]) != (row.policy, faults):
            raise HostError(f"policy {row.policy} failed, and {now['name']} decided: "
                            f"{now['faulted'] or now['error'] or 'see --logs'}")
        return {"blocks": blocks} | ({"promise": [before, after]} if before and after else {})

    def block(self, victim, others):
        first, *rest = self.together([victim, *others], self.block_s)
        if not others:
            return {"kind": "alone", **first}
        return {"kind": "beside", **first, "others": [other["per_s"] for other in rest]}

    @staticmethod
    def promise(daemon):
        """The victim's, as heddled counts it."""
        clients = daemon.counters().get("ps", {}).get("clients", []) if daemon else []
        return next((device["promise"] for client in clients if client["label"] == "victim"
                     for device in client["devices"] if device.get("promise")), None)

    def drain(self):
        for job in self.jobs():
            job.drain()

    def stop(self):
        for job in self.jobs():
            job.stop()
        for daemon in self.daemons.values():
            daemon.stop()
        self.mps.stop()


class Promise(Session):
    def __init__(self, options, before):
        super().__init__(options, origin(options, "promise") | {
            "seed": options.seed, "bar": BAR, "slowdown_max": options.slowdown_max,
            "block_s": options.block_s, "runs": options.runs, "blocks": options.blocks,
            "cells": before.get("cells", []), "learned": before.get("learned", {}), "errors": []})

    def run(self):
        try:
            if (self.options.probe or self.options.sweep) and not self.learn_profiles():
                return self.say("the time is spent; --resume goes on")
        except (OSError, subprocess.SubprocessError) as error:
            return self.fail(f"profiles: {error}")
        for victim, antagonists in self.options.cells:
            cell = next((c for c in self.result["cells"] if (c["victim"], c["antagonists"])
                         == (victim, antagonists)), None)
            if cell is None:
                cell = {"victim": victim, "antagonists": antagonists, "rows": {}}
                self.result["cells"].append(cell)
            rows = [row for row in self.options.parsed
                    if "blocks" not in cell["rows"].get(row.name, {})]
            if not rows:
                continue
            if self.left_s() < (20 if self.options.sim else START_S):
                self.say("the time is spent; --resume goes on")
                break
            try:
                self.measure(cell, rows)
            except (HostError, OSError, subprocess.SubprocessError) as error:
                self.fail(f"{victim} beside {'+'.join(antagonists)}: {error}")
            self.save()

    def rows_left(self):
        done = {(c["victim"], *c["antagonists"], name) for c in self.result["cells"]
                for name, row in c["rows"].items() if "blocks" in row}
        return sum((victim, *others, row.name) not in done
                   for victim, others in self.options.cells for row in self.options.parsed)

    def measure(self, found, rows):
        with tempfile.TemporaryDirectory(prefix="heddle-promise-") as folder:
            cell = Cell(found["victim"], found["antagonists"], rows, self.options, Path(folder))
            try:
                cell.start()
                for name, blocks in cell.alone().items():
                    found.setdefault("alone", {}).setdefault(name, []).extend(blocks)
                found["block_s"] = round(cell.block_s, 3)
                for row in rows:
                    if self.left_s() < row_seconds(row, self.options, cell.block_s):
                        self.say("the time is spent; --resume goes on")
                        break
                    try:
                        found["rows"][row.name] = cell.measure(row)
                    except HostError as error:
                        found["rows"][row.name] = {"error": str(error)[-500:]}
                        self.fail(f"{found['victim']}, {row.name}: {error}")
                        cell.drain()
                    self.save()
                    self.say(promise_table.line(found, row.name))
            finally:
                if self.options.logs:
                    report.keep_logs(Path(folder), self.options.logs)
                cell.stop()

    def learn_profiles(self):
        """Profiles of every workload in use, into the folder --profiles: sizes first, for a probe
        keeps what a profile has. What an earlier call learned is not learned again. False if the
        time did not suffice."""
        options, learned = self.options, self.result["learned"]
        options.profiles.mkdir(parents=True, exist_ok=True)
        names = dict.fromkeys(name for victim, others in options.cells
                              for name in (victim, *others))
        for verb in ["sweep"] * options.sweep + ["probe"] * options.probe:
            for name in names:
                if name in learned.setdefault(verb, []):
                    continue
                if self.left_s() < (20 if options.sim else LEARN_S):
                    return False
                if self.learn(verb, name):
                    learned[verb].append(name)
                self.save()
        return True

    def learn(self, verb, name):
        """True if the program's profile has it now. A probe needs MPS, a sweep none."""
        options = self.options
        with tempfile.TemporaryDirectory() as folder:
            mps = Mps(Path(folder) / "mps")
            if verb == "probe":
                mps.start()
            try:
                done = subprocess.run(
                    [options.dist / "bin/heddle", "profile", verb, "--output", options.profiles,
                     *profile_words(verb, options), "--", sys.executable, HERE / "krisp.py",
                     "--alone", "3600" if verb == "probe" else "2.5", *words_of(name, options)],
                    text=True, capture_output=True, timeout=self.left_s(),
                    env=os.environ | (mps.env if verb == "probe" else {}))
            finally:
                mps.stop()
        self.say(f"{verb} {name}: exit {done.returncode}: {done.stderr.strip()[-200:]}")
        return done.returncode == 0

    def save(self):
        report.write(self.result, self.options.json)


def profile_words(verb, options):
    if verb == "sweep":
        return ["--groups", options.groups, *["--sim"] * options.sim]
    return ["--program", options.program] if options.program else []


def parse(arguments):
    parser = argparse.ArgumentParser(prog="promise.py", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument

    def listed(text):
        return [word for word in text.split(",") if word]

    add("--json", type=Path, help="the result")
    add("--table", type=Path, nargs="+", metavar="FILE", help="print the tables of these together")
    add("--dist", type=Path, default=HERE.parent / "dist", help="install tree of heddle")
    add("--victims", type=listed, default=list(promise_rows.VICTIMS))
    add("--antagonists", type=listed, default=list(promise_rows.ANTAGONISTS))
    add("--random", type=int, default=0, help="so many drawn pairs of antagonists too (0)")
    # A row's parameters have commas too: KEY=VALUE alone belongs to the row before it.
    add("--rows", type=listed, default=list(promise_rows.ROWS))
    add("--blocks", type=int, default=3, help="blocks together of each row (3)")
    add("--block-s", type=float, default=1.0, help="least length of a block (1)")
    add("--runs", type=int, default=30, help="least runs of the victim in a block (30)")
    add("--settle-s", type=float, default=1.0, help="together before a policy's first block (1)")
    add("--slowdown-max", type=float, default=BAR, help="of the victim's rule (1.10)")
    add("--profiles", type=Path, help="folder of profiles that heddled reads")
    add("--probe", action="store_true", help="first measure them: heddle profile probe")
    add("--sweep", action="store_true", help="and heddle profile sweep")
    add("--groups", default="1,2,4,8,12", help="of --sweep")
    add("--program", type=Path, help="of --probe: interference.cu as it was built")
    add("--limit", type=float, default=540, dest="budget_s", help="seconds in all (540)")
    add("--resume", action="store_true", help="go on where the file stopped")
    add("--plan", action="store_true", help="print the seconds it takes; start nothing")
    add("--seed", type=int, default=1)
    add("--logs", type=Path, help="folder for the logs of daemons and jobs")
    add("--commit", default=os.environ.get("HEDDLE_COMMIT", ""))
    add("--sim", action="store_true", help="stand-ins on the simulated GPU")
    options = parser.parse_args(arguments)
    if options.table:
        return options
    if not options.json and not options.plan:
        parser.error("--json FILE is where the result goes, and --table FILE prints one")
    if (options.probe or options.sweep) and not options.profiles:
        parser.error("--profiles FOLDER is where what --probe and --sweep measure goes")
    if options.probe and options.sim:
        parser.error("--probe needs a GPU; leave out --sim")
    for name in [*options.victims, *(n for a in options.antagonists for n in a.split("+"))]:
        if name not in promise_rows.WORKLOADS:
            parser.error(f"no workload '{name}'; there are {', '.join(promise_rows.WORKLOADS)}")
    plain = [name for name in options.antagonists if "+" not in name]
    mixes = promise_rows.drawn_mixes(plain, options.random, options.seed)
    options.cells = [(victim, name.split("+")) for victim in options.victims
                     for name in [*options.antagonists, *mixes]]
    for script in sorted({promise_rows.WORKLOADS[name][0][0]
                          for victim, others in options.cells for name in (victim, *others)}):
        file = options.dist / "libexec/heddle/workloads" / script
        if not (options.sim or options.plan or file.exists()):
            parser.error(f"{file} is not there; install heddle, or name its tree by --dist")
    policies = sorted(path.stem for path in (HERE.parent / "policies").rglob("*.lua")
                      if path.parent.name != "lib" and not path.stem.endswith("_test"))
    try:
        options.parsed = [promise_rows.parse_row(name, policies)
                          for name in promise_rows.joined(options.rows)]
    except promise_rows.BadRow as error:
        parser.error(str(error))
    return options


def plan(options):
    each = sum(row_seconds(row, options, options.block_s) for row in options.parsed)
    start = (20 if options.sim else START_S) + 3 * ALONE_BLOCKS * options.block_s
    return {"cells": len(options.cells), "rows": [row.name for row in options.parsed],
            "seconds": round(len(options.cells) * (each + start)),
            "seconds_a_cell": round(each + start)}


def measured_before(options):
    """What is in the file, if --resume may go on with it."""
    if not options.json.exists():
        return {}
    if not options.resume:
        raise ValueError("is there already; go on with it by --resume, or move it away")
    before = json.loads(options.json.read_text())
    for key, now in (("gpu", options.gpu[0]), ("slowdown_max", options.slowdown_max),
                     ("block_s", options.block_s), ("runs", options.runs)):
        if before.get(key) != now:
            raise ValueError(f"has {key} {before.get(key)}, and this run {now}; give another file")
    return before


def main(arguments):
    options = parse(arguments)
    if options.table:
        results = [json.loads(path.read_text()) for path in options.table]
        print(promise_table.text(promise_table.merged(results)))
        return 0
    if options.plan:
        print(json.dumps(plan(options), indent=1))
        return 0
    options = add_origin(options, "bench/promise.py", arguments)
    try:
        before = measured_before(options)
    except ValueError as error:
        sys.exit(f"promise.py: {options.json}: {error}")
    promise = Promise(options, before)
    promise.run()
    promise.save()
    promise.say(f"{promise.rows_left()} rows are left")
    return 1 if promise.result["errors"] else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that finally clauses run
    sys.exit(main(sys.argv[1:]))
