#!/usr/bin/env python3
"""Stands in for what bench/workloads/interference.cu is built to: fake_interference.py SPEC

While it holds `dram,blocks=132` it stops the program whose PID is in the file that FAKE_VICTIM
names, half of the time, and says half of the pressure that it has alone. Other specifications
press on nobody. FAKE_BROKEN names the channels of which it fails.
"""

import json
import os
import pathlib
import signal
import sys
import time

SLICE_S = 0.004
ALONE = {"dram,blocks=66": 1000, "dram,blocks=132": 2000, "issue,ilp=2": 1.9, "issue,ilp=4": 3.8}


def victim():
    """The program's PID; 0 where it does not run."""
    try:
        pid = int(pathlib.Path(os.environ["FAKE_VICTIM"]).read_text())
        os.kill(pid, 0)
        return pid
    except (FileNotFoundError, ProcessLookupError, ValueError):
        return 0


def hold(spec, seconds):
    pid = victim()
    presses = pid and spec == "dram,blocks=132"
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if presses:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(SLICE_S)
            os.kill(pid, signal.SIGCONT)
        time.sleep(SLICE_S)
    return ALONE[spec] / (2 if presses else 1)


def main():
    spec = sys.argv[1]
    if spec.split(",")[0] in os.environ.get("FAKE_BROKEN", ""):
        sys.exit("out of luck")
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        word, seconds = line.split()
        assert word == "hold", line
        print(json.dumps({"launches": 0, "held_us": 500, "held_unit": "GB/s",
                          "held_pressure": hold(spec, float(seconds))}), flush=True)


if __name__ == "__main__":
    main()
