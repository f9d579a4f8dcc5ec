#!/usr/bin/env python3
"""Two unmodified programs share one GPU: what does each way of sharing cost either side?

For each pair, a latency-critical program (hp) runs beside a best-effort one (be) under every
condition, in short blocks whose order is shuffled anew in each repetition. Rows of different runs
must not be set against each other (launch-bound models move by 15-30 % with the host), so each
repetition measures its own baselines and all ratios are taken within a repetition.

    pairs.py --dist dist --out bench/results/pairs.json          the full comparison
    pairs.py --dist dist --pairs alexnet --conditions mps/client_priority \\
             --variant q200:gapfill:quantum_us=200 --variant q200+cp:gapfill:quantum_us=200
    pairs.py --sim --out /tmp/pairs.json                         the same logic, mock jobs, no GPU

By default processes with and without MPS are loaded at the same time, so that all conditions
alternate; idle ones cost memory only. --apart measures first without MPS, then with it.
"""

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import conditions, report
from harness.processes import Daemon, HostError, Job, Mps, NoMps
from harness.session import Session, add_origin

HERE = Path(__file__).resolve().parent
LEAD_S, TAIL_S = 0.3, 0.15
WARM_S = 0.5
HASH_INPUTS = 3
PROFILE_S = 1.5
RESERVE_S = 12  # per pair, for profiles and the end

PAIRS = {
    "keypointrcnn": (("keypointrcnn_resnet50_fpn", 1), ("fcn_resnet50", 8)),
    "resnet101": (("resnet101", 1), ("vgg16", 64)),
    "alexnet": (("alexnet", 64), ("vgg16", 64)),
}
# Set alike for every process, so that outputs can be compared and conditions stay comparable.
PINNED = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "PYTHONHASHSEED": "0"}


class State:
    """One way in which processes reach the GPU (with or without MPS): server, daemon, jobs."""

    def __init__(self, name, rows, pairs, folder, options):
        self.rows, self.options = rows, options
        self.folder = folder / name
        self.folder.mkdir()
        self.mps = (Mps if name == "mps" and not options.sim else NoMps)(self.folder)
        managed = any(row.policy for row in rows)
        self.daemon = Daemon(options.dist, self.folder / "heddle", name == "mps", self.mps.env,
                             options.config) if managed else None
        self.jobs = {}
        self.pairs = pairs

    def start(self):
        self.mps.start()
        if self.daemon:
            self.daemon.start()
        program = HERE / "workloads" / ("mock_job.py" if self.options.sim else "jobs.py")
        for pair in self.pairs:
            for role in sorted({role for row in self.rows for role in row.roles}):
                model, batch = PAIRS[pair][0 if "hp" in role else 1]
                command = [sys.executable, program, model, str(batch)]
                env = PINNED | self.mps.env | {"HEDDLE_MOCK_DEVICE": str(self.folder / "device")}
                if role.endswith("_cp"):
                    env["CUDA_MPS_CLIENT_PRIORITY"] = "1"
                if role.startswith("heddle_"):
                    command = self.daemon.prefix(role, f"{pair}-{role}") + command
                    env["HEDDLE_SOCKET"] = str(self.daemon.socket)
                log = self.folder / f"{pair}.{role}.log"
                side = "hp" if "hp" in role else "be"
                self.jobs[pair, role] = Job(f"{pair} {role}", side, command, env, log)

    def stop(self):
        for job in self.jobs.values():
            job.stop()
        if self.daemon:
            self.daemon.stop()
        self.mps.stop()


