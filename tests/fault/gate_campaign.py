#!/usr/bin/env python3
"""Random programs at gates on the device: gate_campaign.py PROGRAM [--programs N] [--seed N]. Each
runs bare and, as the less important of two, under policies whose gates open and close all the time.
Its values are the same, and it ends. HEDDLE_SEED or --seed repeats the first program's seed."""

import argparse
import pathlib
import random
import subprocess
import threading

import setting
import stage

# Lets the oldest launch go two times of three, whoever's it is.
COIN = """
local asked = 0
return policy {
  name = "coin", api = 1, version = "1.0.0",
  hooks = {
    enqueue = function(k) return queue.insert("held", k, k.priority) end,
    dispatch = function()
      asked = asked + 1
      local k = queue.peek("held")
      if k and asked % 3 ~= 0 then return RUN, k end
      return IDLE, "tails"
    end,
  },
}
"""

class Guest:
    """Somebody more important who comes and goes."""

    def __init__(self, where, seed):
        self.where, self.random = where, random.Random(seed)
        self.over = threading.Event()
        self.visits = 0
        self.thread = threading.Thread(target=self.visit)
        self.thread.start()

    def visit(self):
        while not self.over.is_set():
            seconds = self.random.uniform(0.1, 0.6)
            command = [stage.HEDDLE, "run", "--sim", "--quiet", "--class", "latency", "--",
                       stage.DEMO, "latency", "--seed", str(self.visits), "--seconds", str(seconds)]
            subprocess.run(command, env=self.where.env, stdout=subprocess.DEVNULL, timeout=60,
                           check=False)
            self.visits += 1
            self.over.wait(self.random.uniform(0, 0.2))

    def leave(self):
        self.over.set()
        self.thread.join()


def run(where, what, command, environment):
    """Digest and tickets of the program."""
    try:
        done = subprocess.run(command, env=where.env | environment, text=True, capture_output=True,
                              timeout=120, check=False)
    except subprocess.TimeoutExpired as error:
        raise stage.StageError(f"{what}: does not end: {error.stdout} {error.stderr}") from error
    if done.returncode != 0:
        raise stage.StageError(f"{what} ({done.returncode}): {done.stdout[-400:]}"
                               f"{done.stderr[-1500:]}")
    words = done.stdout.split()
    return words[words.index("digest") + 1], int(words[words.index("tickets") - 1])


def programs(where, program, seeds, operations):
    """Runs them all beside a guest under the policy that is in force; how many stood at gates."""
    guest = Guest(where, seeds[0])
    gated = 0
    try:
        for seed in seeds:
            plain = [program, "--seed", str(seed), "--operations", str(operations)]
            digest, _ = run(where, f"seed {seed}, bare", plain,
                            {"LD_LIBRARY_PATH": str(stage.SIM)})
            held, tickets = run(where, f"seed {seed}, held", [
                stage.HEDDLE, "run", "--sim", "--quiet", "--class", "batch", "--", *plain],
                {"HEDDLE_GATES": "1"})
            setting.expect(held == digest, f"seed {seed}: {held}, bare {digest}")
            gated += tickets
    finally:
        guest.leave()
    setting.expect(guest.visits > 0, "nobody more important came")
    return gated


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--programs", type=int, default=4, help="under each policy")
    parser.add_argument("--operations", type=int, default=250)
    parser.add_argument("--seed", type=int)
    options = parser.parse_args()
    seed, _ = setting.seeded(options.seed)
    where = setting.fresh_stage("gate_campaign")
    coin = setting.write_policy(where, "coin", COIN)

    def body():
        for policy in ("priority", "gapfill", coin):
            where.stop_daemon()
            where.start_daemon(policy, daemon="gates = true", gpu="starvation_ms = 100")
            seeds = range(seed, seed + options.programs)
            gated = programs(where, options.program, seeds, options.operations)
            print(f"{pathlib.Path(policy).stem}: {len(seeds)} programs, {gated} tickets")
            setting.expect(gated > 0, f"{policy}: nothing stood at a gate")

    setting.run(body, where)


if __name__ == "__main__":
    main()
