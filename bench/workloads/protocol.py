"""How a measured job talks to `heddle-bench run` and the scripts of bench/: one command a line on
stdin, one JSON line back.

    go START SECONDS LEAD TAIL [ARRIVALS]
                                 iterate from START-LEAD to START+SECONDS+TAIL (CLOCK_MONOTONIC, s);
                                 report the iterations that began in [START, START+SECONDS).
                                 ARRIVALS: nothing (closed loop), `open RATE SEED`, `poisson RATE
                                 SEED`, `burst COUNT RATE` (so many at once, RATE times a second)
                                 or `recorded FILE`; then time counts from the arrival. Or `paired
                                 SEED`: a closed loop of pairs, one with heddle's shim (`us`) and
                                 one bypassing it (`bypassed_us`).
                                 An iteration of several tokens tells the times between them too
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
        yield at if kind == "poisson" else begin + count / rate
        at += draw.expovariate(rate)


def between(begin, tokens):
    """Times between tokens (TBT) in whole µs, the first from the iteration's begin. `tokens`: when
    each was there (CLOCK_MONOTONIC, s), as iterate() returned them; None if it makes no tokens."""
    return [round((b - a) * 1e6) for a, b in itertools.pairwise((begin, *(tokens or ())))]


def go_arriving(iterate, start, seconds, lead, tail, *words):
    """Requests wait their turn; those not begun when the block is over are `unserved`."""
    now, taken, tbt, first, last, unserved = time.monotonic, [], [], None, 0, 0
    for due in arrivals(words[0], start - lead, *words[1:]):
        counts = start <= due < start + seconds
        if max(due, now()) >= start + seconds + tail:
            if due >= start + seconds:
                break
            unserved += counts
            continue
        while now() < due:
            time.sleep(max(0.0, due - now()))
        begin = now()
        tokens = iterate()
        if counts:
            first, last = due if first is None else first, now()
            taken.append(round((last - due) * 1e6))
            tbt += between(begin, tokens)
    return answer(taken, tbt, last - (first or last)) | {"unserved": unserved}


def go(iterate, start, seconds, lead, tail):
    """Closed loop; latencies in whole µs and the span from first begin to last end."""
    now = time.monotonic
    while now() < start - lead:
        time.sleep(max(0.0, min(0.01, start - lead - now())))
    while now() < start:
        iterate()
    taken, tbt, first, last = [], [], now(), now()
    while (begin := now()) < start + seconds:
        tokens = iterate()
        last = now()
        taken.append(round((last - begin) * 1e6))
        tbt += between(begin, tokens)
    while now() < start + seconds + tail:
        iterate()
    return answer(taken, tbt, last - first)


def answer(taken, tbt, span_s):
    return {"us": taken, "span_s": round(span_s, 6)} | ({"tbt_us": tbt} if tbt else {})


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
    return answer(on, [], sum(on) / 1e6) | {"bypassed_us": bypassed}


def serve(job, out):
    """Runs commands until `quit` or end of file. `job` has `about`, iterate() (which may return
    when each token was there, see between()), and perhaps hash(n) and profile(s)."""
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
