#!/usr/bin/env python3
"""Held on the GPU instead of asking: pairs under bare sharing, MPS with stream priority, heddle by
asking and heddle with gates, in turn, on one GPU.

    gates.py OUT.json [--budget-s 420] [--cells graph1,eager] [--ways gates] [--tools DIR] [--sim]
             [--dist DIR]

Every process loads once; what is measured is told to it (workloads/switched.py). First come values:
chains of iterations that must equal bare, and programs in DIR that check themselves (*_campaign).
Then every cell once, in order, then once more while there is time. Figures are ÷ the same process
alone; with --ways ÷ bare alone, which leaves the time to many requests. Over 5 000 of H in 200 s:
--cells graph2 --ways gates --scale 1.5 --repetitions 7. OUT.json is what bench/table.py reads; the
samples lie beside it.
"""

import gzip
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

BENCH = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(BENCH))

from harness import report, session  # noqa: E402
from harness.beside import Cell, moved, rounded, told  # noqa: E402
from harness.processes import HostError, tail  # noqa: E402
from harness.sides import Mode, name_of  # noqa: E402

POLICIES = {"graph": "priority", "slice": "priority", "cost": "priority", "eager": "gapfill",
            "closed": "gapfill:slowdown_pct=10"}
SETTLE_S = {"eager": 1.5, "closed": 3}  # once for each side, where a policy corrects itself
VALUES_S = 45  # at most, for a program that checks itself
RESERVED_S = 30  # for the crowd


def torch(kind, model, batch):
    return {"kind": kind, "model": model, "batch": batch}


RESNET152, DENSENET = torch("graph", "resnet152", 8), torch("graph", "densenet201", 1)
RESNEXT = torch("graph", "resnext101_32x8d", 8)
TRAIN50, TRAIN_VGG = torch("training", "resnet50", 32), torch("training", "vgg16", 16)
TRAIN_SMALL, TICK = torch("training", "mobilenet_v2", 16), {"kind": "tick"}
EAGER50, EAGER_DENSE = torch("eager", "resnet50", 1), torch("eager", "densenet201", 1)
# In the order of their importance. load: of H, by requests that come as Poisson says; 0: one behind
# the other. tick: H is a short kernel a hundred times a second, so that L has company.
CELLS = {
    "graph1": (RESNET152, RESNEXT, 0.5, "mps", 4),
    "eager1": (EAGER50, TRAIN50, 0, "mps", 1.5),
    "closed": (DENSENET, RESNEXT, 0, "mps", 2),
    "cost_graph": (TICK, RESNEXT, 0, "mps", 1.5),
    "cost_eager": (TICK, TRAIN_SMALL, 0, "mps", 1.5),
    "graph2": (DENSENET, RESNEXT, 0.5, "mps", 4),
    "slice_training": (RESNET152, TRAIN50, 0.5, "timeslice", 3),
    "slice_graph": (RESNET152, RESNEXT, 0.5, "timeslice", 3),
    "eager2": (EAGER_DENSE, TRAIN_SMALL, 0, "mps", 1.5),
    "eager3": (EAGER50, TRAIN_VGG, 0, "mps", 1.5),
    "eager4": (EAGER_DENSE, TRAIN50, 0, "mps", 1.5),
}
TICKS = 100  # a second


