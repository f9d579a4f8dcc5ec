#!/usr/bin/env python3
"""What heddle costs one service at the top priority that has the GPU to itself.

In one process: the shim's bypass word is flipped every iteration, in random order within each pair,
and the difference within pairs is what heddle costs; launch-bound models move by 15-30 % from run
to run, which pairs an iteration apart do not see. One further run for what pairs cannot show, the
preload itself: processes bare, preloaded but disabled, and managed take turns in short blocks.

    overhead.py --dist dist --out bench/results/overhead.json
    overhead.py --dist dist --only resnet50_bs1,llm_graph --policies gapfill --seconds 12
    overhead.py --stage --dist dist --out bench/results/stage.json
                                  instead: new tasks in their measurement stage, and behind it
    overhead.py --sim --out /tmp/overhead.json          mock services, no GPU: the logic alone

Bar: at most +1 % each. `typical` is the median of the differences over the median of the bypassed
iterations; `mean` is the mean of the differences over their mean, which sees rare costs as well and
takes more noise. Both with their 95 % bootstrap intervals.
"""

import argparse
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

from harness import figures, report
from harness.processes import PINNED, Daemon, HostError, Job, Mps, NoMps, placement
from harness.session import Session, add_origin, origin

HERE = Path(__file__).resolve().parent
BAR = 0.01
BOOTSTRAP_ROUNDS = 400  # of thousands of values: the interval's own error is far below its width
WARM_S = 3.0  # the measurement stage is a second of iterations, every second of them bypassed
CHUNK_S = 0.05  # of a measurement stage: short against its hundred runs
SERVICES = {
    "resnet50_bs1": ("resnet50", 1),
    "resnet50_bs32": ("resnet50", 32),
    "alexnet_bs64": ("alexnet", 64),
    "llm_eager": ("llm_eager", 1),
    "llm_graph": ("llm_graph", 1),
    "maskrcnn_bs1": ("maskrcnn_resnet50_fpn", 1),
    "deeplab_bs1": ("deeplabv3_resnet101", 1),
    "resnet101_bs1": ("resnet101", 1),
    "vgg16_bs64": ("vgg16", 64),
    "keypointrcnn_bs1": ("keypointrcnn_resnet50_fpn", 1),
    "fasterrcnn_bs1": ("fasterrcnn_resnet50_fpn", 1),
    "fcn_bs8": ("fcn_resnet50", 8),
}
USUAL = tuple(SERVICES)[:7]  # the others: FIKIT's Scheme II has seven models
PRELOAD_SERVICES = ("resnet50_bs1", "alexnet_bs64")
KINDS = ("bare", "disabled", "managed")
PROCESSES = 2  # of each kind: where a process's memory lies alone makes a difference


def compared(on_ns, off_ns):
    """Paired differences (on - off) and what they are of the bypassed iterations."""
    differences = [on - off for on, off in zip(on_ns, off_ns)]
    typical, mean = statistics.median(off_ns), statistics.fmean(off_ns)
    return {
        "pairs": len(differences),
        "off_us": round(typical / 1e3, 2),
        "difference_us": round(statistics.median(differences) / 1e3, 3),
        "typical": share(differences, statistics.median, typical),
        "mean": share(differences, statistics.fmean, mean),
    }


def share(values, statistic, of):
    lo, hi = figures.interval(values, statistic, BOOTSTRAP_ROUNDS)
    return {key: round(value / of, 5)
            for key, value in (("value", statistic(values)), ("lo", lo), ("hi", hi))}


def passes(comparison):
    """True if the whole interval is within the bar, False if none of it is; None: not shown."""
    if comparison["typical"]["hi"] <= BAR:
        return True
    return False if comparison["typical"]["lo"] > BAR else None


def over_bare(blocks):
    """Each kind's median iteration over bare's, by round; bare against itself is the noise."""
    answer = {}
    rounds = sorted({block["round"] for block in blocks})
    medians = {}
    for block in blocks:
        if block["us"]:
            key = block["round"], block["kind"]
            medians.setdefault(key, []).append(statistics.median(block["us"]))
    for kind in KINDS[1:]:
        ratios = [statistics.fmean(medians[r, kind]) / statistics.fmean(medians[r, "bare"]) - 1
                  for r in rounds if (r, kind) in medians and (r, "bare") in medians]
        answer[kind] = figures.median_with_interval(ratios)
    return answer


