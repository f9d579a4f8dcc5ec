#!/usr/bin/env python3
"""Policies that are shadowed, promoted and rolled back without a rest while two programs launch:
their answers are right, no launch is lost or doubled, and no policy is blamed. --rounds N (40)."""

import argparse
import subprocess

import setting
import stage

EAGER = """return policy { name = "eager", api = 1, version = "1.0.0", hooks = {
  client_init = function() return GATE end, client_active = function() return GATE end,
  enqueue = function() return RUN end } }
"""


def round_of(eager):
    yield "shadow", eager
    yield "promote", "--wait", "0", "--watch", "1h"
    yield "rollback", "--wait", "0"
    yield "shadow", stage.POLICIES / "fair.lua"
    yield "shadow", "--stop"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    rounds = parser.parse_args().rounds
    seed, _ = setting.seeded()
    where = setting.fresh_stage("policy_swaps")

    def body():
        where.start_daemon("gapfill")
        eager = setting.write_policy(where, "eager", EAGER)
        demos = setting.start_pair(where, "swaps", seed, rounds * 0.3)
        for _ in range(rounds):
            for order in round_of(eager):
                done = subprocess.run([stage.HEDDLE, "policy", *map(str, order)], env=where.env,
                                      capture_output=True, text=True, timeout=60)
                setting.expect(done.returncode == 0, (order, done.stdout, done.stderr))
        status = where.heddle("status")
        where.check_answers({role: demo.finish() for role, demo in demos.items()})
        setting.expect(status["policy"]["reloads"] > 2 * rounds, status["policy"])
        setting.expect(status["policy"]["faults"] == 0, status["policy"])
        setting.expect(status["counters"]["broken_invariants"] == 0, status["counters"])
        print(f"{2 * rounds} shadows, {rounds} promotions, {rounds} rollbacks")

    setting.run(body, where)


if __name__ == "__main__":
    main()
