#!/usr/bin/env python3
"""heddled is killed, stopped and restarted while a fail-open and a fail-closed program run. The
first runs on; the second submits nothing until there is a daemon again. Both compute the right
answers, every launch once."""

import signal
import time

import setting
import stage

RULES = """
[[rule]]
name = "waits for the daemon"
label = "batch"
priority = "batch"
fail = "closed"
"""
DEMO_S = 5.0
WITHOUT_S = 1.5
# The shim notices a hang-up at once, and a stopped heart after 0.5 s; what was granted still goes.
SETTLE_NS = {"killed": 200_000_000, "stopped": 800_000_000}


def without_daemon(begin, end):
    """Takes the daemon away and brings it back; when, in ns of CLOCK_MONOTONIC."""
    begin()
    gone = time.monotonic_ns()
    time.sleep(WITHOUT_S)  # how long it is away: this is no synchronization
    back = time.monotonic_ns()
    end()
    return gone, back


def killed(where):
    where.daemon.kill()
    where.daemon.wait()


def submitted_in(kernels, span):
    return sum(span[0] <= kernel["submitted_ns"] < span[1] for kernel in kernels)


def check(where, name, seed, begin, end):
    demos = setting.start_pair(where, name, seed, DEMO_S)
    stage.wait_until(lambda: len(where.heddle("ps")["clients"]) == 2, 5, "both attached")
    rules = {c["label"]: (c["rule"], c["fail"]) for c in where.heddle("ps")["clients"]}
    if rules["batch"] != ("waits for the daemon", "closed") or rules["latency"][1] != "open":
        raise stage.StageError(f"rules: {rules}")
    stage.wait_until(lambda: where.heddle("status")["devices"][0]["stats"]["granted"] > 10, 5,
                     "grants")
    gone, back = without_daemon(begin, end)
    span = gone + SETTLE_NS[name], back
    ran = where.check_answers({role: demo.finish() for role, demo in demos.items()})
    closed, opened = (submitted_in(ran[role], span) for role in ("batch", "latency"))
    after = sum(kernel["submitted_ns"] > back for kernel in ran["batch"])
    print(f"{name}: {opened} kernels of the fail-open program without a daemon, {closed} of the "
          f"fail-closed one, {after} of it afterwards")
    if closed or not opened or not after:
        raise stage.StageError(name)


def main():
    seed, _ = setting.seeded()
    where = setting.fresh_stage("fail_closed")

    def body():
        where.start_daemon("priority", RULES)
        check(where, "killed", seed, lambda: killed(where), where.respawn_daemon)
        check(where, "stopped", seed, lambda: where.daemon.send_signal(signal.SIGSTOP),
              lambda: where.daemon.send_signal(signal.SIGCONT))

    setting.run(body, where)


if __name__ == "__main__":
    main()
