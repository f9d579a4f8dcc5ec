#!/usr/bin/env python3
"""A job without a GPU, so that the runner can be tested anywhere: its "kernels" are sleeps
under one lock that all mock jobs share.

    mock_job.py MODEL BATCH [TOKENS]   MODEL only seeds the digests; a larger BATCH has longer
                                       kernels; TOKENS: an iteration is as many kernels and gaps
"""

import fcntl
import hashlib
import os
import sys
import time

from protocol import reply_stream, serve


class Job:
    about = {"gpu": "mock"}

    def __init__(self, name, batch, tokens=0):
        self.name = name
        self.tokens = tokens
        self.kernel_s = 1e-3 if batch == 1 else 2e-3
        self.gap_s = 2e-3 if batch == 1 else 0.0
        self.device = open(os.environ["HEDDLE_MOCK_DEVICE"], "w")

    def iterate(self):
        if not self.tokens:
            return self.step()
        times = []
        for _ in range(self.tokens):
            self.step()
            times.append(time.monotonic())
        return times

    def step(self):
        fcntl.flock(self.device, fcntl.LOCK_EX)
        time.sleep(self.kernel_s)
        fcntl.flock(self.device, fcntl.LOCK_UN)
        time.sleep(self.gap_s)

    def hash(self, count):
        return [hashlib.sha256(f"{self.name}{i}".encode()).hexdigest() for i in range(count)]

    def profile(self, seconds):
        begin, count = time.time(), 0
        while time.time() < begin + seconds:
            self.iterate()
            count += 1
        return {"wall_s": time.time() - begin, "kernel_s": count * self.kernel_s,
                "kernels": count, "iterations": count}


if __name__ == "__main__":
    replies = reply_stream()
    serve(Job(sys.argv[1], *map(int, sys.argv[2:])), replies)