class Overhead(Session):
    def __init__(self, options):
        super().__init__(options, origin(options, "overhead") | {
            "seed": options.seed, "sharing": "mps" if options.mps else "time-sliced", "bar": BAR,
            "pinned_cpus": placement(), "services": {}, "preload": {}, "errors": []})
        self.draw = random.Random(options.seed)

    def run(self):
        with tempfile.TemporaryDirectory(prefix="heddle-ov-") as folder:
            self.folder = Path(folder)
            self.mps = (Mps if self.options.mps else NoMps)(self.folder / "mps")
            self.daemon = Daemon(self.options.dist, self.folder / "heddle", self.options.mps,
                                 self.mps.env, self.options.config)
            try:
                self.mps.start()
                self.daemon.start()
                for name in self.options.only:
                    self.guarded(self.measure_stage if self.options.stage else self.measure, name)
                for name in self.options.preload:
                    self.guarded(self.measure_preload, name)
            except (HostError, OSError) as error:
                self.fail(f"stopped: {error}")
            finally:
                if self.options.logs:
                    report.keep_logs(self.folder, self.options.logs)
                self.daemon.stop()
                self.mps.stop()
                self.save()

    def guarded(self, measure, name):
        """Device time is scarce: what breaks is reported, the rest goes on."""
        try:
            measure(name)
        except (HostError, KeyError, statistics.StatisticsError) as error:
            self.fail(f"{name}: {error!r:.3000}")
        self.save()

    def start(self, name, kind, number=0):
        """One process of a service; it need not be ready yet."""
        model, batch = SERVICES[name]
        program = "mock_service.py" if self.options.sim else "services.py"
        command = [sys.executable, HERE / "workloads" / program, model, str(batch)]
        label = f"{name}.{number}" if self.options.stage else name
        env = PINNED | self.mps.env | {"HEDDLE_SOCKET": str(self.daemon.socket)}
        if kind != "bare":
            command = self.daemon.prefix("hp", label) + command
        if kind == "disabled":
            env["HEDDLE_DISABLE"] = "1"
        if self.options.stage:
            env["HEDDLE_BENCH_LOAD_BYPASSED"] = "1"
        log = self.folder / f"{name}.{kind}{number}.log"
        return Job(f"{name} {kind}", "hp", command, env, log)

    def measure(self, name):
        if self.left_s() < 30:
            return self.fail(f"{name}: not run, time is spent")
        job = self.start(name, "managed")
        try:
            job.wait_ready()
            found = self.result["services"][name] = {"about": job.about, "policies": {}}
            for policy in self.options.policies:
                self.daemon.use(policy, {})
                found["policies"][policy] = self.row(job, name, policy)
        finally:
            job.stop()

    def row(self, job, name, title):
        """Pairs of the service as it is now, their figures, and what else was counted."""
        self.ab(job, WARM_S)
        before = self.daemon.counters()
        answer = self.ab(job, min(self.options.seconds, self.left_s() - 5))
        attached = [client for client in self.daemon.counters().get("ps", {"clients": []})
                    ["clients"] if client["label"] == name and client["managed"]]
        row = compared(answer["on_ns"], answer["off_ns"])
        row |= {"passes": passes(row), "attached": len(attached),
                "unobserved": any(client["unobserved"] for client in attached),
                "counters": report.growth(before, self.daemon.counters()),
                "raw": {key: answer[key] for key in ("on_ns", "off_ns")}}
        if not attached and not self.options.sim:
            self.fail(f"{name}: not attached, so this measured nothing")
        self.say(f"{name} {title}: {row['pairs']} pairs, {row['off_us']} us, "
                 f"{row['typical']['value']:+.3%} [{row['typical']['lo']:+.3%}, "
                 f"{row['typical']['hi']:+.3%}], mean {row['mean']['value']:+.3%}")
        return row

    def ab(self, job, seconds):
        job.send("ab", seconds, self.draw.randrange(1 << 30))  # of its own for each chunk
        answer = job.answer()
        if "error" in answer:
            raise HostError(answer["error"])
        return answer

    def measure_stage(self, name):
        """Processes with a label of their own each, and so new tasks, from their first managed
        launch on; pairs as ever, in chunks, by what the daemon says of the task when one begins.
        Before the first pair of each there is a silence, of a tenth of a second and more."""
        taken = {"stage": ([], []), "profiled": ([], []),
                 "stage, after a silence": ([], []), "profiled, after a silence": ([], [])}
        self.daemon.use(self.options.policies[0], {})
        about, attached = {}, 0
        for number in range(self.options.stages):
            if self.left_s() < 30:
                self.fail(f"{name}: {number} of {self.options.stages} tasks, time is spent")
                break
            job = self.start(name, "managed", number)
            try:
                job.wait_ready()
                about, end, profiled = job.about, time.monotonic() + self.options.seconds, False
                while time.monotonic() < end:
                    answer = self.ab(job, CHUNK_S)
                    phase = "profiled" if profiled else "stage"
                    for which, key in enumerate(("on_ns", "off_ns")):
                        taken[phase + ", after a silence"][which].extend(answer[key][:1])
                        taken[phase][which].extend(answer[key][1:])
                    clients = self.daemon.counters().get("ps", {"clients": []})["clients"]
                    client = [c for c in clients
                              if c["label"] == f"{name}.{number}" and c["managed"]]
                    attached += bool(client)
                    profiled = any(d["profiled"] for c in client for d in c["devices"])
            finally:
                job.stop()
        if not attached and not self.options.sim:
            self.fail(f"{name}: not attached, so this measured nothing")
        rows = {key: compared(*both) | {"raw": dict(zip(("on_ns", "off_ns"), both))}
                for key, both in taken.items() if both[0]}
        self.result["services"][name] = {"about": about, **rows}
        for key, row in rows.items():
            self.say(f"{name} {key}: {row['pairs']} pairs, {row['off_us']} us, typical "
                     f"{row['typical']['value']:+.3%}, mean {row['mean']['value']:+.3%} "
                     f"[{row['mean']['lo']:+.3%}, {row['mean']['hi']:+.3%}]")

    def measure_preload(self, name):
        if self.left_s() < 60:
            return self.fail(f"preload {name}: not run, time is spent")
        self.daemon.use(self.options.policies[0], {})
        jobs = []
        try:
            for number in range(PROCESSES):
                jobs += [(kind, self.start(name, kind, number)) for kind in KINDS]
            for _, job in jobs:
                job.wait_ready()
            blocks, longest = [], 0.0
            for turn in range(self.options.rounds):
                begin = time.monotonic()
                if self.left_s() < longest + 10:
                    break
                order = random.Random(f"{self.options.seed} {turn}").sample(jobs, len(jobs))
                blocks += [{"round": turn, "kind": kind, "us": self.block(job)}
                           for kind, job in order]
                longest = max(longest, time.monotonic() - begin)
            found = {"rounds": blocks[-1]["round"] + 1 if blocks else 0,
                     "bare_us": statistics.median(
                         us for b in blocks if b["kind"] == "bare" for us in b["us"]),
                     "over_bare": over_bare(blocks), "raw": blocks}
            self.result["preload"][name] = found
            self.say(f"preload {name}: {found['over_bare']}")
        finally:
            for _, job in jobs:
                job.stop()

    def block(self, job):
        lead = self.options.block_s / 5
        job.send("go", time.monotonic() + lead + 0.01, self.options.block_s, lead, 0)
        return job.answer()["us"]

    def save(self):
        report.write(self.result, self.options.out)


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--dist", type=Path, default=Path("dist"), help="install tree of heddle")
    add("--out", type=Path, default=HERE / "results/overhead.json")
    add("--only", default=",".join(USUAL))
    add("--policies", default="gapfill,priority")
    add("--seconds", type=float, default=8, help="of pairs, for each service and policy")
    add("--preload", default=",".join(PRELOAD_SERVICES), help="its services, or ''")
    add("--rounds", type=int, default=20, help="of the preload's run")
    add("--block-s", type=float, default=0.4)
    add("--stage", action="store_true", help="the measurement stage of new tasks instead")
    add("--stages", type=int, default=10, help="new tasks of each service, for --stage")
    add("--budget-s", type=float, default=540)
    add("--seed", type=int, default=None)
    add("--mps", action="store_true", help="under an MPS server of our own")
    add("--config", action="append", default=[], help="a further line of heddled's TOML")
    add("--logs", type=Path, help="folder for the logs of daemon and services")
    add("--commit", default=os.environ.get("HEDDLE_COMMIT", ""))
    add("--sim", action="store_true", help="mock services, no GPU")
    options = parser.parse_args(arguments)
    for key in ("only", "policies", "preload"):
        setattr(options, key, [name for name in getattr(options, key).split(",") if name])
    if options.stage:
        options.preload = []
    for name in options.only + options.preload:
        if name not in SERVICES:
            parser.error(f"no service {name}; there are: {', '.join(SERVICES)}")
    return add_origin(options, "bench/overhead.py", arguments)


def main():
    options = parse(sys.argv[1:])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that finally clauses run
    overhead = Overhead(options)
    overhead.run()
    return 1 if overhead.result["errors"] else 0


if __name__ == "__main__":
    sys.exit(main())
