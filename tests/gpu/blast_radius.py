#!/usr/bin/env python3
"""A best-effort program faults: what happens to the latency-critical one beside it?

Under MPS all clients of a server share its context on the GPU, so a fatal fault of one may be
everyone's; time-sliced processes have their own. Each trial: the latency-critical program runs, the
best-effort one joins and writes to an illegal address after two seconds. Watched are the first
program's error and when it came, whether it can go on after cudaDeviceReset, when a restarted one
works again, and whether the MPS server is still the same process.

    blast_radius.py --dist dist --out bench/results/blast_radius.json
    blast_radius.py --sim --out /tmp/blast.json         mock programs, no GPU: the logic alone
"""

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
from harness import report  # noqa: E402
from harness.processes import Daemon, HostError, Job, Mps, NoMps  # noqa: E402
from harness.session import Session, add_origin, origin, origin_parser  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
FAULT_AFTER_S = 2.0
WATCH_S = 3.0
SILENT_S = 6.0
START_S = 30.0
RESTART_S = 15.0

# name -> (MPS?, heddle?); MPS last, since a server that has seen a fault may not end as it should.
CONDITIONS = {
    "timeslice": (False, False),
    "timeslice+heddle": (False, True),
    "mps": (True, False),
    "mps+heddle": (True, True),
}


def outcome(fault_s, windows, error, silent):
    """What the high-priority program shows from the fault on."""
    before = [w for w in windows if w["at_s"] <= fault_s]
    after = [w for w in windows if w["at_s"] > fault_s]
    found = {"fate": "dies" if error else "hangs" if silent else "goes on",
             "longest_before_us": max((w["longest_us"] for w in before[1:]), default=None),
             "longest_after_us": max((w["longest_us"] for w in after), default=None),
             "iterations_after": sum(w["iterations"] for w in after)}
    if error:
        found |= {"error": error["error"], "after_s": round(error["at_s"] - fault_s, 4)}
    return found


def summary(trials):
    """One row of the table: fates by count, and the middle of what was measured."""
    def middle(key):
        values = [trial[key] for trial in trials if trial.get(key) is not None]
        return round(statistics.median(values), 4) if values else None

    def words(key):
        return sorted({str(trial[key]) for trial in trials if trial.get(key) is not None})

    fates = [trial["fate"] for trial in trials]
    return {"trials": len(trials),
            "fates": {fate: fates.count(fate) for fate in sorted(set(fates))},
            "fault": words("fault"), "error": words("error"), "after_reset": words("after_reset"),
            **{key: middle(key) for key in ("after_s", "works_again_s", "longest_before_us",
                                            "longest_after_us")},
            "mps_server_replaced": words("mps_server_replaced")}


class Setting:
    """One condition's servers, for all of its trials."""

    def __init__(self, name, folder, options):
        self.uses_mps, self.uses_heddle = CONDITIONS[name]
        self.folder, self.options = folder / name, options
        self.folder.mkdir()
        self.mps = (Mps if self.uses_mps and not options.sim else NoMps)(self.folder / "mps")
        self.daemon = Daemon(options.dist, self.folder / "d", self.uses_mps, self.mps.env, [],
                             "gapfill") if self.uses_heddle else None
        self.started = 0

    def start(self):
        self.mps.start()
        if self.daemon:
            self.daemon.start()

    def stop(self):
        if self.daemon:
            self.daemon.stop()
        self.mps.stop()

    def job(self, side, *arguments):
        command = [*self.options.program, *arguments]
        env = dict(self.mps.env)
        if self.options.sim:
            env["HEDDLE_MOCK_FAULT"] = str(self.folder / "fault")
            env["HEDDLE_MOCK_MPS"] = "1" if self.uses_mps else ""
        if self.daemon:
            command = self.daemon.prefix(side, side) + command
            env["HEDDLE_SOCKET"] = str(self.daemon.socket)
        self.started += 1
        log = self.folder / f"{self.started}.{side}.log"
        return Job(f"{side} {self.started}", side, command, env, log)

    def mps_servers(self):
        """Process ids of the MPS servers; None where there is no MPS."""
        if not isinstance(self.mps, Mps):
            return None
        done = subprocess.run(["nvidia-cuda-mps-control"], input="get_server_list\n", text=True,
                              capture_output=True, timeout=20, env=os.environ | self.mps.env)
        return done.stdout.split()


