#!/usr/bin/env python3
"""kill -9 of a client: the other goes on, computes the right answer, and the daemon forgets
the dead one."""

import time

import setting
import stage

DEMO_S = 2.0


def survives(where, seed, random, victim, policy):
    demos = setting.start_pair(where, f"{victim}-{policy}", seed, DEMO_S)
    stage.wait_until(lambda: len(where.heddle("ps")["clients"]) == 2, 5, "both attached")
    time.sleep(0.5 + random.random() * 0.5)  # any moment will do: this is no synchronization
    demos[victim].process.kill()
    demos[victim].process.wait()
    stage.wait_until(lambda: len(where.heddle("ps")["clients"]) == 1, 2, f"{victim} forgotten")
    other = next(role for role in demos if role != victim)
    result = demos[other].finish()
    where.check_answers({other: result})
    print(f"{victim} killed under {policy}: {other} went on, {result['launches']} launches")


def main():
    seed, random = setting.seeded()
    where = setting.fresh_stage("client_killed")

    def body():
        where.start_daemon("fifo")
        for policy in ("gapfill", "priority"):
            where.switch_policy(policy)
            for victim in stage.CLASSES:
                survives(where, seed, random, victim, policy)

    setting.run(body, where)


if __name__ == "__main__":
    main()
