#!/usr/bin/env python3
"""Jobs that end, on one GPU: MMK's test bed (section V), its lengths and arrivals divided by ten.
40 online and 20 offline jobs arrive at random (Poisson, every 4 s on average), each as many
iterations as take 2 to 20 s alone (log-uniform). One that comes begins at once, if a worker of its
model is free. Needs an NVIDIA GPU, MPS and torchvision.

    testbed.py --json FILE --data profiles/jobs/h100             all settings, 6 to 9 minutes each
    testbed.py --json FILE --data FOLDER --settings mps,mmk         these; others in FILE stay
    testbed.py --table FILE                                         Markdown
    testbed.py --sim --json FILE --data FOLDER ...                  the simulated GPU: the logic

Workers are warm: each model's processes are started, and what an iteration takes alone is measured
bare in the first setting, outside all times. All settings have the same jobs, by --seed. MIG cannot
be switched here, so there is no setting with slices.

  default      no heddled, no MPS: time slices
  mps          no heddled, MPS
  mps+planner  MPS, and after each change `heddle plan jobs --apply` sets shares (policy shares);
               online and offline programs have one priority
  mmk          the same, and MMK's kernel scheduler (policy mmk): online launches first
  ours         the same with `heddle plan --ours`: right sizes, and only where they gain
  gapfill      MPS, heddle's own kernel scheduler, no shares

One with a policy may name a parameter of it: mmk:duration_us=5000.
"""

import argparse
import csv
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from collect import program, sim_program, simulated  # noqa: E402
from harness import report, session  # noqa: E402
from harness.figures import quantile  # noqa: E402
from harness.processes import PINNED, Daemon, HostError, Job, Mps, NoMps  # noqa: E402
from harness.md import markdown  # noqa: E402

# MMK's Table III as far as torchvision has it; ViT for its Transformer, and smaller batches.
ONLINE = "vgg16/16,mobilenet_v2/64,resnet18/32,densenet121/16,resnet50/16,vit_b_16/4"
OFFLINE = "resnet152-train/4,densenet121-train/8,vgg19-train/8,resnet50-train/8"
READY_S = 120
ALONE_S = 0.5
POLL_S = 0.002


@dataclass
class Setting:
    mps: bool = True
    policy: str = ""  # none: no heddled
    planner: list | None = None  # options of `heddle plan jobs`


SETTINGS = {"default": Setting(mps=False), "mps": Setting(),
            "mps+planner": Setting(policy="shares", planner=[]),
            "mmk": Setting(policy="mmk", planner=[]),
            "ours": Setting(policy="mmk", planner=["--ours"]),
            "gapfill": Setting(policy="gapfill")}


def setting_of(name):
    return SETTINGS[name.partition(":")[0]]


@dataclass
class Work:
    """One job of the trace."""
    name: str
    online: bool
    arrives_s: float
    length_s: float
    iterations: int = 0
    begins_s: float | None = None
    ends_s: float | None = None


@dataclass
class Worker:
    name: str
    online: bool
    label: str
    process: Job
    work: Work | None = None
    memory_gib: float = field(default=0.5)


def trace(options):
    """The jobs, the same for every setting."""
    draw = random.Random(options.seed)
    kinds = [True] * options.jobs[0] + [False] * options.jobs[1]
    draw.shuffle(kinds)
    jobs, at = [], 0.0
    low, high = options.lengths
    for online in kinds:
        at += draw.expovariate(1 / options.interval)
        name = draw.choice(options.online if online else options.offline)
        jobs.append(Work(name, online, at, low * (high / low) ** draw.random()))
    return jobs