def trial(setting):
    """One fault. HostError if the programs could not even start."""
    hp, be = setting.job("hp", "steady"), None
    try:
        windows = [hp.answer(START_S)]
        be = setting.job("be", "faulty", str(FAULT_AFTER_S))
        started = be.answer(START_S)
        servers, clients = setting.mps_servers(), attached(setting)
        fault = be.answer(FAULT_AFTER_S + START_S)
        error, silent = watch(hp, windows, fault["at_s"])
        found = {"ready": started["ready"], "fault": fault["fault"], "attached": clients}
        found |= outcome(fault["at_s"], windows, error, silent)
        if error:
            found["after_reset"] = hp.answer(SILENT_S).get("after_reset")
        if error or silent:
            hp.give_up()
            found |= works_again(setting, fault["at_s"])
        after = setting.mps_servers()
        if servers is not None:
            found["mps_server_replaced"] = servers != after
        return found
    finally:
        for job in filter(None, (hp, be)):
            job.stop()


def watch(hp, windows, fault_s):
    """Reads the high-priority program's lines until WATCH_S after the fault, its error, silence."""
    while not windows or windows[-1]["at_s"] < fault_s + WATCH_S:
        try:
            line = hp.answer(SILENT_S)
        except HostError:
            return ({"error": f"exit {hp.process.poll()}", "at_s": time.monotonic()}
                    if not hp.running() else None), True
        if "error" in line:
            return line, False
        windows.append(line)
    return None, False


def works_again(setting, fault_s):
    """Restarts the high-priority program, as a supervisor would, until it computes again."""
    deadline = time.monotonic() + RESTART_S
    attempts = 0
    while time.monotonic() < deadline:
        attempts += 1
        job = setting.job("hp", "steady")
        try:
            line = job.answer(RESTART_S)
            if "iterations" in line:
                return {"works_again_s": round(line["at_s"] - fault_s, 3), "attempts": attempts}
        except HostError:
            pass
        finally:
            job.stop()
    return {"works_again_s": None, "attempts": attempts}


def attached(setting):
    """How many of the two programs heddle knows of; None without heddle."""
    if not setting.daemon:
        return None
    return len(setting.daemon.counters().get("ps", {}).get("clients", []))


class BlastRadius(Session):
    def __init__(self, options):
        super().__init__(options, origin(options, "blast-radius") | {
            "conditions": {}, "errors": []})

    def run(self):
        with tempfile.TemporaryDirectory(prefix="heddle-bl-") as folder:
            folder = Path(folder)
            try:
                self.options.program = self.program(folder)
                for name in self.options.only:
                    self.condition(name, folder)
            except (HostError, OSError, subprocess.SubprocessError) as error:
                self.fail(f"stopped: {error}")
            finally:
                if self.options.logs:
                    report.keep_logs(folder, self.options.logs)
                report.write(self.result, self.options.out)

    def program(self, folder):
        if self.options.sim:
            return [sys.executable, ROOT / "tests/gpu/programs/mock_blast.py"]
        built = folder / "blast"
        nvcc = ["nvcc", "-O2", f"-arch={self.options.arch}", "-std=c++17",
                ROOT / "tests/gpu/programs/blast.cu", "-o", built]
        path = os.environ["PATH"] + ":/usr/local/cuda/bin"
        done = subprocess.run(nvcc, text=True, capture_output=True, timeout=150,
                              env=os.environ | {"PATH": path})
        if done.returncode != 0:
            raise HostError(f"blast.cu does not build:\n{done.stderr[-2000:]}")
        return [built]

    def condition(self, name, folder):
        trials = []
        setting = Setting(name, folder, self.options)
        try:
            setting.start()
            while len(trials) < self.options.reps and self.left_s() > 30:
                try:
                    trials.append(trial(setting))
                except HostError as error:
                    self.fail(f"{name}: {error}")
                    trials.append({"fate": "no result", "why": str(error)[-500:]})
                self.say(f"{name}: {trials[-1]}")
        except (HostError, OSError, subprocess.SubprocessError) as error:
            self.fail(f"{name}: {error}")
        finally:
            try:
                setting.stop()
            except (OSError, subprocess.SubprocessError) as error:
                self.fail(f"{name}: its servers do not end: {error}")
        if trials:
            self.result["conditions"][name] = {"summary": summary(trials), "trials": trials}
        report.write(self.result, self.options.out)


def parse(arguments):
    parser = origin_parser(__doc__, "blast_radius.json")
    add = parser.add_argument
    add("--only", default=",".join(CONDITIONS), type=lambda text: text.split(","))
    add("--reps", type=int, default=3)
    add("--budget-s", type=float, default=300)
    add("--arch", default="sm_90")
    add("--logs", type=Path, help="folder for the logs of servers and programs")
    options = parser.parse_args(arguments)
    for name in options.only:
        if name not in CONDITIONS:
            parser.error(f"no condition {name}; there are: {', '.join(CONDITIONS)}")
    return add_origin(options, "tests/gpu/blast_radius.py", arguments)


def main():
    radius = BlastRadius(parse(sys.argv[1:]))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that finally clauses run
    radius.run()
    return 1 if radius.result["errors"] else 0


if __name__ == "__main__":
    sys.exit(main())
