#!/usr/bin/env python3
"""What stopping kernels that run gives and costs, time-sliced: a service of kernels of 5 ms beside
one that has kernels of 20 ms on all SMs, or sleeps, or allocates; equals with shares; values.

    stops.py --dist dist --out bench/results/stops.json       two minutes
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from harness import report, session  # noqa: E402
from harness.processes import Daemon, NoMps, tail  # noqa: E402

LONG_MS, SERVICE_MS, PAUSE_MS, REQUESTS = 20, 5, 12, 100
ALLOCATIONS, EQUALS_S, EQUALS_MS, PART_S = 300, 4, 3, 2
NVCC = "/usr/local/cuda/bin/nvcc"
THROTTLED_S = (0.01, 0.09)  # runs, and stands: a tenth of a processor's time


class Program:
    """A `standing`: ready once made, and its JSON once ended."""

    def __init__(self, host, words, role=None, label=None):
        prefix = host.daemon.prefix(role, label) if role else []
        self.log = host.folder / f"{label or words[0]}.log"
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [str(w) for w in [*prefix, host.binary, *words]], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=log, text=True, env=os.environ | host.env)
        if self.process.stdout.readline() != "ready\n":
            raise RuntimeError(f"{words}: {tail(self.log)}")

    def go(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return self

    def end(self):
        self.process.stdin.close()
        return self.answer()

    def answer(self):
        line = self.process.stdout.readline()
        self.process.wait(20)
        if not line:
            raise RuntimeError(f"{self.process.args}: {tail(self.log)}")
        return json.loads(line)


class Host:
    def __init__(self, options, folder, policy, lines=()):
        self.options, self.folder = options, folder
        folder.mkdir()
        self.mps = NoMps(folder / "mps")
        self.env = self.mps.env
        self.binary = options.binary
        self.progress = Path("/dev/shm") / f"{folder.parent.name}-{folder.name}"  # as CUDA wants it
        self.daemon = Daemon(options.dist, folder / "heddle", False, self.env,
                             ['gpu.stops = "on"', *lines], policy=policy, place=None)
        (folder / "heddle").mkdir()
        self.env = self.env | {"HEDDLE_SOCKET": str(self.daemon.socket)}

    def long(self, *how, role=None, label=None, ms=LONG_MS):
        return Program(self, ["long", self.progress, ms, *how], role, label)

    def requests(self, role=None, pause_ms=PAUSE_MS, ms=SERVICE_MS, count=REQUESTS):
        words = ["request", self.progress, ms, pause_ms, count]
        return Program(self, words, role, "H" if role else None)

    def beside(self, others, service):
        """The service's answer, and that of those beside it."""
        for program in (*others.values(), service):
            program.go()
        found = {"H": service.answer()}
        for name, other in others.items():
            found[name] = other.end()
        return found


def alone(host):
    found = {"request": host.requests().go().answer()}
    found["closed"] = host.requests(pause_ms=1, ms=7.5, count=60).go().answer()
    program = host.long().go()
    time.sleep(PART_S)
    found["long"] = program.end()
    found["allocate"] = Program(host, ["allocate", 2, ALLOCATIONS]).go().answer()
    return found


def bare(host):
    found = {"long": host.beside({"L": host.long()}, host.requests())}
    closed = dict(pause_ms=1, ms=7.5, count=60)
    found["sleep"] = host.beside({"L": Program(host, ["sleep", LONG_MS])}, host.requests(**closed))
    return found


def batch(host, *how, label="L"):
    return host.long(*how, role="batch", label=label)