class Round:
    def __init__(self, options):
        self.options, self.begun = options, time.monotonic()
        self.folder = Path(tempfile.mkdtemp(prefix="gates-"))
        self.cells = [c for c in CELLS if not options.cells or c in options.cells.split(",")]
        self.modes, self.errors, self.values, self.probes = {}, [], {}, {}
        self.blocks, self.service, self.settled, self.revived = [], {}, set(), set()

    def left_s(self):
        return self.options.budget_s - (time.monotonic() - self.begun)

    def say(self, *words):
        print(f"[{time.monotonic() - self.begun:5.1f}]", *words, flush=True)

    def fail(self, text):
        self.errors.append(text[:600])
        self.say("ERROR", text[:600])

    def run(self):
        try:
            for name in sorted({CELLS[c][3] for c in self.cells}):
                mine = [CELLS[c] for c in self.cells if CELLS[c][3] == name]
                wanted = {role: list({name_of(cell[at]): cell[at] for cell in mine}.values())
                          for at, role in enumerate("HL")}
                for mode in self.modes.values():
                    mode.wait()  # the last one loads while values are compared
                self.modes[name] = Mode(name, wanted, self.folder, self.options.dist,
                                        self.options.sim, self.options.ways)
            for mode in self.modes.values():
                self.compare(mode)
            self.write()
            for repetition in range(self.options.repetitions):
                for cell in self.cells:
                    if self.left_s() > RESERVED_S:
                        self.attempt(cell, self.measure, cell, repetition)
                if repetition == 0:
                    self.attempt("probes", self.probe)
                self.write()
            if self.left_s() > RESERVED_S - 10:
                self.attempt("crowd", self.crowd)
        finally:
            self.write()
            self.tell_all()
            for mode in self.modes.values():
                mode.stop()
            report.keep_logs(self.folder, self.options.out.parent)
            shutil.rmtree(self.folder, ignore_errors=True)

    def compare(self, mode):
        mode.wait()
        for error in mode.errors:
            self.fail(error)
        self.say(mode.name, "is ready")
        self.attempt("values", self.compare_values, mode)

    def attempt(self, what, call, *arguments):
        try:
            call(*arguments)
        except (HostError, OSError, KeyError, ValueError, subprocess.SubprocessError) as error:
            self.fail(f"{what}: {type(error).__name__} {error}")
            for mode in self.modes.values():
                for side in mode.sides.values():
                    self.revive(mode, side)

    def revive(self, mode, side):
        """A process that died or hung is started again, once; what it left in the log is told."""
        if side.daemon and side.daemon.process.poll() is not None:
            self.fail(f"heddled ended: {tail(side.daemon.log, 8)}")
            side.daemon.spawn()
            side.daemon.loaded = None
        for role, job in list(side.jobs.items()):
            if job.running() and not job.broken:
                continue
            job.give_up()
            if job.name not in self.revived:
                self.revived.add(job.name)
                self.say("reviving", job.name, "|", tail(job.log, 4)[-300:], "|",
                         tail(side.daemon.log, 4)[-500:] if side.daemon else "")
                mode.load(side, role)

    # ---- values ----

    def compare_values(self, mode):
        """Chains beside H, whose requests close the gates and open them again."""
        jobs = [name_of(job) for job in mode.wanted["L"]]
        h = name_of(min(mode.wanted["H"], key=lambda job: job["kind"] == "tick"))
        chain = {"do": "chain", "count": self.options.chain}
        bare, again = ({job: mode.sides["bare"].ask("L", job=job, **chain) for job in jobs}
                       for _ in range(2))
        for way in ("gates", "ask"):  # what asking does matters where gates differ
            if way not in mode.sides:
                continue
            side, label = mode.sides[way], f"{mode.name} {way}"
            side.daemon.use("priority", {})
            before = side.counters("L")
            side.send("H", do="requests", job=h, start=time.monotonic(), seconds=0, rate=60, seed=1)
            tools = self.tools(side) if way == "gates" else []
            try:
                for job in jobs:
                    found = side.ask("L", job=job, **chain)
                    self.values[f"{label} {job}"] = (
                        "equal" if found == bare[job] else
                        "different" if again[job] == bare[job] else "differs bare")
                moves = moved(before, side.counters("L"))
                for tool, process in tools:
                    self.values[f"{label} {tool}"] = self.end(process)
            finally:
                for _, process in tools:
                    process.kill()
                side.send("H", do="stop")
                side.answer("H", 20)
            mine = {k: v for k, v in self.values.items() if k.startswith(label)}
            self.say(mine, moves, "left" if side.left("L") else "")
            if "different" not in mine.values():
                return

    def tools(self, side):
        """Programs that check themselves, beside the chain."""
        found = []
        for program in sorted(self.options.tools.glob("*_campaign")) if self.options.tools else ():
            for seed in (51, 52) if side.mode.name == "mps" else (53,):
                command = [*side.prefix("L", "tool"), program, "--seed", str(seed), "--rounds",
                           str(self.options.rounds)]
                found.append((f"{program.name} {seed}", subprocess.Popen(
                    command, env=os.environ | side.env, text=True, stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT)))
        return found

    @staticmethod
    def end(process):
        try:
            text = process.communicate(timeout=VALUES_S)[0].strip()
        except subprocess.TimeoutExpired:
            return "TIMEOUT"
        return "equal" if process.returncode == 0 else f"rc {process.returncode}: {text[-200:]}"

    # ---- cells ----

    def measure(self, name, repetition):
        h, l, load, mode, seconds = CELLS[name]
        mode, family = self.modes[mode], name.split("_")[0].rstrip("1234")
        tick, seconds = h["kind"] == "tick", seconds * self.options.scale
        policy, _, text = self.options.policies.get(family, POLICIES[family]).partition(":")
        for side in mode.sides.values():
            if side.daemon:
                side.daemon.use(policy, dict(pair.split("=") for pair in text.split(",") if pair))
        work = {"H": name_of(h), "L": name_of(l)}
        cell = {"cell": name, "repetition": repetition, "work": work,
                "rate": TICKS if tick else self.rate(mode, work["H"], load)}

        def block(what, way, roles, seconds, priority=0):
            self.attempt(name, self.block, mode.sides[way], priority,
                         cell | {"what": what, "roles": roles, "seconds": seconds})

        # A launch-bound program differs from process to process; a graph that fills the GPU does
        # not. H's queue is the same in blocks that are as long.
        ways = mode.sides if h["kind"] == "eager" else ("bare", "gates")
        if self.options.ways:
            ways = ("bare",)
        if not tick:
            for what, way in [*(("alone", way) for way in ways), ("again", "bare")]:
                block(what, way, "H", seconds)
        every = mode.sides if l["kind"] == "training" or not repetition else ways
        for way in ways if self.options.ways else every:
            block("alone", way, "L", min(seconds, 1.2))
        ways = [(way, 0) for way in self.options.ways or mode.sides]
        if mode.name == "mps" and not tick and not self.options.ways:
            ways.append(("bare", -5))
            if load and repetition:
                ways.remove(("bare", 0))  # there the queue only grows, which is told once
        random.Random(repetition).shuffle(ways)
        for way, priority in ways:
            if way != "bare" and (name, way) not in self.settled:
                self.settled.add((name, way))
                block("settle", way, "HL", SETTLE_S.get(family, 0.5) * self.options.scale)
            block("beside", way, "HL", seconds, priority)
        self.say(told(name, self.figures(name)))

    def rate(self, mode, name, load):
        """Requests a second that keep H busy for `load` of the time, by its own time alone."""
        if not load:
            return 0
        if name not in self.service:
            for _ in range(2):  # the first warms up
                taken = mode.sides["bare"].ask("H", do="requests", job=name, seconds=0.5,
                                               start=time.monotonic() + 0.02)["us"]
            self.service[name] = statistics.mean(taken) / 1e6
        return round(load / self.service[name], 2)

    def block(self, side, priority, block):
        roles, work, seconds = block["roles"], block["work"], block["seconds"]
        if any(side.jobs[role].broken for role in roles):
            return  # which was told
        start = time.monotonic() + 0.02 + 0.4 * ("L" in roles)
        when = {"start": start, "seconds": seconds}
        if "L" in roles:
            side.send("L", do="loop", job=work["L"], **when)
        if "H" in roles:
            side.send("H", do="requests", job=work["H"] + (f"@{priority}" if priority else ""),
                      rate=block["rate"], seed=block["repetition"], **when)
        managed = side.daemon and "L" in roles
        before = side.counters("L") if managed else {}
        cpu_s, wall = side.cpu_s(), time.monotonic()
        time.sleep(max(0, start + seconds - time.monotonic()))
        cpu_s, wall = side.cpu_s() - cpu_s, time.monotonic() - wall
        try:
            found = {role: side.answer(role, 15) for role in roles}
        except HostError:
            if side.daemon:
                self.say("hangs:", side.mode.name, side.way, side.counters("L"), side.left("L"))
            raise
        if any(of.pop("late") for of in found.values()):
            self.say("late:", block, side.way)
        found["way"] = "priority" if priority else side.way
        if managed:
            found |= {"heddled": round(cpu_s / wall, 3), "left": side.left("L"),
                      "counters": moved(before, side.counters("L"))}
        self.blocks.append(block | found)

    # ---- probes ----

    def probe(self):
        """What a launch costs a leased service, and how soon a gate closes behind its launch."""
        if "mps" not in self.modes:
            return
        side = self.modes["mps"].sides["gates"]
        for job in self.modes["mps"].wanted["H"]:
            if job["kind"] == "eager" and self.left_s() > RESERVED_S:
                got = side.ask("H", do="pairs", job=name_of(job), start=time.monotonic() + 0.4,
                               seconds=2 * self.options.scale)
                self.note(f"leased ÷ bypassed {name_of(job)}", {
                    name: rounded(figure(got["us"]) / figure(got["bypassed_us"]))
                    for name, figure in (("mean", statistics.mean), ("median", statistics.median))})
        bell = self.options.tools and self.options.tools / "bell"
        if not bell or not bell.exists():
            return
        side.daemon.use("priority", {})
        for job in (None, *self.modes["mps"].wanted["L"][:2]):
            if job:
                side.send("L", do="loop", job=name_of(job), start=time.monotonic() + 0.4, seconds=3)
            command = [bell, str(side.jobs["L"].about["pid"] if job else 0), "2.5" if job else "1"]
            got = subprocess.run([*side.prefix("H", "bell"), *command], capture_output=True,
                                 env=os.environ | side.env, text=True, timeout=20)
            if job:
                side.answer("L", 20)
            self.note(f"bell beside {name_of(job) if job else 'nobody'}",
                      got.stdout.strip()[-300:] or got.stderr[-300:])

    def crowd(self):
        """What heddled works beside one and four trainings of many short launches."""
        if "cost_eager" not in self.cells or self.options.repetitions < 2:
            return  # which load what this needs
        mode, names = self.modes["mps"], ("L2", "L3", "L4")
        side, mode.wanted = mode.sides["gates"], mode.wanted | {"L": [TRAIN_SMALL]}
        threads = [threading.Thread(target=mode.load, args=(side, "L", name)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for mine in (["L"], ["L", *names]):
            when = {"start": time.monotonic() + 0.5, "seconds": 2}
            side.send("H", do="requests", job=name_of(TICK), rate=TICKS, seed=1, **when)
            for name in mine:
                side.send(name, do="loop", job=name_of(TRAIN_SMALL), **when)
            time.sleep(max(0, when["start"] - time.monotonic()))
            before, cpu_s = side.counters("L")["launches"], side.cpu_s()
            time.sleep(1.8)
            cpu_s, after = side.cpu_s() - cpu_s, side.counters("L")["launches"]
            for name in ("H", *mine):
                side.answer(name, 20)
            self.note(f"heddled beside {len(mine)}", {
                "cores": rounded(cpu_s / 1.8), "launches_per_s": round((after - before) / 1.8)})

    def note(self, name, value):
        self.probes[name] = value
        self.say(name, value)

    # ---- what is told ----

    def figures(self, name):
        h, l, load, mode, _ = CELLS[name]
        return {"h": name_of(h), "l": name_of(l), "load": load, "mode": mode,
                **Cell([b for b in self.blocks if b["cell"] == name]).figures()}

    def measured(self):
        return {c: self.figures(c) for c in self.cells if any(b["cell"] == c for b in self.blocks)}

    def tell_all(self):
        print(f"\n== {self.options.gpu[0]}, {self.options.commit}, {self.options.date}")
        for name, value in [*self.values.items(), *self.probes.items(), *enumerate(self.errors)]:
            print(f"{name}: {str(value)[:300]}")
        for name, found in self.measured().items():
            print(told(name, found), flush=True)

    def write(self):
        report.write(session.origin(self.options, "gates") | {
            "values": self.values, "cells": self.measured(), "probes": self.probes,
            "errors": self.errors}, self.options.out)
        with gzip.open(self.options.out.with_suffix(".raw.json.gz"), "wt") as file:
            json.dump(self.blocks, file)


def main():
    parser = session.origin_parser(__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--budget-s", type=float, default=420)
    parser.add_argument("--cells", default="")
    parser.add_argument("--ways", default="", help="beside only so: bare,ask,gates")
    parser.add_argument("--policies", default="", help="eager=gapfill;graph=priority")
    parser.add_argument("--tools", type=Path)
    parser.add_argument("--repetitions", type=int, default=12)
    parser.add_argument("--chain", type=int, default=60, help="iterations whose value is compared")
    parser.add_argument("--rounds", type=int, default=3000, help="of each *_campaign")
    parser.add_argument("--scale", type=float, default=1, help="of the blocks' length")
    options = parser.parse_args()
    options.ways = [way for way in options.ways.split(",") if way]
    options.policies = dict(p.split("=", 1) for p in options.policies.split(";") if p)
    session.add_origin(options, "gates.py", sys.argv[1:])
    Round(options).run()


if __name__ == "__main__":
    main()
