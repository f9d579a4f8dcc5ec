#!/usr/bin/env python3
"""Stands in for services.py without a GPU: an iteration of a millisecond that takes, if preloaded,
HEDDLE_MOCK_COST (a share) longer, unless a word of its own says that heddle is bypassed."""

import ctypes
import os
import time

import protocol

WORD = ctypes.c_uint32(0)
COST = float(os.environ.get("HEDDLE_MOCK_COST", "0"))


class Job:
    about = {"gpu": "mock"}

    def iterate(self):
        cost = 0 if WORD.value else COST
        end = time.perf_counter_ns() + int(1e6 * (1 + cost))
        while time.perf_counter_ns() < end:
            pass


if __name__ == "__main__":
    replies = protocol.reply_stream()
    protocol.bypass_word = lambda: WORD
    if "LD_PRELOAD" not in os.environ:
        COST = 0.0
    protocol.serve(Job(), replies)
