#!/usr/bin/env python3
"""Jobs whose kernels wait for each other, under every shipped policy: ranks.py PROGRAM.

Two processes of two ranks each, and one process with all four, beside a latency-critical program or
with ranks of different priorities. Whatever is held back, every job ends, long before the
starvation bound of a second would have let each of its launches go."""

import pathlib
import subprocess
import sys
import time

import setting
import stage

PROGRAM = pathlib.Path(sys.argv[1])
RANKS, ITERATIONS = 4, 25
SECONDS_MAX = 10  # it takes some tenths of a second


def start(where, name, priority, count):
    command = [stage.HEDDLE, "run", "--sim", "--priority", priority, "--label", name, "--", PROGRAM,
               "--ranks", RANKS, "--count", count, "--iterations", ITERATIONS]
    with open(where.folder / f"{name}.log", "wb") as log:
        return subprocess.Popen([str(word) for word in command], env=where.env, stdout=log,
                                stderr=log)


def run_job(where, name, priorities, beside):
    """One process per priority, together RANKS ranks. Seconds until all have ended."""
    where.next_gpu(name)
    demo = None
    if beside:
        demo = where.start_demo("latency", name, 1, 60, time.monotonic_ns(), managed=True)
        stage.wait_until(lambda: where.heddle("ps")["clients"], 10, "the demo attached")
    begin = time.monotonic()
    count = RANKS // len(priorities)
    ranks = [start(where, f"{name}.{i}", priority, count) for i, priority in enumerate(priorities)]
    try:
        for rank in ranks:
            left = max(0.1, begin + SECONDS_MAX - time.monotonic())
            if rank.wait(left) != 0:
                raise stage.StageError(f"{name}: {stage.tail(where.folder / (name + '.0.log'))}")
    except subprocess.TimeoutExpired as error:
        raise stage.StageError(f"{name}: its ranks wait for each other for ever") from error
    finally:
        for process in [*ranks, *([demo.process] if demo else [])]:
            process.kill()
            process.wait()
    return time.monotonic() - begin


# Name, priorities of the processes, beside a latency-critical program.
JOBS = (("alone", (9, 9), False), ("beside", (9, 9), True), ("one process", (9,), True),
        ("mixed", (0, 9), False), ("mixed beside", (5, 9), True))


def run_all(mode):
    where = setting.fresh_stage(f"ranks-{mode}", mode)

    def body():
        policies = sorted(path.stem for path in stage.POLICIES.glob("*.lua")
                          if not path.stem.endswith("_test"))
        where.start_daemon(policies[0])
        for policy in policies:
            if policy != policies[0]:
                where.switch_policy(policy)
            for name, priorities, beside in JOBS:
                if policy == "exclusive" and beside:
                    continue  # nobody below the other program runs, that is all it is for
                took = run_job(where, f"{policy}-{name.replace(' ', '-')}", priorities, beside)
                starved = sum(d["stats"]["starved"] for d in where.heddle("status")["devices"])
                print(f"{mode:9} {policy:8} {name:13} {took:6.2f} s, {starved} starved so far",
                      flush=True)

    setting.run(body, where)


def main():
    for mode in ("mps", "timeslice"):
        run_all(mode)


if __name__ == "__main__":
    main()