class Bed:
    """One setting: its processes from start to end."""

    def __init__(self, options, name, result, folder):
        self.options, self.name, self.result, self.folder = options, name, result, folder
        self.setting = setting_of(name)
        real_mps = self.setting.mps and not options.sim
        self.server = (Mps if real_mps else NoMps)(folder / "mps")
        self.env = self.server.env | PINNED
        if options.sim:
            self.env |= simulated(options.dist, folder, "mps" if self.setting.mps else "timeslice")
        self.daemon = Daemon(options.dist, folder / "d", self.setting.mps, self.env, [],
                             self.setting.policy, None) if self.setting.policy else None
        self.workers, self.plans, self.errors = [], [], []
        self.failed_plans, self.hooks_us = 0, 0.0

    def play(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        self.server.start()
        try:
            if self.daemon:
                self.daemon.start()
                self.env["HEDDLE_SOCKET"] = str(self.daemon.socket)
                if params := self.name.partition(":")[2]:
                    self.daemon.command("policy", "set", self.setting.policy, params, "--wait",
                                        "0")
            self.start()
            self.measure_alone()
            return self.figures(self.course())
        finally:
            with ThreadPoolExecutor(16) as pool:
                list(pool.map(lambda w: w.process.stop(), self.workers))
            if self.daemon:
                self.daemon.stop()
            self.server.stop()

    def start(self):
        kinds = [(n, True) for n in self.options.online] + [(n, False) for n in
                                                            self.options.offline]
        for name, online in kinds:
            for i in range(self.options.workers):
                label = f"{name.replace('/', '-')}.{i}"
                model, batch = name.split("/")
                words = (sim_program(self.options.dist, model, batch) if self.options.sim
                         else program(model, batch))
                if self.daemon:
                    first = online and self.setting.policy != "shares"
                    words = [self.daemon.heddle, "run", "--quiet", "--class",
                             "latency" if first else "batch", "--label", label, "--", *words]
                process = Job(label, None, [str(word) for word in words], self.env,
                              self.folder / f"{label}.log")
                self.workers.append(Worker(name, online, label, process))
        for w in list(self.workers):
            try:
                w.process.wait_ready(READY_S)
                w.memory_gib = max(0.5, w.process.about.get("memory_mib", 0) / 1024)
            except HostError as error:
                self.errors.append(str(error))
                w.process.give_up()
                self.workers.remove(w)
        missing = {name for name, _ in kinds} - {w.name for w in self.workers}
        if missing:
            raise HostError(f"no worker of {', '.join(sorted(missing))}: {self.errors[0]}")

    def measure_alone(self):
        """What an iteration takes, once for all settings; every worker has run before the jobs
        come."""
        known = self.result["alone_ms"]
        for w in self.workers:
            w.process.send("go", time.monotonic() + 0.01, ALONE_S, 0, 0)
            reply = w.process.answer()
            if not reply["us"]:
                raise HostError(f"{w.name}: no iteration alone in {ALONE_S} s; take a smaller "
                                "batch")
            known.setdefault(w.name, round(1e3 * reply["span_s"] / len(reply["us"]), 4))

    # ---- the course ----

    def course(self):
        jobs = trace(self.options)
        for job in jobs:
            job.iterations = max(1, round(1e3 * job.length_s / self.result["alone_ms"][job.name]))
            job.length_s = job.iterations * self.result["alone_ms"][job.name] / 1e3
        self.begin = time.monotonic()
        self.cpu_before = self.daemon_cpu_s()
        coming, waiting, at_work = list(jobs), [], 0
        while (coming or waiting or at_work) and self.now() < self.options.limit:
            while coming and coming[0].arrives_s <= self.now():
                waiting.append(coming.pop(0))
            ended = self.collect()
            begun = self.begin_some(waiting)
            at_work += begun - ended
            if (begun or ended) and self.setting.planner is not None:
                self.plan()
            if not begun and not ended:
                time.sleep(POLL_S)
        return jobs

    def now(self):
        return time.monotonic() - self.begin

    def collect(self):
        ended = 0
        for w in self.workers:
            if w.work is None or w.process.lines.empty():
                continue
            try:
                w.work.ends_s = w.process.answer()["end_s"] - self.begin
                w.work = None
            except HostError as error:  # it died: its job does not end, and nobody else has it
                self.errors.append(str(error))
                w.work = None
                w.process.broken = True
            ended += 1
        return ended

    def begin_some(self, waiting):
        begun = 0
        for job in list(waiting):
            free = next((w for w in self.workers if w.name == job.name and w.work is None
                         and not w.process.broken), None)
            if free is None:
                continue
            job.begins_s = self.now()
            free.process.send("run", job.iterations)
            free.work = job
            waiting.remove(job)
            begun += 1
        return begun

    def plan(self):
        """Shares for those at work; what it takes counts, for the loop waits."""
        at_work = [w for w in self.workers if w.work]
        if not at_work:
            return
        text = "".join(
            f'[[job]]\nname = "{w.label}"\nkind = "{"online" if w.online else "offline"}"\n'
            f'like = "{w.name}"\nmemory_gib = {w.memory_gib:.3f}\n'
            f'iteration_ms = {self.result["alone_ms"][w.name]}\n' for w in at_work)
        path = self.folder / "jobs.toml"
        path.write_text(text)
        self.hooks_us += self.hooks_of_generation()  # a new one counts from nothing
        begin = time.monotonic()
        done = subprocess.run(
            [self.options.dist / "bin/heddle", "--json", "plan", "jobs", path, "--apply", "--gpu",
             "h100-80gb", "--data", self.options.data, "--predictor", self.options.predictor,
             *self.setting.planner], text=True, capture_output=True, timeout=20,
            env=os.environ | self.env)
        self.plans.append(time.monotonic() - begin)
        if done.returncode != 0:
            self.failed_plans += 1
            self.errors.append(done.stderr[-300:])

    def daemon_cpu_s(self):
        if not self.daemon:
            return 0.0
        fields = Path(f"/proc/{self.daemon.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def hooks_of_generation(self):
        """µs in the policy's hooks since it was loaded, or its parameters were set."""
        if not self.daemon:
            return 0.0
        devices = json.loads(self.daemon.command("status", "--json"))["devices"]
        return sum(h["sum_us"] for d in devices for h in d["policy"]["hooks"])

    def figures(self, jobs):
        done = [job for job in jobs if job.ends_s is not None]
        if not done:
            raise HostError(f"{self.name}: no job ended; {self.errors[:1]}")
        makespan = max(job.ends_s for job in done) - jobs[0].arrives_s

        def jct(some):
            times = [job.ends_s - job.arrives_s for job in some]
            return round(sum(times) / len(times), 3) if times else None

        relative = sorted((job.ends_s - job.arrives_s) / job.length_s for job in done)
        return {
            "jct_s": jct(done), "online_jct_s": jct([j for j in done if j.online]),
            "offline_jct_s": jct([j for j in done if not j.online]),
            "makespan_s": round(makespan, 3),
            "stp": round(sum(job.length_s for job in done) / makespan, 4),
            "antt": round(sum(relative) / len(relative), 3),
            "queueing_s": round(sum(j.begins_s - j.arrives_s for j in done) / len(done), 3),
            "relative": {f"p{q}": round(quantile(relative, q / 100), 3) for q in (50, 90, 99)}
            | {"worst": round(relative[-1], 3)},
            "relative_jct": [round(r, 3) for r in relative], "unfinished": len(jobs) - len(done),
            "plans": len(self.plans), "failed_plans": self.failed_plans,
            "plan_s": round(sum(self.plans), 3),
            "daemon_cpu_s": round(self.daemon_cpu_s() - self.cpu_before, 3),
            "hooks_s": round((self.hooks_us + self.hooks_of_generation()) / 1e6, 4),
            "errors": self.errors[:10],
            "jobs": [[j.name, j.online, round(j.arrives_s, 3), round(j.length_s, 3),
                      j.iterations, rounded(j.begins_s), rounded(j.ends_s)] for j in jobs]}


def rounded(value):
    return None if value is None else round(value, 3)


# ---- the table ----

def table(result):
    rows, first = [], None
    order = list(SETTINGS)
    for name, of in sorted(result["settings"].items(),
                           key=lambda item: (order.index(item[0].partition(":")[0]), item[0])):
        first = first or of
        rows.append([name, f"{of['jct_s']:.1f} ({of['jct_s'] / first['jct_s'] - 1:+.0%})",
                     *(f"{of[key]:.1f}" if of[key] else "–" for key in
                       ("online_jct_s", "offline_jct_s")),
                     f"{of['makespan_s']:.0f} ({of['makespan_s'] / first['makespan_s'] - 1:+.0%})",
                     f"{of['stp']:.2f}", f"{of['antt']:.2f}", f"{of['queueing_s']:.1f}",
                     " / ".join(f"{of['relative'][k]:.1f}" for k in ("p50", "p90", "worst")),
                     f"{(of['daemon_cpu_s']) / of['makespan_s']:.2%}",
                     f"{of['hooks_s'] / of['makespan_s']:.3%}", str(of["unfinished"])])
    simulated_too = "simulated: " if result["mode"] == "simulated" else ""
    return markdown([f"{simulated_too}{result['gpu']}", "JCT, s", "of online jobs", "offline",
                     "makespan, s", "STP", "ANTT", "queueing, s", "JCT ÷ alone p50 / p90 / worst",
                     "daemon's CPU ÷ time", "in hooks ÷ time", "unfinished"], rows)


def check_data(options):
    """Plans are by the measured tables: before a GPU's time is spent."""
    if all(setting_of(name).planner is None for name in options.settings):
        return
    with open(options.data / "jobs.csv") as file:
        known = {f"{row['model']}/{row['batch']}" for row in csv.DictReader(file)}
    if missing := {*options.online, *options.offline} - known:
        sys.exit(f"testbed.py: {options.data} has no {', '.join(sorted(missing))}; measure it with "
                 "`heddle-bench collect --jobs`, or name others with --online and --offline")


def measure(options):
    result = session.origin(options, "testbed") | {"seed": options.seed, "alone_ms": {},
                                                   "settings": {}}
    plan_of = {key: list(value) if isinstance(value, (list, tuple)) else value for key, value in
               (("jobs", options.jobs), ("interval", options.interval),
                ("lengths", options.lengths), ("workers", options.workers),
                ("online", options.online), ("offline", options.offline))}
    if options.json.exists():
        before = json.loads(options.json.read_text())
        if (before["seed"], before["plan"]) == (options.seed, plan_of):
            result |= {key: before[key] for key in ("alone_ms", "settings")}
        elif not options.anew:
            sys.exit(f"testbed.py: {options.json} has other jobs; name another file, or --anew")
    result["plan"] = plan_of
    check_data(options)
    status = 0
    # Unix sockets want a short path.
    with tempfile.TemporaryDirectory(prefix="hz-", ignore_cleanup_errors=True) as folder:
        options.predictor = Path(folder) / "predictor"
        if any(setting_of(name).planner is not None for name in options.settings):
            subprocess.run([options.dist / "bin/heddle", "plan", "train", "--data", options.data,
                            "--output", options.predictor], check=True, stdout=sys.stderr)
        for i, name in enumerate(options.settings):
            begin = time.monotonic()
            try:
                found = Bed(options, name, result, Path(folder) / str(i)).play()
            except HostError as error:
                print(f"{name}: {error}", flush=True)
                status = 1
                continue
            result["settings"][name] = found | {"commit": options.commit, "date": options.date}
            report.write(result, options.json)
            status |= bool(found["errors"] or found["unfinished"])
            print(f"{name}: JCT {found['jct_s']} s, makespan {found['makespan_s']} s, STP "
                  f"{found['stp']}, {found['unfinished']} unfinished, in "
                  f"{time.monotonic() - begin:.0f} s", *found["errors"][:1], flush=True)
    return status


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--json", type=Path, metavar="FILE", help="the result; of the same jobs it is added to")
    add("--anew", action="store_true", help="replace a result of other jobs")
    add("--table", type=Path, metavar="FILE", help="print the table of a result")
    add("--dist", type=Path, default=HERE.parent / "dist", help="install tree of heddle")
    add("--data", type=Path, help="tables of `heddle-bench collect` with these models")
    add("--settings", type=words, default=list(SETTINGS), help="apart by commas (all)")
    add("--jobs", type=numbers(int), default=(40, 20), help="online,offline (40,20)")
    add("--interval", type=float, default=4, help="mean seconds between arrivals (4)")
    add("--lengths", type=numbers(float), default=(2, 20), help="seconds alone, from,to (2,20)")
    add("--limit", type=float, default=500, help="seconds until a setting is cut off; what has not "
        "ended then is said (500)")
    add("--workers", type=int, default=2, help="processes of each model (2)")
    add("--online", type=words, default=words(ONLINE), help="MODEL/BATCH, apart by commas")
    add("--offline", type=words, default=words(OFFLINE), help="the same; MODEL-train trains")
    add("--seed", type=int, default=29)
    add("--commit", default=os.environ.get("HEDDLE_COMMIT", ""))
    add("--sim", action="store_true", help="on the simulated GPU: programs of sleeps")
    options = parser.parse_args(arguments)
    if options.table:
        return options
    if not options.json:
        parser.error("--json is missing: where the result goes")
    if unknown := {name for name in options.settings if name.partition(":")[0] not in SETTINGS}:
        parser.error(f"no setting {', '.join(sorted(unknown))}; there are {', '.join(SETTINGS)}")
    if min(options.lengths) <= 0 or options.interval <= 0 or not math.isfinite(options.interval):
        parser.error("--lengths and --interval: above 0")
    planned = [name for name in options.settings if setting_of(name).planner is not None]
    if planned and not (options.data and options.data.is_dir()):
        parser.error(f"{', '.join(planned)} plan by measured tables: name them with --data FOLDER, "
                     "of `heddle-bench collect`")
    return session.add_origin(options, "bench/testbed.py", arguments)


def words(text):
    return text.split(",")


def numbers(kind):
    def pair(text):
        first, second = text.split(",")
        return kind(first), kind(second)
    return pair


def main():
    options = parse(sys.argv[1:])
    if options.table:
        print(table(json.loads(options.table.read_text())))
        return 0
    return measure(options)


if __name__ == "__main__":
    sys.exit(main())
