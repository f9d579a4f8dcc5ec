#!/usr/bin/env python3
"""What heddled costs while nobody launches: with no client, and with one that rests.
The bar is 0.1 % of a core (issue 5, item 7)."""

import os
import pathlib
import signal
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/fault"))
import setting  # noqa: E402  (the folder is known only now)
import stage  # noqa: E402
from setting import expect  # noqa: E402

CPU_MAX = 3 * 0.001  # machines that tests run on are slow
SECONDS = 3


def cpu_ns(pid):
    return sum(int((task / "schedstat").read_text().split()[0])
               for task in pathlib.Path(f"/proc/{pid}/task").iterdir())


def cores(pid):
    before, start = cpu_ns(pid), time.monotonic_ns()
    time.sleep(SECONDS)
    return (cpu_ns(pid) - before) / (time.monotonic_ns() - start)


def check(where):
    where.start_daemon("gapfill")
    pid = where.daemon.pid
    time.sleep(0.5)
    nobody = cores(pid)
    demo = where.start_demo("latency", "idle", 1, 2 * SECONDS, time.monotonic_ns(), True)
    stage.wait_until(lambda: any(c["managed"] for c in where.heddle("ps")["clients"]), 5,
                     "attached")
    program = where.heddle("ps")["clients"][0]["pid"]
    os.kill(program, signal.SIGSTOP)
    time.sleep(1.5)  # until what was in flight is believed to be over
    attached = cores(pid)
    os.kill(program, signal.SIGCONT)
    where.check_answers({"latency": demo.finish()})
    print(f"with nobody {nobody:.4%} of a core, with a client that rests {attached:.4%}")
    expect(nobody <= CPU_MAX, nobody)
    expect(attached <= CPU_MAX, attached)


def main():
    where = setting.fresh_stage("idle", "timeslice")
    setting.run(lambda: check(where), where)


if __name__ == "__main__":
    main()
