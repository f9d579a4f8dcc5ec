"""How a measured job talks to `heddle-bench run` and the scripts of bench/: one command a line on
stdin, one JSON line back.

    go START SECONDS LEAD TAIL [ARRIVALS]
                                 iterate from START-LEAD to START+SECONDS+TAIL (CLOCK_MONOTONIC, s);
                                 report the iterations that began in [START, START+SECONDS).
                                 ARRIVALS: nothing (closed loop), `open RATE SEED`, `poisson RATE
                                 SEED`, `onoff RATE SEED` (the gaps' coefficient of variation is
                                 2), `burst COUNT RATE` (so many at once, RATE times a second) or
                                 `recorded FILE`; then time counts from the arrival. Or `paired
                                 SEED`: a closed loop of pairs, one with heddle's shim (`us`) and
                                 one bypassing it (`bypassed_us`).
                                 An iteration of several tokens tells when the first was there
                                 (ttft_us) and the times between them (tbt_us) too
    hash COUNT                   digests of every output tensor for COUNT seeded inputs
    profile SECONDS              kernel time and wall time
    quit

Lead and tail keep both sides of a pair busy for the whole of the other's measured window. A job
loads once and stays: an idle process costs memory only, and reloading would cost the alternation.
"""

import ctypes
import gc
import itertools
import json
import os
import random
import sys
import time


SHORT_GAPS = 0.8872983346207417  # kShortGaps of scenario.h, which says why


def reply_stream():
    """The real stdout, kept for replies; whatever a library prints goes to stderr."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return out


def arrivals(kind, begin, *words):
    """When requests come, from `begin` on, for ever."""
    if kind == "recorded":
        with open(" ".join(words)) as file:
            times = [float(word) for word in file.read().split()]
        for turn in itertools.count():
            yield from (begin + turn * times[-1] + at for at in times)
    if kind == "burst":
        size, rate = int(words[0]), float(words[1])
        yield from (begin + count // size / rate for count in itertools.count())
    rate, at, draw = float(words[0]), begin, random.Random(int(words[1]))
    for count in itertools.count():
        yield begin + count / rate if kind == "open" else at
        of = 0.5  # of the mean rate, twice that
        if kind == "onoff":
            of = SHORT_GAPS if draw.random() < SHORT_GAPS else 1 - SHORT_GAPS
        at += draw.expovariate(2 * of * rate)


class Taken:
    """What iterations took, in whole µs, each from when it was due."""

    def __init__(self):
        self.us, self.ttft_us, self.tbt_us, self.first_s, self.last_s = [], [], [], None, 0

    def add(self, due, end, tokens):
        """`tokens`: when each was there (CLOCK_MONOTONIC, s), as iterate() returned them; None if
        it makes no tokens."""
        self.first_s = due if self.first_s is None else self.first_s
        self.last_s = end
        self.us.append(round((end - due) * 1e6))
        if tokens:
            self.ttft_us.append(round((tokens[0] - due) * 1e6))
            self.tbt_us += [round((b - a) * 1e6) for a, b in itertools.pairwise(tokens)]

    def answer(self):
        span_s = self.last_s - (self.first_s or self.last_s)
        of_tokens = {name: us for name in ("ttft_us", "tbt_us") if (us := getattr(self, name))}
        return {"us": self.us, "span_s": round(span_s, 6)} | of_tokens


def go_arriving(iterate, start, seconds, lead, tail, *words):
    """Requests wait their turn; those not begun when the block is over are `unserved`."""
    now, taken, unserved = time.monotonic, Taken(), 0
    for due in arrivals(words[0], start - lead, *words[1:]):
        counts = start <= due < start + seconds
        if max(due, now()) >= start + seconds + tail:
            if due >= start + seconds:
                break
            unserved += counts
            continue
        while now() < due:
            time.sleep(max(0.0, due - now()))
        tokens = iterate()
        if counts:
            taken.add(due, now(), tokens)
    return taken.answer() | {"unserved": unserved}


def go(iterate, start, seconds, lead, tail):
    """Closed loop; latencies in whole µs and the span from first begin to last end."""
    now = time.monotonic
    while now() < start - lead:
        time.sleep(max(0.0, min(0.01, start - lead - now())))
    while now() < start:
        iterate()
    taken = Taken()
    while (begin := now()) < start + seconds:
        tokens = iterate()
        taken.add(begin, now(), tokens)
    while now() < start + seconds + tail:
        iterate()
    return taken.answer()


def bypass_word():
    """The shim's exported word: nonzero, and every launch of this process passes through. None
    without the shim. The name finds what is already loaded."""
    try:
        return ctypes.c_uint32.in_dll(ctypes.CDLL("libcuda.so.1"), "heddle_shim_bypass")
    except (OSError, ValueError):
        return None


def go_paired(iterate, word, start, seconds, lead, seed):
    """Pairs of iterations, in random order with the word at 0 (`us`) and at 1 (`bypassed_us`).
    Nothing else is allocated or printed meanwhile. The span is that of the former."""
    if word is None:
        return {"error": "the shim is not loaded: no heddle_shim_bypass"}
    draw = random.Random(seed)
    taken = ([], [])
    now = time.perf_counter_ns
    gc.collect()  # with PyTorch in it that takes longer than a short measurement
    gc.disable()
    while time.monotonic() < start - lead:
        time.sleep(max(0.0, min(0.01, start - lead - time.monotonic())))
    while time.monotonic() < start:
        iterate()
    try:
        while time.monotonic() < start + seconds:
            first = draw.getrandbits(1)
            for off in (first, 1 - first):
                word.value = off
                begin = now()
                iterate()
                taken[off].append(now() - begin)
    finally:
        word.value = 0
        gc.enable()
    on, bypassed = ([round(ns / 1e3) for ns in each] for each in taken)
    return {"us": on, "span_s": round(sum(on) / 1e6, 6), "bypassed_us": bypassed}


def serve(job, out):
    """Runs commands until `quit` or end of file. `job` has `about`, iterate() (which may return
    when each token was there, see Taken.add()), and perhaps hash(n) and profile(s)."""
    can = ["arrivals"] + [name for name in ("hash", "profile") if hasattr(job, name)]
    print(json.dumps({"ready": True, "pid": os.getpid(), "can": can, **job.about}), file=out)
    for line in sys.stdin:
        command, *arguments = line.split()
        if command == "quit":
            break
        if command == "go" and arguments[4:5] == ["paired"]:
            reply = go_paired(job.iterate, bypass_word(), *map(float, arguments[:3]), arguments[5])
        elif command == "go":
            play = go_arriving if arguments[4:] else go
            reply = play(job.iterate, *map(float, arguments[:4]), *arguments[4:])
        elif command == "hash":
            reply = {"sha256": job.hash(int(arguments[0]))}
        elif command == "profile":
            reply = job.profile(float(arguments[0]))
        else:
            reply = {"error": f"unknown command {command}"}
        print(json.dumps(reply, separators=(",", ":")), file=out)
