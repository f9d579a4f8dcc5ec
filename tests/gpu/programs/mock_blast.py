#!/usr/bin/env python3
"""Stands in for blast.cu without a GPU. A fault is a file, HEDDLE_MOCK_FAULT; whoever shares an MPS
server (HEDDLE_MOCK_MPS) with the faulty one dies of it."""

import json
import os
import select
import sys
import time
from pathlib import Path

FAULT = Path(os.environ["HEDDLE_MOCK_FAULT"])


def say(**line):
    print(json.dumps(line), flush=True)


def steady():
    born = time.time()
    while not select.select([sys.stdin], [], [], 0.05)[0]:
        if (os.environ.get("HEDDLE_MOCK_MPS") and FAULT.exists()
                and FAULT.stat().st_mtime > born):
            say(error="cudaErrorMpsRpcFailure", at_s=time.monotonic())
            say(after_reset="cudaErrorMpsRpcFailure", at_s=time.monotonic())
            return 3
        say(at_s=time.monotonic(), iterations=200, longest_us=400)
    return 0


def faulty(seconds):
    say(ready="cudaSuccess")
    time.sleep(seconds)
    at = time.monotonic()
    FAULT.touch()
    say(fault="cudaErrorIllegalAddress", at_s=at)
    return 3


if __name__ == "__main__":
    sys.exit(steady() if sys.argv[1] == "steady" else faulty(float(sys.argv[2])))
