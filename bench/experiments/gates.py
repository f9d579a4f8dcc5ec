#!/usr/bin/env python3
"""Held on the GPU instead of asking: pairs under bare sharing, MPS with stream priority, heddle by
asking and heddle with gates, in turn, on one GPU.

    gates.py OUT.json [--budget-s 420] [--cells graph1,eager] [--tools DIR] [--sim] [--dist DIR]

Every process loads once; what is measured is told to it (workloads/switched.py). First come values:
chains of iterations that must equal bare, and programs in DIR that check themselves (*_campaign).
Then every cell once, in order, then once more while there is time. Figures are ÷ the same process
alone. OUT.json is what bench/table.py reads; the samples lie beside it.
"""

import argparse
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
from harness.processes import Daemon, HostError, Job, Mps, NoMps, PINNED, placement, tail  # noqa: E402

WORKER = BENCH / "workloads/switched.py"
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


def stand_in(job):
    """For the simulated GPU."""
    if job["kind"] == "tick":
        return {"kind": "spin", "kernels": 1, "us": 100, "blocks": 1}
    graph = job["kind"] == "graph"
    return {"kind": "spin", "kernels": 8, "us": 600 if graph else 400, "blocks": 264, "graph": graph}


def name_of(job, priority=0):
    parts = [job["kind"], job.get("model", ""), str(job.get("batch", ""))]
    return "-".join(filter(None, parts)) + (f"@{priority}" if priority else "")


class SimGpu:
    def __init__(self, folder, dist, mode):
        self.folder, self.program = folder, dist / "lib/heddle/sim/heddle-sim-gpu"
        self.env = {"HEDDLE_SIM_SOCKET": str(folder / "gpu"), "HEDDLE_SIM_MODE": mode}

    def start(self):
        self.folder.mkdir(parents=True)
        self.process = subprocess.Popen([self.program], env=os.environ | self.env)
        while not Path(self.env["HEDDLE_SIM_SOCKET"]).exists():
            time.sleep(0.02)

    def stop(self):
        self.process.terminate()
        self.process.wait(5)