def managed(host):
    def beside(*how):
        return host.beside({"L": batch(host, *how)}, host.requests("hp"))

    def l_alone():
        program = batch(host).go()
        time.sleep(PART_S)
        return program.end()

    def sleeps():
        sleep = Program(host, ["sleep", LONG_MS], "batch", "L")
        return host.beside({"L": sleep}, host.requests("hp", pause_ms=1, ms=7.5, count=60))

    def three():
        below = {f"L{i}": batch(host, label=f"L{i}") for i in range(3)}
        return host.beside(below, host.requests("hp"))

    parts = {"service alone": lambda: host.requests("hp").go().answer(), "L alone": l_alone,
             "long": beside, "counters": lambda: stop_counters(host), "sleep": sleeps,
             "alloc": lambda: beside("alloc"), "managed": lambda: beside("managed"),
             "throttled": lambda: throttled(host), "three": three,
             "two below nobody": lambda: two(host), "allocate": lambda: allocations(host),
             "all counters": lambda: stop_counters(host)}
    return {name: tried(part) for name, part in parts.items()}


def tried(part):
    try:
        return part()
    except (RuntimeError, OSError, LookupError, subprocess.SubprocessError) as error:
        return {"failed": f"{type(error).__name__}: {error}"}


def stop_counters(host):
    text = json.dumps(host.daemon.status())
    return {name: int(number) for name, number in re.findall(r'"(stops\w*)": (\d+)', text)}


def throttled(host):
    """L has a tenth of a processor's time, all its threads at once."""
    program = batch(host)
    service = host.requests("hp")
    program.go()
    quit_at = threading.Event()

    def throttle():
        runs, stands = THROTTLED_S
        while not quit_at.is_set():
            for sign, seconds in ((signal.SIGSTOP, stands), (signal.SIGCONT, runs)):
                program.process.send_signal(sign)
                time.sleep(seconds)

    thread = threading.Thread(target=throttle)
    thread.start()
    found = service.go().answer()
    quit_at.set()
    thread.join()
    return {"H": found, "L": program.end()}


def two(host):
    both = [batch(host, label=f"L{i}") for i in range(2)]
    for program in both:
        program.go()
    time.sleep(EQUALS_S)
    return [program.end() for program in both]


def allocations(host):
    """Of H's, while L is stopped for a third program some 60 times a second."""
    calls = Program(host, ["allocate", 2, ALLOCATIONS], "hp", "A")
    others = {"L": batch(host), "A": calls}
    return host.beside(others, host.requests("hp", count=2 * REQUESTS))


def equals(host):
    programs = {name: host.long(role="batch", label=name, ms=EQUALS_MS)
                for name in ("three", "one")}
    for program in programs.values():
        program.go()
    time.sleep(EQUALS_S)
    return {name: program.end() for name, program in programs.items()}


def main():
    parser = session.origin_parser(__doc__, "stops.json")
    parser.add_argument("--policy", default="priority")
    parser.add_argument("--binary", type=Path, help="a built standing.cu")
    arguments = sys.argv[1:]
    options = parser.parse_args(arguments)
    if options.sim:
        parser.error("the simulated GPU does not run standing.cu")
    options = session.add_origin(options, "tests/gpu/stops.py", arguments)
    result = session.origin(options, "stops")
    with tempfile.TemporaryDirectory(prefix="hs-", ignore_cleanup_errors=True) as made:
        folder = Path(made)
        options.binary = options.binary or folder / "standing"
        if not options.binary.exists():
            subprocess.run([NVCC, "-O2", "-std=c++17", "-arch=native",
                            ROOT / "tests/gpu/standing.cu", "-o", options.binary],
                           check=True)
        shares = ['[[rule]]', 'label = "three"', 'share = 3', '[[rule]]',
                  'label = "one"', 'share = 1']
        probe = subprocess.run([options.dist / "libexec/heddle/heddle-stop-probe"],
                               capture_output=True, text=True, check=True)
        result["probe"] = json.loads(probe.stdout)
        for name, part, policy, lines in (("alone", alone, None, ()), ("bare", bare, None, ()),
                                          ("heddle", managed, options.policy, ()),
                                          ("equals", equals, "fair", shares)):
            host = Host(options, folder / name, policy, lines)
            if policy:
                host.daemon.start()
            result[name] = tried(lambda: part(host))
            host.daemon.stop()
            host.progress.unlink(missing_ok=True)
            print(name, json.dumps(result[name]), flush=True)
            report.write(result, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
