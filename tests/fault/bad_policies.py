#!/usr/bin/env python3
"""Policies that error, loop or allocate without end, in each hook and at load: the built-in
decides, programs compute the right answers, and `heddle status` says what happened."""

import setting
import stage

FAULTS = {
    "error": 'error("on purpose")',
    "loop": "while true do end",
    "memory": 'local s = "x" while true do s = s .. s end',
}
HOOKS = ("client_init", "client_active", "client_idle", "enqueue", "dispatch", "stopping")
DEMO_S = 0.6


def policy_text(name, hook, fault):
    if hook == "load":
        return f'{FAULTS[fault]}\nreturn policy {{ name = "{name}", api = 1, version = "1" }}\n'
    # The linter refuses an enqueue that never returns anything.
    answer = "return RUN" if hook == "enqueue" else ""
    return (f'return policy {{ name = "{name}", api = 1, version = "1.0.0",\n'
            f"  hooks = {{ {hook} = function(a, b) {FAULTS[fault]} {answer} end }} }}\n")


def faults(status):
    return sum(device["stats"]["policy_faults"] for device in status["devices"])


def one(where, seed, hook, fault, good):
    name = f"{fault}_{hook}"
    bad = setting.write_policy(where, name, policy_text(name, hook, fault))
    before = where.heddle("status")
    where.switch_policy(bad, refused=hook == "load")
    demos = setting.start_pair(where, name, seed, DEMO_S)
    where.check_answers({role: demo.finish() for role, demo in demos.items()})
    status = where.heddle("status")
    # A refused load leaves the running policy and the error; a faulting hook is counted, and after
    # eight faults the policy is out and the error says so.
    if hook == "load" and "active.lua" not in status["policy"]["error"]:
        raise stage.StageError(f"{name}: status does not tell: {status['policy']}")
    if hook != "load" and faults(status) == faults(before):
        raise stage.StageError(f"{name}: no fault counted: {status['devices']}")
    print(f"{name}: {faults(status) - faults(before)} faults; {status['policy']['error']}")
    where.switch_policy(good)  # not the one before, which a refused load left in force


def main():
    seed, _ = setting.seeded()
    where = setting.fresh_stage("bad_policies")

    def body():
        where.start_daemon("priority")
        cases = [(hook, fault) for hook in ("load", *HOOKS) for fault in FAULTS]
        for number, (hook, fault) in enumerate(cases):
            one(where, seed, hook, fault, good=("fifo", "priority")[number % 2])
        print(f"{len(cases)} policies")

    setting.run(body, where)


if __name__ == "__main__":
    main()
