#!/usr/bin/env python3
"""How fast jobs are at shares of the GPU, alone and beside a neighbour: what `heddle plan` learns
from (MMK's workload collection). Needs an NVIDIA GPU, MPS and torchvision.

    collect.py --json FILE --csv FOLDER --limit 360    measures; FOLDER is for `heddle plan --data`
    collect.py --from FILE --csv FOLDER                makes FOLDER of a result
    collect.py --sim --json FILE --limit 20            the simulated GPU: the logic alone

A round keeps some jobs resident, half of them on each side: SM sets of the front side begin at the
first SM, those of the back side end at the last one, so that two sets meet only where they must.
Their sizes are changed live (policies/shares.lua). Each job of the front is measured beside each of
the back, at --combos pairs of sizes, drawn by --seed, and each job alone at each size. The next
round draws other jobs. A process starts and warms up outside all samples. A sample's pace is its
rate over the job's rate alone on all SMs, measured twice in the same round.
"""

import argparse
import csv
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import fmean

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from harness import report, session  # noqa: E402
from harness.processes import PINNED, HostError, Job, Setting  # noqa: E402

# MMK's Table III as far as torchvision has it, and more of its size: model/batch. MODEL-train is
# training, eager; the others are inference as a CUDA graph.
JOBS = ("resnet18/4,resnet18/32,resnet50/1,resnet50/16,resnet101/8,resnet152/4,vgg16/1,vgg16/16,"
        "vgg19/8,mobilenet_v2/8,mobilenet_v2/64,densenet121/1,densenet121/16,densenet201/4,"
        "inception_v3/4,efficientnet_b0/4,efficientnet_b0/32,squeezenet1_1/8,squeezenet1_1/64,"
        "alexnet/16,alexnet/64,vit_b_16/4,resnet50-train/8,vgg19-train/8,densenet121-train/8,"
        "resnet152-train/4")
TRAIN = "-train"
SIZES = "16,32,64,96"  # SMs; a graph of a process has four sizes at most, and all SMs
GROUP_SMS = 8  # of a group of an H100; the last one has the rest, too
GROUPS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14)  # sizes of policies/shares.lua
SIDES = {"front": "live", "back": "end"}  # side -> sm_set.family placement
SAMPLE_S, LONGEST_S = 0.15, 1.0
LEAD_S, TAIL_S = 0.02, 0.005
WARM_S = 0.25
READY_S = 90
ERRORS_MOST = 20
SAVE_S = 20
USE_S = 1.0  # alone, for nvidia-smi's utilization


def program(model, batch):
    kind = (["--mode", "training"] if model.endswith(TRAIN) else ["--graph", "true"])
    return [sys.executable, HERE / "workloads/jobs.py", model.removesuffix(TRAIN), batch, *kind]


def sim_program(dist, model, batch):
    """As many blocks as its name has letters, so that jobs differ."""
    return [dist / "libexec/heddle/heddle-synthetic", "--kernels", 4, "--kernel-us",
            f"{400 * int(batch)}:0", "--blocks", 24 * len(model), "--seed", 1]


class Worker:
    """A resident process of a job on one side."""

    def __init__(self, name, side, number):
        self.name, self.side, self.label = name, side, f"{side}{number}"
        self.ms = {}  # size -> ms of an iteration alone
        self.process = None

    def start(self, command, env, folder):
        self.process = Job(self.label, None, command, env, folder / f"{self.label}.log")


