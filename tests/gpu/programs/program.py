"""What the Python programs of the framework matrix share: rounds with a half-way mark, digests of
outputs, and the one JSON line that tests/gpu/cells.py reads (program.h is the same for CUDA C++).

A program computes the same whatever the pace: HEDDLE_MATRIX_PACE_MS is slept after each round, so
that work is submitted before, while and after a daemon is gone. The line "half" is printed once.
"""

import hashlib
import json
import os
import select
import sys
import time

ROUNDS = 24
PACE_S = float(os.environ.get("HEDDLE_MATRIX_PACE_MS", "0")) / 1e3

# The real stdout is for replies; whatever a library prints goes to stderr.
REPLIES = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)


def rounds():
    for index in range(ROUNDS):
        if index == ROUNDS // 2:
            half()
        yield index
        time.sleep(PACE_S)


def half():
    print("half", file=REPLIES)


def digest(array):
    """Of a NumPy array: shape, type and bytes."""
    found = hashlib.sha256(f"{array.shape}{array.dtype}".encode())
    found.update(array.tobytes())
    return found.hexdigest()[:16]


def skip(why):
    """The program cannot say anything here: reported as skipped."""
    print(json.dumps({"skip": why}), file=REPLIES)
    sys.exit(77)


def finish(digests, launches=None, **more):
    """Prints the result and stays until the reader has looked at this process: two seconds."""
    print(json.dumps({"digests": digests, "launches": launches, **more}), file=REPLIES)
    select.select([sys.stdin], [], [], 2.0)
