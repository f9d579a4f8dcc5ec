#!/usr/bin/env python3
"""A round of measurements on a host of several GPUs: what wants a quiet host comes first, then the
lanes run side by side, each with GPUs and processors of its own. rounds.toml has the rounds.

    round.py looks --out $OUT            a lane's results: OUT/LANE.tgz, packed as soon as it ends
    round.py looks --plan                the commands, and starts nothing
    round.py looks --no-gpu --limit-s 60 --out /tmp/r    the logic alone: what measure.py does goes
                                         to the simulated GPU, and what needs a real one fails

Exit status: 0, or 1 if a command failed; the others run on.
"""

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import threading
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = tomllib.loads((Path(__file__).parent / "rounds.toml").read_text())
TAIL = 12       # lines of each lane's log that are shown
MARGIN_S = 6    # between what a command is told that is left and when it is ended


class Lane:
    def __init__(self, name, commands, gpus, processors):
        self.name, self.commands = name, commands
        self.gpus, self.processors = gpus, processors
        self.failed, self.tail = [], []

    def run(self, out, until):
        """Its commands in turn, each until it ends or the round's time is up."""
        folder = out / self.name
        try:
            folder.mkdir(parents=True)
            self.run_in(folder, until)
            with tarfile.open(f"{folder}.tgz", "w:gz") as packed:
                packed.add(folder, self.name)
            shutil.rmtree(folder)
        except OSError as error:
            self.failed.append((str(folder), error))

    def run_in(self, folder, until):
        env = os.environ | {"PYTHONUNBUFFERED": "1"}
        if self.gpus:
            env["CUDA_VISIBLE_DEVICES"] = ",".join(self.gpus)
        with open(folder / "log", "w+b") as log:
            log.write(f"processors {self.processors}\n".encode())
            for command in self.commands:
                left = int(until - time.monotonic())
                if left <= MARGIN_S:
                    self.failed.append((command, "no time left"))
                    continue
                text = command.replace("{out}", shlex.quote(str(folder)))
                text = text.replace("{left}", str(left - MARGIN_S))
                log.write(f"== {left} s left: {text}\n".encode())
                log.flush()
                done = subprocess.run(
                    ["taskset", "-c", ",".join(map(str, self.processors)), "timeout",
                     "--kill-after=5", str(left), "bash", "-c", text],
                    cwd=ROOT, env=env, stdout=log, stderr=subprocess.STDOUT, check=False)
                if done.returncode not in (0, 3):  # 3: some is left for another call
                    self.failed.append((command, f"exit {done.returncode}"))
            log.seek(0)
            self.tail = log.read().decode(errors="replace").splitlines()[-TAIL:]


def gpus_here():
    listed = subprocess.run(["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"],
                            stdout=subprocess.PIPE, text=True, check=True).stdout
    return listed.split()


def by_core(processors):
    """The same, with those of one core side by side: lanes must not share cores."""
    def core(processor):
        path = Path(f"/sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list")
        return min(map(int, re.findall(r"\d+", path.read_text()))) if path.exists() else processor
    return sorted(processors, key=lambda processor: (core(processor), processor))


def lanes_of(round_, gpus):
    """The round's lanes, with the host's GPUs and processors dealt out to them."""
    processors = by_core(os.sched_getaffinity(0))
    wanted = round_["lane"]
    share = max(1, len(processors) // len(wanted))
    lanes, next_gpu = [], 0
    for i, lane in enumerate(wanted):
        count = lane.get("gpus", 1)
        mine = gpus[next_gpu:next_gpu + count]
        next_gpu += count
        if gpus and len(mine) < count:
            sys.exit(f"round.py: the round needs {next_gpu} GPUs or more; the host has {len(gpus)}")
        own = processors[i * share:(i + 1) * share] or processors
        lanes.append(Lane(lane["name"], lane["commands"], mine, own))
    return lanes


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("round", choices=list(ROUNDS))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--limit-s", type=float, help="instead of the round's own")
    parser.add_argument("--plan", action="store_true")
    parser.add_argument("--no-gpu", action="store_true")
    options = parser.parse_args()
    round_ = ROUNDS[options.round]
    if options.plan:
        for lane in [{"name": "first", "commands": round_.get("first", [])}] + round_["lane"]:
            for command in lane["commands"]:
                print(f"{lane['name']}: {command}")
        return 0
    if options.out is None:
        parser.error("--out: a folder for the results")
    gpus = [] if options.no_gpu else gpus_here()
    until = time.monotonic() + (options.limit_s or round_["limit_s"])
    first = Lane("first", round_.get("first", []), gpus[:1], sorted(os.sched_getaffinity(0)))
    lanes = lanes_of(round_, gpus)
    first.run(options.out, until)
    threads = [threading.Thread(target=lane.run, args=(options.out, until)) for lane in lanes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for lane in [first, *lanes]:
        print(f"=== {lane.name}", *(line[:200] for line in lane.tail), sep="\n")
        for command, why in lane.failed:
            print(f"FAILED ({why}): {command}")
    return 1 if any(lane.failed for lane in [first, *lanes]) else 0


if __name__ == "__main__":
    sys.exit(main())