class Collection(Setting):
    def __init__(self, options, folder):
        super().__init__(options, folder, "shares", env=PINNED)
        self.random = random.Random(options.seed)
        self.result = session.origin(options, "collect") | {
            "seed": options.seed, "sm_total": 0, "jobs": {}, "samples": [], "rounds": [],
            "empty": 0, "errors": []}
        self.session = session.Session(options, self.result)
        self.saved = time.monotonic()
        self.sms = 0

    # ---- the course ----

    def measure(self):
        self.daemon.shipped = self.policies()
        with self.running():
            longest = 0
            for number in range(self.options.rounds):
                begin = time.monotonic()
                # A round that cannot measure half of its pairs is not begun.
                if self.left_s() < longest / 2 or len(self.result["errors"]) > ERRORS_MOST:
                    break
                self.round(number)
                longest = max(longest, time.monotonic() - begin)
            self.save()

    def policies(self):
        """The shipped ones, and policies/shares.lua for each side."""
        both = self.folder / "policies"
        shutil.copytree(self.daemon.shipped, both)
        text = (both / "shares.lua").read_text()
        for side, placement in SIDES.items():
            (both / f"{side}.lua").write_text(
                text.replace('placement = "ring"', f'placement = "{placement}"')
                .replace('name = "shares"', f'name = "{side}"'))
        return both

    def round(self, number):
        begin = time.monotonic()
        workers = self.draw(number)
        self.session.say(f"round {number + 1}: " + ", ".join(f"{w.label} {w.name}"
                                                             for w in workers))
        facts = {"jobs": {w.label: w.name for w in workers}}
        self.result["rounds"].append(facts)
        whole = []
        try:
            workers = self.start(workers)
            facts["start_s"] = round(time.monotonic() - begin, 1)
            self.sms = self.result["sm_total"] = self.sm_total()
            self.warm(workers)
            before = self.counters(workers)
            whole.append(self.whole(workers))
            self.alone(workers, number)
            self.pairs(workers, number)
            whole.append(self.whole(workers))
            facts["clients"] = {label: {k: now - before[label][k] for k, now in found.items()}
                                for label, found in self.counters(workers).items()}
        except HostError as error:  # what was measured counts, and the next round has other jobs
            self.session.fail(f"round {number + 1}: {error}")
        finally:
            with ThreadPoolExecutor(16) as pool:
                list(pool.map(lambda w: w.process and w.process.stop(), workers))
            self.finish(workers, number, whole)
            facts["s"] = round(time.monotonic() - begin, 1)
            self.save()

    def draw(self, number):
        """The jobs that were measured least, in random order. One that was on one side comes to
        the other the next time."""
        done = [name for made in self.result["rounds"] for name in made["jobs"].values()]
        jobs = list(self.options.jobs)
        self.random.shuffle(jobs)
        jobs.sort(key=done.count)
        jobs = jobs[:2 * self.options.side]
        front, back = ([name for made in self.result["rounds"] for label, name in
                        made["jobs"].items() if label.startswith(side)] for side in SIDES)
        jobs.sort(key=lambda name: front.count(name) - back.count(name))
        half = len(jobs) // 2
        return [Worker(name, "front" if i < half else "back", f"{number}{chr(97 + i % half)}")
                for i, name in enumerate(jobs)]

    def start(self, workers):
        """Each side attaches under its policy, then the other side's is loaded. Who does not come
        is left out, and said."""
        for side in SIDES:
            self.set_sizes({}, side)
            mine = [w for w in workers if w.side == side]
            for w in mine:
                w.start(self.command(w), self.env, self.folder)
            self.attached(mine)
        return [w for w in workers if self.ready(w)]

    def attached(self, workers):
        """Waits until heddled knows all that still run."""
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            known = {c["label"] for c in self.daemon.status()["ps"]["clients"] if c["devices"]}
            if all(w.label in known or not w.process.running() for w in workers):
                return
            time.sleep(0.05)

    def ready(self, worker):
        try:
            worker.process.wait_ready(READY_S)
            return True
        except HostError as error:
            self.session.fail(f"{worker.name}: {error}")
            worker.process.give_up()
            return False

    def command(self, worker):
        prefix = [self.daemon.heddle, "run", "--quiet", "--class", "batch", "--label",
                  worker.label, "--"]
        return [str(word) for word in [*prefix, *self.program(worker.name)]]

    def program(self, name):
        model, batch = name.split("/")
        return (sim_program(self.options.dist, model, batch) if self.options.sim
                else program(model, batch))

    # ---- samples ----

    def warm(self, workers):
        """A graph's first launches at a size run on all SMs, until its twin is made."""
        for size in [*self.options.sizes, 0]:
            self.set_sizes({w: size for w in workers})
            self.together(workers, WARM_S, TAIL_S)

    def whole(self, workers):
        self.set_sizes({})
        for w in workers:
            w.ms[0], = self.together([w], 2 * SAMPLE_S, 0)
            if not w.ms[0]:
                raise HostError(f"{w.name}: no iteration alone in {2 * SAMPLE_S} s; give it a "
                                "smaller batch")
        return {w.name: w.ms[0] for w in workers}

    def alone(self, workers, number):
        for w in workers:
            facts = self.result["jobs"].setdefault(w.name, {})
            facts["memory_mib"] = w.process.about.get("memory_mib", 0)
            if "bandwidth_pct" not in facts:
                facts["bandwidth_pct"] = self.bandwidth(w)
        for size in self.options.sizes:
            self.set_sizes({w: size for w in workers})
            for w in workers:
                w.ms[size] = w.ms[0] * self.sms / size  # at most, if it is not known
                ms, = self.together([w], self.seconds(w.ms[size]), 0)
                w.ms[size] = ms or w.ms[size]
                self.add(number, w, size, ms)

    def pairs(self, workers, number):
        """Each of the front beside each of the back: a change of sizes serves all of these."""
        fronts = [w for w in workers if w.side == "front"]
        backs = [w for w in workers if w.side == "back"]
        sizes = [*self.options.sizes, 0]
        combos = [(a, b) for a in sizes for b in sizes]
        combos = self.random.sample(combos, min(self.options.combos, len(combos)))
        for front_size, back_size in combos:
            if self.left_s() < 0:
                break
            self.set_sizes({w: front_size if w.side == "front" else back_size for w in workers})
            for a in fronts:
                for b in backs:
                    slowest = max(a.ms[front_size], b.ms[back_size])
                    ms = self.together([a, b], self.seconds(slowest), 2e-3 * slowest)
                    self.add(number, a, front_size, ms[0], b, back_size)
                    self.add(number, b, back_size, ms[1], a, front_size)
            if time.monotonic() - self.saved > SAVE_S:
                self.save()

    def seconds(self, ms):
        """Of a sample: long enough for some iterations."""
        return min(max(self.options.sample_s, 4e-3 * ms), LONGEST_S)

    def left_s(self):
        """For samples: ends take time too."""
        return self.session.left_s() - self.options.budget_s / 50

    def together(self, workers, seconds, tail):
        """Mean ms of an iteration of each, while all of them run; None if none began in time."""
        start = time.monotonic() + LEAD_S + 0.004
        for w in workers:
            w.process.send("go", start, seconds, LEAD_S, TAIL_S + tail)
        found = []
        for w in workers:
            reply = w.process.answer()
            count = len(reply["us"])
            found.append(1e3 * reply["span_s"] / count if count else None)
        return found

    def add(self, number, job, size, ms, beside=None, beside_size=0):
        if ms is None:
            self.result["empty"] += 1
            return
        self.result["samples"].append(
            {"round": number, "job": job.name, "sms": self.real(job.side, size),
             "ms": round(ms, 4), "beside": beside.name if beside else None,
             "beside_sms": self.real(beside.side, beside_size) if beside else 0,
             "front": job.side == "front"})

    def finish(self, workers, number, whole):
        """Paces of the round's samples, by all that was measured on all SMs."""
        if not whole:
            return
        alone = {w.name: fmean(found[w.name] for found in whole) for w in workers}
        for w in workers:
            self.add(number, w, 0, alone[w.name])
            self.result["jobs"][w.name].setdefault("whole_ms", []).append(
                [round(found[w.name], 4) for found in whole])
        for s in self.result["samples"]:
            if s["round"] == number:
                s["pace"] = round(alone[s["job"]] / s["ms"], 5)

    # ---- the daemon ----

    def set_sizes(self, sizes, side=None):
        """SMs of each worker, 0 and unnamed: all; for those that run, and for those that will
        attach to this side."""
        policy = side or "back"
        if side:
            self.daemon.command("policy", "load", policy, "--wait", "0")
        text = ",".join(f"{w.label}={size}" for w, size in sizes.items())
        self.daemon.command("policy", "set", policy, f"sizes={text}", "--wait", "0")

    def real(self, side, size):
        """SMs of the set that a size becomes: of whole groups, on this side."""
        count = self.sms // GROUP_SMS
        groups = [GROUP_SMS] * (count - 1) + [self.sms - GROUP_SMS * (count - 1)]
        if side == "back":
            groups.reverse()
        for n in GROUPS:
            if size > 0 and n < count and sum(groups[:n]) >= size:
                return sum(groups[:n])
        return self.sms

    def sm_total(self):
        devices = self.daemon.status()["status"]["devices"]
        return max(d["sm_total"] for d in devices if "sm_total" in d)

    def counters(self, workers):
        """Launches on sets, and those that should have been and were not: whether sizes held."""
        clients = {c["label"]: c["counters"] for c in self.daemon.status()["ps"]["clients"]}
        return {w.label: {k: clients[w.label][k] for k in ("on_sm_set", "off_sm_set")}
                for w in workers}

    def bandwidth(self, worker):
        """The part of the time in which memory was read or written, by NVML (utilization.memory),
        of the job alone; None where nobody tells."""
        if self.options.sim:
            return None
        worker.process.send("go", time.monotonic() + 0.01, USE_S, 0, 0.1)
        time.sleep(USE_S - 0.1)
        done = subprocess.run(["nvidia-smi", "--query-gpu=utilization.memory",
                               "--format=csv,noheader,nounits"], text=True, capture_output=True)
        worker.process.answer()
        try:
            return float(done.stdout.splitlines()[0])
        except (ValueError, IndexError):
            return None

    def save(self):
        report.write(self.result, self.options.json)
        if self.options.csv:
            write_csv(self.result, self.options.csv)
        self.saved = time.monotonic()
        beside = sum(s["beside"] is not None for s in self.result["samples"])
        self.session.say(f"{len(self.result['samples'])} samples, {beside} beside a neighbour")


