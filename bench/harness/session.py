"""What every measuring script has: options that say where its result comes from, a budget of time,
and a log on standard output."""

import argparse
import os
import random
import re
import shlex
import subprocess
import time
from datetime import datetime, timezone
from pathlib import Path

from .processes import Ending

HERE = Path(__file__).resolve().parent


def origin_parser(text, out=None):
    """A parser with the options that add_origin() completes, and --out where a result has a place
    in bench/results."""
    found = argparse.ArgumentParser(description=text,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    add = found.add_argument
    add("--dist", type=Path, default=HERE.parents[1] / "dist", help="install tree of heddle")
    if out:
        add("--out", type=Path, default=HERE.parent / "results" / out)
    add("--sim", action="store_true", help="on the simulated GPU, to test the logic")
    return found


def add_origin(options, script, arguments):
    """Completes parsed options: command, gpu (name, driver, how many), commit, date, and a seed
    where there is none. From here on the script clears up when its terminal closes."""
    Ending()
    options.dist = options.dist.resolve()
    options.command = shlex.join([script, *arguments])
    options.gpu = ["simulated", "-", 0] if options.sim else gpu()
    options.commit = commit(options.dist)
    options.date = datetime.now(timezone.utc).isoformat(timespec="seconds")
    if "seed" in options and options.seed is None:
        options.seed = random.SystemRandom().randrange(10**6)
    return options


def gpu():
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    lines = subprocess.run(query, text=True, capture_output=True, check=True,
                           timeout=60).stdout.splitlines()
    return [*lines[0].split(", "), len(lines)]


def commit(dist):
    """Of which it was built; where that was without git, HEDDLE_COMMIT."""
    try:
        said = subprocess.run([dist / "bin/heddle", "--version"], text=True, capture_output=True)
    except OSError:
        return "unknown"
    # heddle 0.1.0+git20261129.033045.24ad65a
    known = re.search(r"\+git\d+\.\d+\.(\S+)", said.stdout)
    return known[1] if known else os.environ.get("HEDDLE_COMMIT", "unknown")


def origin(options, benchmark):
    """The first words of a result file."""
    return {"benchmark": benchmark, "mode": "simulated" if options.sim else "real",
            "date": options.date, "commit": options.commit, "gpu": options.gpu[0],
            "driver": options.gpu[1], "command": options.command}


class Session:
    """One run of a script; `result` is what it writes, with a list of `errors` if it may fail()."""

    def __init__(self, options, result):
        self.options, self.result = options, result
        self.started = time.monotonic()

    def left_s(self):
        return self.options.budget_s - (time.monotonic() - self.started)

    def say(self, text):
        print(f"[{time.monotonic() - self.started:6.1f} s] {text}", flush=True)

    def fail(self, text):
        self.result["errors"].append(text)
        self.say(text)
