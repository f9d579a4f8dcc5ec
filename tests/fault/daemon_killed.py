#!/usr/bin/env python3
"""kill -9 of heddled while both demos run, half of the times while a launch waits. The demos
compute the right answers, nothing is lost or run twice, and both are attached again within 2 s."""

import os
import time

import setting
import stage

ROUNDS = int(os.environ.get("HEDDLE_FAULT_ROUNDS", "25"))
DEMO_S = 20.0
LAST_ROUND_S = 3.5  # a round is not begun when less is left of the demos
REATTACH_S = 2.0


def attached(where):
    clients = where.heddle("ps")["clients"]
    return clients if len([c for c in clients if c["managed"]]) == 2 else None


def one_round(where, random, hold, waiting):
    """Kills and restarts the daemon; returns how long both took to attach again, in seconds."""
    if waiting:
        where.switch_policy(hold)
        stage.wait_until(lambda: where.heddle("status")["devices"][0]["waiting"], 2,
                         "a launch that waits")
    else:
        time.sleep(random.random() * 0.1)  # any moment will do: this is no synchronization
    where.daemon.kill()
    where.daemon.wait()
    where.save_policy("gapfill")
    where.respawn_daemon()
    born = time.monotonic()
    stage.wait_until(lambda: attached(where), REATTACH_S, "both attached again")
    return time.monotonic() - born


def main():
    seed, random = setting.seeded()
    where = setting.fresh_stage("daemon_killed")
    hold = setting.write_policy(where, "hold", setting.HOLD)

    def body():
        where.start_daemon("gapfill")
        done, slowest, waited, launches = 0, 0.0, 0, 0
        while done < ROUNDS:
            demos = setting.start_pair(where, f"rounds{done}", seed + done, DEMO_S)
            end = time.monotonic() + 0.5 + DEMO_S
            stage.wait_until(lambda: attached(where), 5, "both attached")
            while done < ROUNDS and time.monotonic() + LAST_ROUND_S < end:
                slowest = max(slowest, one_round(where, random, hold, waiting=done % 2 == 1))
                waited += done % 2
                done += 1
            results = {role: demo.finish() for role, demo in demos.items()}
            where.check_answers(results)
            launches += sum(result["launches"] for result in results.values())
        print(f"{done} kills, {waited} while a launch waited; slowest re-attach {slowest:.2f} s; "
              f"{launches} launches, all of them once")

    setting.run(body, where)


if __name__ == "__main__":
    main()