def write_csv(result, folder):
    """jobs.csv and samples.csv, as profiles/jobs/README.md has them."""
    total = result["sm_total"]
    good = [s for s in result["samples"] if "pace" in s]
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "jobs.csv", "w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["model", "batch", "alone_ms", "memory_mib", "bandwidth_pct"])
        for name, facts in sorted(result["jobs"].items()):
            if whole := facts.get("whole_ms"):
                used = facts["bandwidth_pct"]
                out.writerow([*name.split("/"), round(fmean(fmean(pair) for pair in whole), 4),
                              facts["memory_mib"], "" if used is None else used])
    with open(folder / "samples.csv", "w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["model", "batch", "share", "neighbour", "neighbour_batch",
                      "neighbour_share", "pace"])
        for s in good:
            beside = s["beside"].split("/") if s["beside"] else ["", ""]
            out.writerow([*s["job"].split("/"), round(s["sms"] / total, 4), *beside,
                          round(s["beside_sms"] / total, 4) if s["beside"] else "", s["pace"]])


def parse(arguments):
    parser = argparse.ArgumentParser(prog="heddle-bench collect", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--json", type=Path, metavar="FILE", help="the result, written whole now and then")
    add("--csv", type=Path, metavar="FOLDER", help="jobs.csv and samples.csv, for heddle plan")
    add("--from", dest="source", type=Path, metavar="FILE", help="measure nothing: this result")
    tree = HERE.parent / "dist" if HERE.name == "bench" else HERE.parents[1]
    add("--dist", type=Path, default=tree, help="install tree of heddle")
    add("--limit", dest="budget_s", type=float, default=360, help="seconds in all (360)")
    add("--jobs", type=lambda text: text.split(","), default=JOBS.split(","),
        help="MODEL/BATCH or MODEL-train/BATCH, apart by commas (MMK's models)")
    add("--side", type=int, default=5, help="jobs resident on each side (5)")
    add("--sizes", type=lambda text: [int(n) for n in text.split(",")],
        default=[int(n) for n in SIZES.split(",")], help=f"SMs, four at most ({SIZES})")
    add("--combos", type=int, default=9, help="pairs of sizes in a round (9)")
    add("--rounds", type=int, default=100, help="at most")
    add("--sample-s", type=float, default=SAMPLE_S, help=f"seconds of a sample ({SAMPLE_S})")
    add("--seed", type=int, default=29)
    add("--sim", action="store_true", help="on the simulated GPU: programs of sleeps")
    options = parser.parse_args(arguments)
    if options.source:
        if not options.csv:
            parser.error("--from needs --csv: the folder to write")
        return options
    if not options.json:
        parser.error("--json is missing: where the result goes")
    if not 1 <= len(options.sizes) <= 4:
        parser.error("--sizes: one to four, for a graph has no more sizes")
    if any("/" not in name or not name.split("/")[1].isdigit() for name in options.jobs):
        parser.error("--jobs: each is MODEL/BATCH, such as resnet50/16")
    if len(options.jobs) < 2 * options.side or options.side < 1:
        parser.error(f"--jobs: {2 * options.side} are resident at a time; name more, or give a "
                     "smaller --side")
    return session.add_origin(options, "bench/collect.py", arguments)


def main():
    options = parse(sys.argv[1:])
    if options.source:
        write_csv(json.loads(options.source.read_text()), options.csv)
        return 0
    # Unix sockets want a short path.
    with tempfile.TemporaryDirectory(prefix="hz-", ignore_cleanup_errors=True) as folder:
        collection = Collection(options, Path(folder))
        try:
            collection.measure()
        except HostError as error:
            collection.session.fail(str(error))
            collection.save()
    return 1 if collection.result["errors"] else 0


if __name__ == "__main__":
    sys.exit(main())