class Comparison(Session):
    def __init__(self, options, rows):
        super().__init__(options, report.skeleton(options, rows, PAIRS))
        self.rows = rows
        self.states = {}

    def run(self):
        phases = [["timeslice"], ["mps"]] if self.options.apart else [["timeslice", "mps"]]
        phases = [[(name, [row for row in self.rows if row.mps == (name == "mps")])
                   for name in phase] for phase in phases]
        phases = [[(name, rows) for name, rows in phase if rows] for phase in phases]
        todo = len(self.rows)
        for phase in filter(None, phases):
            rows = [row for _, part in phase for row in part]
            until = time.monotonic() + self.left_s() * len(rows) / todo
            todo -= len(rows)
            with tempfile.TemporaryDirectory(prefix="heddle-pairs-") as folder:
                self.phase(phase, rows, until, Path(folder))

    def phase(self, phase, rows, until, folder):
        try:
            for name, part in phase:
                self.states[name] = State(name, part, self.options.pairs, folder, self.options)
                self.states[name].start()
            self.say(f"loading {sum(len(s.jobs) for s in self.states.values())} processes")
            for state in self.states.values():
                for (pair, role), job in state.jobs.items():
                    with self.surviving([job]):
                        job.wait_ready()
                        self.result["jobs"][f"{pair} {role}"] = job.about
            self.say("ready")
            for pair in self.options.pairs:
                self.warm_up(pair, rows)
                self.compare_outputs(pair, rows)
            self.repeat(rows, until)
            self.profile(rows)
        except (OSError, subprocess.SubprocessError) as error:
            self.fail(f"stopped: {error}")
        finally:
            for name, state in self.states.items():
                with self.surviving([]):
                    if state.daemon and state.daemon.process:
                        self.result["daemon"][name] = state.daemon.status()
                if self.options.logs:
                    report.keep_logs(state.folder, self.options.logs)
                state.stop()
            self.states = {}
            self.save()

    @contextlib.contextmanager
    def surviving(self, jobs):
        """Device time is scarce: what breaks is given up and reported, the rest goes on."""
        try:
            yield
        except HostError as error:
            self.fail(str(error))
            for job in [job for job in jobs if not job.running()] or jobs:
                job.give_up()
            for job in jobs:
                job.drain()

    def repeat(self, rows, until):
        """Repetitions of all pairs, each with its rows in a new order, while time allows."""
        reserve = RESERVE_S * len(self.options.pairs)
        longest = 0.0
        for repetition in range(self.options.reps):
            begin = time.monotonic()
            if repetition and begin + longest > until - reserve:
                self.say(f"time is nearly spent: {repetition} repetitions")
                break
            for pair in self.options.pairs:
                order = [row for row in rows if repetition % self.options.full_every == 0
                         or conditions.matches(row, self.options.focus)]
                random.Random(f"{self.options.seed} {repetition} {pair}").shuffle(order)
                for place, row in enumerate(order):
                    block = self.block(pair, row, self.options.block_s)
                    if block is None:
                        continue
                    block |= {"rep": repetition, "order": place, "condition": row.name}
                    self.result["pairs"][pair]["raw"].append(block)
                    self.say(f"rep {repetition} {pair} {report.line(block)}")
            longest = max(longest, time.monotonic() - begin)
            self.save()

    def jobs_of(self, pair, row):
        """The row's state and its jobs by side; no jobs if one of them has broken."""
        state = self.states["mps" if row.mps else "timeslice"]
        sides = (("hp", row.hp), ("be", row.be))
        jobs = {side: state.jobs[pair, role] for side, role in sides if role}
        return state, {} if any(job.broken for job in jobs.values()) else jobs

    def ask(self, pair, row, *words):
        """Sends one command to all jobs of a row under its policy; the answers by side, or None."""
        state, jobs = self.jobs_of(pair, row)
        with self.surviving(list(jobs.values())):
            if row.policy and jobs:
                state.daemon.use(row.policy, row.params)
            for job in jobs.values():
                job.send(*words)
            return {side: job.answer() for side, job in jobs.items()} or None
        return None

    def block(self, pair, row, seconds):
        daemon = self.jobs_of(pair, row)[0].daemon if row.policy else None
        before = daemon.counters() if daemon else {}
        start = time.monotonic() + LEAD_S + 0.05
        answers = self.ask(pair, row, "go", f"{start:.6f}", seconds, LEAD_S, TAIL_S)
        if answers is None:
            return None
        block = {}
        for side, answer in answers.items():
            block |= {f"{side}_us": answer["us"], f"{side}_span_s": answer["span_s"]}
        if daemon:
            block["counters"] = report.growth(before, daemon.counters())
        return block

    def warm_up(self, pair, rows):
        """Every process runs once beside its partner, so that heddled has met every kernel."""
        for row in {tuple(row.roles + [row.mps]): row for row in rows}.values():
            self.block(pair, row, WARM_S)

    def compare_outputs(self, pair, rows):
        """Digests of bare and of heddle's processes, each beside its busy partner; the bare ones
        twice, at the beginning and the end, as the control."""
        digests = self.result["pairs"][pair]["digests"]
        both = [row for row in rows if row.hp and row.be]
        order = ([r for r in both if not r.policy] + [r for r in both if r.policy] +
                 [r for r in both if not r.policy])
        seen = set()
        for i, row in enumerate(order):
            key = (row.hp, row.be, row.mps, i >= len(both))
            if key in seen:
                continue
            seen.add(key)
            answers = self.ask(pair, row, "hash", HASH_INPUTS) or {}
            for side, answer in answers.items():
                digests.append({"state": "mps" if row.mps else "timeslice", "side": side,
                                "role": getattr(row, side), "policy": row.policy,
                                "sha256": answer["sha256"]})
        self.say(f"{pair}: outputs {report.outputs(digests)}")

    def profile(self, rows):
        """Last, since a traced process keeps its tracer: the idle fraction, and timelines."""
        for pair in self.options.pairs:
            for row in rows:
                if row.name == self.options.profile_timeline:
                    traces = self.ask(pair, row, "profile", PROFILE_S, 1)
                    report.save_timeline(self.options.out, pair, row.name, traces or {})
            for row in [row for row in rows if row.hp == "hp" and not row.be][:1]:
                answers = self.ask(pair, row, "profile", PROFILE_S, 0) or {}
                self.result["pairs"][pair]["profile"] = answers.get("hp")
        self.say("profiled")

    def save(self):
        report.summarize(self.result, self.rows)
        report.write(self.result, self.options.out)


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--dist", type=Path, default=Path("dist"), help="install tree of heddle")
    add("--out", type=Path, default=HERE / "results/pairs.json")
    add("--pairs", default=",".join(PAIRS), type=lambda text: text.split(","))
    add("--conditions", default="standard", help="names, patterns, or `standard`, comma-separated")
    add("--variant", action="append", default=[],
        help="NAME[+cp][@ts]:POLICY[:key=value,...]: a row of its own")
    add("--priority", default={}, type=conditions.parse_params, help="parameters of that policy")
    add("--gapfill", default={}, type=conditions.parse_params, help="parameters of that policy")
    add("--reps", type=int, default=5)
    add("--full-every", type=int, default=1, metavar="N",
        help="all rows in every Nth repetition, in between those of --focus only")
    add("--focus", default="mps/alone_hp,mps/client_priority,mps/gapfill", help="names, patterns")
    add("--block-s", type=float, default=2.0)
    add("--budget-s", type=float, default=560, help="no further repetition when nearly spent")
    add("--seed", type=int, default=None)
    add("--apart", action="store_true", help="first without MPS, then with it")
    add("--config", action="append", default=[],
        help="a further line of heddled's TOML, such as gpu.idle_us=500")
    add("--profile-timeline", default="", help="condition whose kernels are written out")
    add("--logs", type=Path, help="folder for the logs of daemons and jobs")
    add("--commit", default=os.environ.get("HEDDLE_COMMIT", ""))
    add("--sim", action="store_true", help="mock jobs, no GPU, no MPS")
    options = parser.parse_args(arguments)
    for pair in options.pairs:
        if pair not in PAIRS:
            parser.error(f"no pair {pair}; there are: {', '.join(PAIRS)}")
    add_origin(options, "bench/pairs.py", arguments)
    try:
        params = {"priority": options.priority, "gapfill": options.gapfill}
        variants = [conditions.parse_variant(text) for text in options.variant]
        return options, conditions.choose(options.conditions, params, variants)
    except ValueError as error:
        parser.error(str(error))


def main():
    options, rows = parse(sys.argv[1:])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that finally clauses run
    comparison = Comparison(options, rows)
    comparison.say(f"seed {options.seed}, {len(rows)} conditions: "
                   + ", ".join(row.name for row in rows))
    comparison.run()
    print(report.text(comparison.result))
    return 1 if comparison.result["errors"] else 0


if __name__ == "__main__":
    sys.exit(main())