class Side:
    """The processes H and L of one way to share, in one mode."""

    def __init__(self, way, path):
        self.way, self.path, self.daemon, self.jobs = way, path, None, {}
        self.env = path.server.env | PINNED | {"OMP_NUM_THREADS": "2"}
        if way == "gates":
            self.env["HEDDLE_GATES"] = "1"
        if way != "bare":
            self.daemon = Daemon(path.options.dist, path.folder / way, path.mode == "mps", self.env,
                                 ["daemon.gates = true"] if way == "gates" else [])
            self.daemon.start()
            self.env["HEDDLE_SOCKET"] = str(self.daemon.socket)

    def prefix(self, role, label=None):
        """What starts a program as H or L here."""
        sim = ["--sim"] if self.path.options.sim else []
        if not self.daemon:
            lib = self.path.options.dist / "lib/heddle/sim"
            return ["env", f"LD_LIBRARY_PATH={lib}"] if sim else []
        kind = "latency" if role == "H" else "batch"
        return [str(self.daemon.heddle), "run", "--quiet", "--class", kind, "--label", label or role,
                *sim, "--"]

    def start(self, role):
        label = f"{self.path.mode}.{self.way}.{role}"
        self.jobs[role] = Job(label, None, [*self.prefix(role), sys.executable, str(WORKER)],
                              self.env, self.path.folder / f"{label}.log")

    def prepare(self, role, wanted):
        """Reads that it is ready, and has it load; in a thread of its own."""
        job = self.jobs[role]
        job.wait_ready(120)
        job.about["loaded"] = {}
        for of in wanted:
            for priority in ((0, -5) if self.way == "bare" and role == "H" and self.path.mode == "mps"
                             and of["kind"] != "tick" else (0,)):
                spec = stand_in(of) if self.path.options.sim else of
                self.ask(role, do="load", job=name_of(of, priority), priority=priority, **spec)
        if cpus := placement().get({"H": "hp", "L": "be"}[role]):
            self.ask(role, do="pin", cpus=cpus)

    def send(self, role, **command):
        if self.jobs[role].broken:
            raise HostError(f"{self.jobs[role].name} is gone")
        self.jobs[role].send(json.dumps(command))

    def answer(self, role, timeout_s):
        job = self.jobs[role]
        try:
            found = job.answer(timeout_s)
        except HostError:
            job.give_up()
            raise
        if "error" in found:
            raise HostError(f"{job.name}: {found['error']}")
        return found

    def ask(self, role, timeout_s=90, **command):
        self.send(role, **command)
        return self.answer(role, timeout_s)

    def cpu_s(self):
        """Of heddled: user and system time."""
        if not self.daemon:
            return 0
        words = Path(f"/proc/{self.daemon.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def counters(self, role):
        clients = json.loads(self.daemon.command("ps", "--json"))["clients"]
        return next((c["counters"] for c in clients if c["label"] == role), {})

    def left(self, role):
        """Whether the newest gate page of the process says that its gates stand open for good."""
        pid = self.jobs[role].about["pid"]
        maps = [line for line in Path(f"/proc/{pid}/maps").read_text().splitlines()
                if "heddle-gates" in line]
        if not maps:
            return None
        with open(f"/proc/{pid}/map_files/{maps[-1].split()[0]}", "rb") as page:
            return page.read(1) != b"\0"

    def stop(self):
        for job in self.jobs.values():
            job.give_up()
        if self.daemon:
            self.daemon.stop()


class Path_:
    """A mode: MPS or time-slicing, with its sides."""

    def __init__(self, mode, options, folder):
        self.mode, self.options, self.folder = mode, options, folder / mode
        server = SimGpu(self.folder / "gpu", options.dist, mode) if options.sim else (
            Mps if mode == "mps" else NoMps)(self.folder / "server")
        self.folder.mkdir(parents=True)
        self.server = server
        self.server.start()
        self.sides = {way: Side(way, self) for way in ("bare", "ask", "gates")}

    def load(self, cells):
        """Starts every process, each with its models; `ready` joins the threads."""
        self.threads, self.errors = [], []
        for side in self.sides.values():
            for role, at in (("H", 0), ("L", 1)):
                wanted = {name_of(CELLS[c][at]): CELLS[c][at] for c in cells if CELLS[c][3] == self.mode}
                side.start(role)
                self.threads.append(threading.Thread(
                    target=self.prepare, args=(side, role, wanted.values()), daemon=True))
                self.threads[-1].start()

    def prepare(self, side, role, wanted):
        try:
            side.prepare(role, wanted)
        except (HostError, OSError) as error:
            side.jobs[role].give_up()
            self.errors.append(str(error))

    def ready(self):
        for thread in self.threads:
            thread.join()
        return self.errors

    def stop(self):
        for side in self.sides.values():
            side.stop()
        self.server.stop()


class Round:
    def __init__(self, options):
        self.options, self.begun = options, time.monotonic()
        self.folder = Path(tempfile.mkdtemp(prefix="gates-"))
        self.cells = [c for c in CELLS if not options.cells or c in options.cells.split(",")]
        self.paths, self.errors, self.values = {}, [], {}
        self.blocks, self.service, self.settled = [], {}, set()
        self.probes, self.revived = {}, set()

    def left_s(self):
        return self.options.budget_s - (time.monotonic() - self.begun)

    def say(self, *words):
        print(f"[{time.monotonic() - self.begun:5.1f}]", *words, flush=True)

    def fail(self, text):
        self.errors.append(text[:600])
        self.say("ERROR", text[:600])

    def run(self):
        try:
            modes = sorted({CELLS[c][3] for c in self.cells})
            for mode in modes:  # what loads last loads while values are compared
                self.paths[mode] = Path_(mode, self.options, self.folder)
                self.paths[mode].load(self.cells)
                if mode == modes[0]:
                    self.ready(self.paths[mode])
            for mode in modes[1:]:
                self.ready(self.paths[mode])
            self.write()
            for repetition in range(self.options.repetitions):
                for cell in self.cells:
                    if self.left_s() > RESERVED_S:
                        self.attempt(cell, self.measure, cell, repetition)
                if repetition == 0:
                    self.attempt("probes", self.probe)
                self.write()
            self.attempt("crowd", self.crowd)
        finally:
            self.write()
            self.tell_all()
            for path in self.paths.values():
                path.stop()
            report.keep_logs(self.folder, self.options.out.parent)
            shutil.rmtree(self.folder, ignore_errors=True)

    def ready(self, path):
        for error in path.ready():
            self.fail(error)
        self.say(path.mode, "is ready")
        self.attempt("values", self.compare_values, path)

    def attempt(self, what, call, *arguments):
        try:
            call(*arguments)
        except (HostError, OSError, KeyError, ValueError, subprocess.SubprocessError) as error:
            self.fail(f"{what}: {type(error).__name__} {error}")
            for path in self.paths.values():
                self.revive(path)

    def revive(self, path):
        """A process that died or hung is started again, once; what it left in the log is told."""
        for side in path.sides.values():
            if side.daemon and side.daemon.process.poll() is not None:
                self.fail(f"heddled ended: {tail(side.daemon.log, 8)}")
                side.daemon.spawn()
                side.daemon.loaded = None
            for role, job in list(side.jobs.items()):
                if not job.broken and job.running():
                    continue
                job.give_up()
                if job.name in self.revived:
                    continue
                self.revived.add(job.name)
                self.say("reviving", job.name, "|", tail(job.log, 4)[-300:],
                         "|", side.daemon and tail(side.daemon.log, 4)[-500:])
                side.start(role)
                at = "HL".index(role)
                wanted = {name_of(CELLS[c][at]): CELLS[c][at] for c in self.cells
                          if CELLS[c][3] == path.mode}
                path.prepare(side, role, wanted.values())

    # ---- values ----

    def compare_values(self, path):
        """Chains beside H, whose requests close the gates and open them again."""
        mine = [CELLS[c] for c in self.cells if CELLS[c][3] == path.mode]
        jobs = list(dict.fromkeys(name_of(cell[1]) for cell in mine))
        h = next(name_of(cell[0]) for cell in mine if cell[0]["kind"] != "tick")
        chain = {"do": "chain", "count": self.options.chain}
        bare, again = ({job: path.sides["bare"].ask("L", job=job, **chain) for job in jobs}
                       for _ in range(2))
        for way in ("gates", "ask"):  # what asking does matters where gates differ
            side = path.sides[way]
            side.daemon.use("priority", {})
            before, label = side.counters("L"), f"{path.mode} {way}"
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
            told = {k: v for k, v in self.values.items() if k.startswith(label)}
            self.say(told, moves)
            if "different" not in told.values():
                return

    def tools(self, side):
        """Programs that check themselves, beside the chain."""
        found = []
        for program in sorted(self.options.tools.glob("*_campaign")) if self.options.tools else ():
            for seed in (51, 52) if side.path.mode == "mps" else (53,):
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

    def measure(self, cell, repetition):
        h, l, load, mode, seconds = CELLS[cell]
        path, family = self.paths[mode], cell.split("_")[0].rstrip("1234")
        tick = h["kind"] == "tick"
        seconds *= self.options.scale
        policy, _, text = self.options.policies.get(family, POLICIES[family]).partition(":")
        params = dict(pair.split("=") for pair in text.split(",") if pair)
        for side in path.sides.values():
            if side.daemon:
                side.daemon.use(policy, params)
        hl = (name_of(h), name_of(l))
        rate = TICKS if tick else self.rate(path, hl[0], load)
        block = {"cell": cell, "repetition": repetition, "rate": rate}
        alone_s = min(seconds, 1.2)
        # A launch-bound program differs from process to process; a graph that fills the GPU does not.
        ways = path.sides if h["kind"] == "eager" else ("bare", "gates")
        plan = [] if tick else [*(("alone", way, "H") for way in ways), ("again", "bare", "H")]
        plan += [("alone", way, "L") for way in (path.sides if l["kind"] == "training" else ways)]
        for what, way, role in plan:
            # H's queue is the same in all blocks of a repetition only where they are as long.
            length = seconds if role == "H" else alone_s
            self.attempt(cell, self.block, block | {"what": what}, path.sides[way], 0, role, hl, rate,
                         length)
        ways = [(way, 0) for way in path.sides]
        if mode == "mps" and not tick:
            ways.append(("bare", -5))
        if mode == "mps" and load and repetition:
            ways.remove(("bare", 0))  # the queue only grows: told once
        random.Random(repetition).shuffle(ways)
        for way, priority in ways:
            if way != "bare" and (cell, way) not in self.settled:
                self.settled.add((cell, way))
                self.attempt(cell, self.block, block | {"what": "settle"}, path.sides[way], 0, "HL", hl,
                             rate, SETTLE_S.get(family, 0.5) * self.options.scale)
            self.attempt(cell, self.block, block | {"what": "beside"}, path.sides[way], priority, "HL",
                         hl, rate, seconds)
        self.say(line(cell, self.figures(cell)))

    def rate(self, path, name, load):
        """Requests a second that keep H busy for `load` of the time, by its own time alone."""
        if not load:
            return 0
        if name not in self.service:
            for _ in range(2):  # the first warms up
                taken = path.sides["bare"].ask("H", do="requests", job=name, seconds=0.5,
                                               start=time.monotonic() + 0.02)["us"]
            self.service[name] = statistics.mean(taken) / 1e6
        return round(load / self.service[name], 2)

    def block(self, block, side, priority, roles, names, rate, seconds):
        if any(side.jobs[role].broken for role in roles):
            return  # which was told
        start = time.monotonic() + 0.02 + 0.4 * ("L" in roles)
        if "L" in roles:
            side.send("L", do="loop", job=names[1], start=start, seconds=seconds)
        if "H" in roles:
            job = names[0] + (f"@{priority}" if priority else "")
            side.send("H", do="requests", job=job, start=start, seconds=seconds, rate=rate,
                      seed=block["repetition"])
        telling = side.daemon and "L" in roles
        before = side.counters("L") if telling else {}
        cpu_s, wall = side.cpu_s(), time.monotonic()
        time.sleep(max(0, start + seconds - time.monotonic()))
        cpu_s, wall = side.cpu_s() - cpu_s, time.monotonic() - wall
        found = {}
        try:
            for role in roles:
                found[role] = side.answer(role, 15)
        except HostError:
            self.tell_hang(side)
            raise
        block |= {"way": "priority" if priority else side.way, "roles": roles, "seconds": seconds}
        if telling:
            block |= {"heddled": round(cpu_s / wall, 3), "counters": moved(before, side.counters("L")),
                      "left": side.left("L")}
        self.blocks.append(block | found)

    def tell_hang(self, side):
        if side.daemon:
            self.say(side.path.mode, side.way, "ps", {
                c["label"]: {k: v for k, v in c["counters"].items() if v}
                for c in side.daemon.counters().get("ps", {}).get("clients", [])})

    # ---- probes ----

    def probe(self):
        """What a launch costs a leased service, and how soon a gate closes behind its launch."""
        path = self.paths.get("mps")
        if not path:
            return
        side = path.sides["gates"]
        for cell in self.cells:
            h = CELLS[cell][0]
            if h["kind"] != "eager" or name_of(h) in self.probes or self.left_s() < 8:
                continue
            got = side.ask("H", do="pairs", job=name_of(h), seconds=2 * self.options.scale,
                           start=time.monotonic() + 0.4)
            self.probes[name_of(h)] = {
                "mean": rounded(statistics.mean(got["us"]) / statistics.mean(got["bypassed_us"])),
                "median": rounded(statistics.median(got["us"]) / statistics.median(got["bypassed_us"]))}
            self.say("leased", name_of(h), self.probes[name_of(h)])
        bell = self.options.tools and self.options.tools / "bell"
        if not bell or not bell.exists():
            return
        side.daemon.use("priority", {})
        for l in (None, RESNEXT, TRAIN_SMALL):
            if self.left_s() < 8:
                return
            if l:
                side.send("L", do="loop", job=name_of(l), start=time.monotonic() + 0.4, seconds=3)
            pid = side.jobs["L"].about["pid"] if l else 0
            got = subprocess.run([*side.prefix("H"), bell, str(pid), "2.5" if l else "1"], text=True,
                                 env=os.environ | side.env, capture_output=True, timeout=20)
            if l:
                side.answer("L", 20)
            name = f"bell beside {name_of(l) if l else 'nobody'}"
            self.probes[name] = got.stdout.strip()[-300:] or got.stderr[-300:]
            self.say(name, self.probes[name])

    def crowd(self):
        """What heddled works beside four trainings of many short launches."""
        path = self.paths.get("mps")
        if not path or self.left_s() < RESERVED_S - 8 or self.options.repetitions < 2:
            return
        side, name = path.sides["gates"], name_of(TRAIN_SMALL)
        if side.jobs["L"].broken or TRAIN_SMALL not in [CELLS[c][1] for c in self.cells]:
            return
        more = []
        for i in range(3):
            extra = Side.__new__(Side)
            extra.__dict__ |= side.__dict__ | {"jobs": {}}
            extra.start("L")
            more.append(extra)
        threads = [threading.Thread(target=path.prepare, args=(extra, "L", [TRAIN_SMALL]))
                   for extra in more]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        try:
            for count in (1, 4):
                mine = [side, *more][:count]
                start = time.monotonic() + 0.5
                side.send("H", do="requests", job=name_of(TICK), start=start, seconds=2, rate=TICKS,
                          seed=1)
                for each in mine:
                    each.send("L", do="loop", job=name, start=start, seconds=2)
                time.sleep(max(0, start - time.monotonic()))
                before, cpu_s = launches(side), side.cpu_s()
                time.sleep(1.8)
                cpu_s, after = side.cpu_s() - cpu_s, launches(side)
                for each in mine:
                    each.answer("L", 20)
                side.answer("H", 20)
                self.probes[f"heddled beside {count}"] = {
                    "cores": rounded(cpu_s / 1.8), "launches_per_s": round((after - before) / 1.8)}
                self.say(f"heddled beside {count}", self.probes[f"heddled beside {count}"])
        finally:
            for extra in more:
                extra.jobs["L"].give_up()

    # ---- what is told ----

    def figures(self, cell):
        """Of each side: H's mean and p99 ÷ its process alone, L's iterations a second ÷ bare alone;
        with the least and the most of the repetitions."""
        mine = [b for b in self.blocks if b["cell"] == cell]

        def of(what, way, role):
            return {b["repetition"]: b[role] for b in mine
                    if (b["what"], b["way"]) == (what, way) and role in b["roles"]}

        sides = {}
        def own(way, role):
            return of("alone", "bare" if way == "priority" else way, role) or of("alone", "bare", role)

        again = [("again", "bare")] if of("again", "bare", "H") else []
        for what, way in [*again, *(("beside", w) for w in ("bare", "priority", "ask", "gates"))]:
            h, alone = of(what, way, "H"), own(way, "H")
            l, alone_l = of(what, way, "L"), of("alone", "bare", "L")
            own_l, row = own(way, "L"), {}
            both = sorted(h.keys() & alone.keys())
            if both:
                taken = [x for r in both for x in h[r]["us"]]
                base = [x for r in both for x in alone[r]["us"]]
                row |= {"requests": len(taken), "unserved": sum(h[r]["unserved"] for r in both)}
                for name, figure in (("mean", statistics.mean), ("p99", p99)):
                    ratios = [figure(h[r]["us"]) / figure(alone[r]["us"]) for r in both]
                    row[name] = [figure(taken) / figure(base), min(ratios), max(ratios)]
                row["alone_ms"] = statistics.mean(base) / 1e3
            both = sorted(l.keys() & alone_l.keys())
            if both:
                ratios = [l[r]["per_s"] / alone_l[r]["per_s"] for r in both]
                row["l"] = [statistics.mean(ratios), min(ratios), max(ratios)]
                row["l_own"] = statistics.mean(l[r]["per_s"] / own_l[r]["per_s"] for r in both)
            beside = [b for b in mine if (b["what"], b["way"]) == (what, way) and "heddled" in b]
            if beside:
                row["heddled"] = max(b["heddled"] for b in beside)
                row["left"] = any(b["left"] for b in beside)
                # Of L, a second. What was told in the block's lead counts too.
                row["counters"] = {
                    key: statistics.mean(b["counters"].get(key, 0) / b["seconds"] for b in beside)
                    for key in sorted({key for b in beside for key in b["counters"]})}
            if row:
                sides["alone again" if what == "again" else way] = rounded(row)
        alone_l = {way: of("alone", way, "L") for way in ("bare", "ask", "gates")}
        cost = {way: statistics.mean(alone_l[way][r]["per_s"] / alone_l["bare"][r]["per_s"] for r in both)
                for way in ("ask", "gates")
                if (both := sorted(alone_l[way].keys() & alone_l["bare"].keys()))}
        h, l, load, mode, _ = CELLS[cell]
        return {"h": name_of(h), "l": name_of(l), "load": load, "mode": mode, "sides": sides,
                "l_alone": rounded(cost),
                "repetitions": len({b["repetition"] for b in mine})}

    def tell_all(self):
        print(f"\n== {self.options.gpu[0]}, {self.options.commit}, {self.options.date}")
        for name, value in [*self.values.items(), *self.probes.items(), *enumerate(self.errors)]:
            print(f"{name}: {str(value)[:300]}")
        for cell in self.cells:
            if any(b["cell"] == cell for b in self.blocks):
                print(line(cell, self.figures(cell)), flush=True)

    def write(self):
        result = session.origin(self.options, "gates") | {
            "values": self.values, "cells": {c: self.figures(c) for c in self.cells
                                             if any(b["cell"] == c for b in self.blocks)},
            "probes": self.probes, "errors": self.errors}
        report.write(result, self.options.out)
        with gzip.open(self.options.out.with_suffix(".raw.json.gz"), "wt") as file:
            json.dump(self.blocks, file)


def launches(side):
    clients = json.loads(side.daemon.command("ps", "--json"))["clients"]
    return sum(c["counters"].get("launches", 0) for c in clients if c["label"] == "L")


def moved(before, after):
    """Counters that did, those of launches without a word by their names."""
    before, after = ({**of, **of.get("self", {})} for of in (before, after))
    return {key: value - before.get(key, 0) for key, value in after.items()
            if isinstance(value, (int, float)) and value != before.get(key, 0)}


def p99(taken):
    return sorted(taken)[min(len(taken) - 1, int(0.99 * len(taken)))]


def rounded(value):
    if isinstance(value, dict):
        return {key: rounded(of) for key, of in value.items()}
    if isinstance(value, list):
        return [rounded(of) for of in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def line(cell, found):
    """One line of figures a side."""
    alone = " ".join(f"{way} {value:.3f}" for way, value in found["l_alone"].items())
    text = [f"{cell}: H {found['h']}, L {found['l']}, load {found['load']}, n {found['repetitions']}; "
            f"L alone ÷ bare: {alone}"]
    for side, row in found["sides"].items():
        cells = [f"{name} {row[name][0]:.3f} ({row[name][1]:.2f}..{row[name][2]:.2f})"
                 for name in ("mean", "p99", "l") if name in row]
        more = [f"{k} {row[k]:.3g}" for k in ("l_own", "requests", "unserved", "heddled", "left")
                if row.get(k)]
        more += [f"{k} {v:.0f}/s" for k, v in row.get("counters", {}).items()]
        text.append(f" {side:11s} {' '.join(cells)} {' '.join(more)}")
    return "\n".join(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--budget-s", type=float, default=420)
    parser.add_argument("--cells", default="")
    parser.add_argument("--policies", default="", help="eager=gapfill;graph=priority")
    parser.add_argument("--tools", type=Path)
    parser.add_argument("--dist", type=Path, default=BENCH.parent / "dist")
    parser.add_argument("--repetitions", type=int, default=12)
    parser.add_argument("--chain", type=int, default=60, help="iterations whose value is compared")
    parser.add_argument("--rounds", type=int, default=3000, help="of each *_campaign")
    parser.add_argument("--scale", type=float, default=1, help="of the blocks' length")
    parser.add_argument("--commit", default=os.environ.get("HEDDLE_COMMIT", ""))
    parser.add_argument("--sim", action="store_true")
    options = parser.parse_args()
    options.policies = dict(p.split("=", 1) for p in options.policies.split(";") if p)
    session.add_origin(options, "gates.py", sys.argv[1:])
    Round(options).run()


if __name__ == "__main__":
    main()
