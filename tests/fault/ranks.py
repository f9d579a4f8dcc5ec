#!/usr/bin/env python3
"""Jobs whose kernels wait for each other, under every shipped policy: ranks.py PROGRAM.

Two processes of two ranks each, and one process with all four, beside a latency-critical program or
with ranks of different priorities. Whatever is held back, every job ends, long before the
starvation bound of a second would have let each of its launches go. Beside that program `exclusive`
lets them go by the bound alone, and so may `auto` while a kernel that waits for another costs the
program more than it was promised: there the bound is lower, and the job ends within it, times the
launches of a rank."""

import pathlib
import subprocess
import sys
import time

import setting
import stage

PROGRAM = pathlib.Path(sys.argv[1])
RANKS, ITERATIONS = 4, 25
SECONDS_MAX = 10  # it takes some tenths of a second
# Where every launch may be held for the bound. An iteration has two that are, and a collective.
BY_BOUND = ("auto", "exclusive")
STARVATION_MS, STARVED_ITERATIONS = 100, 10
# With starts, on a busy host, and runs.
STARVED_SECONDS_MAX = 2 * STARVED_ITERATIONS * STARVATION_MS / 1e3 + 6


def start(where, name, priority, count, iterations):
    command = [stage.HEDDLE, "run", "--sim", "--priority", priority, "--label", name, "--", PROGRAM,
               "--ranks", RANKS, "--count", count, "--iterations", iterations]
    with open(where.folder / f"{name}.log", "wb") as log:
        return subprocess.Popen([str(word) for word in command], env=where.env, stdout=log,
                                stderr=log)


def run_job(where, name, priorities, beside, iterations=ITERATIONS, seconds_max=SECONDS_MAX):
    """One process per priority, together RANKS ranks. Seconds until all have ended."""
    where.next_gpu(name)
    demo = None
    if beside:
        demo = where.start_demo("latency", name, 1, 60, time.monotonic_ns(), managed=True)
        stage.wait_until(lambda: where.heddle("ps")["clients"], 10, "the demo attached")
    begin = time.monotonic()
    count = RANKS // len(priorities)
    ranks = [start(where, f"{name}.{i}", priority, count, iterations)
             for i, priority in enumerate(priorities)]
    try:
        for rank in ranks:
            left = max(0.1, begin + seconds_max - time.monotonic())
            if rank.wait(left) != 0:
                raise stage.StageError(f"{name}: {stage.tail(where.folder / (name + '.0.log'))}")
    except subprocess.TimeoutExpired as error:
        raise stage.StageError(f"{name}: ranks still wait after {seconds_max:g} s") from error
    finally:
        for process in [*ranks, *([demo.process] if demo else [])]:
            process.kill()
            process.wait()
    return time.monotonic() - begin


# Name, priorities of the processes, beside a latency-critical program.
JOBS = (("alone", (9, 9), False), ("beside", (9, 9), True), ("one process", (9,), True),
        ("mixed", (0, 9), False), ("mixed beside", (5, 9), True))


def run_jobs(where, policy, jobs, **limits):
    for name, priorities, beside in jobs:
        took = run_job(where, f"{policy}-{name.replace(' ', '-')}", priorities, beside, **limits)
        print(f"{where.mode:9} {policy:9} {name:13} {took:6.2f} s, {starved(where)} starved so far",
              flush=True)


def starved(where):
    return sum(d["stats"]["starved"] for d in where.heddle("status")["devices"])


def run_all(mode):
    where = setting.fresh_stage(f"ranks-{mode}", mode)
    beside = [job for job in JOBS if job[2]]

    def body():
        policies = sorted(path.stem for path in stage.POLICIES.rglob("*.lua")
                          if path.parent.name != "lib" and not path.stem.endswith("_test"))
        where.start_daemon(policies[0])
        for policy in policies:
            if policy != policies[0]:
                where.switch_policy(policy)
            run_jobs(where, policy, [job for job in JOBS
                                     if job not in beside or policy not in BY_BOUND])
        for policy in BY_BOUND:
            where.stop_daemon()
            where.start_daemon(policy, gpu=f"starvation_ms = {STARVATION_MS}")
            run_jobs(where, policy, beside, iterations=STARVED_ITERATIONS,
                     seconds_max=STARVED_SECONDS_MAX)
        setting.expect(starved(where), "exclusive: nothing was held for the starvation bound")

    setting.run(body, where)


def main():
    for mode in ("mps", "timeslice"):
        run_all(mode)


if __name__ == "__main__":
    main()
