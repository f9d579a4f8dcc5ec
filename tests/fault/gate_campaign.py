#!/usr/bin/env python3
"""Random programs at gates on the device: gate_campaign.py PROGRAM [--programs N] [--seed N]. Each
runs bare and, as the less important of two, under policies whose gates open and close all the time.
Its values are the same, and it ends. HEDDLE_SEED or --seed repeats the first program's seed."""

import argparse
import contextlib
import pathlib
import random
import signal
import subprocess
import threading

import setting
import stage

# Lets the oldest launch go two times of three, whoever's it is, and puts its client on other SMs
# all the time.
COIN = """
local asked = 0
return policy {
  name = "coin", api = 1, version = "1.0.0",
  hooks = {
    enqueue = function(k) return queue.insert("held", k, k.priority) end,
    dispatch = function()
      asked = asked + 1
      local k = queue.peek("held")
      if not k or asked % 3 == 0 then return IDLE, "tails" end
      if asked % 7 == 0 then k.client:keep_to(asked % 2 * 64) end
      return asked % 5 == 0 and OPEN or RUN, k
    end,
  },
}
"""
POLICIES = ("priority", "gapfill")


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


class Trouble:
    """Somebody who kills, stops and replaces the daemon, and changes what holds."""

    def __init__(self, where, seed, policies):
        self.where, self.random, self.policies = where, random.Random(seed), policies
        self.daemon_there = threading.Lock()
        self.over = threading.Event()
        self.did = []
        self.problem = None
        self.thread = threading.Thread(target=self.make)
        self.thread.start()

    def make(self):
        try:
            while not self.over.wait(self.random.uniform(0.02, 0.2)):
                act = self.random.choice((self.kill, self.stop, self.bypass, self.switch))
                with self.daemon_there:
                    act()
                self.did.append(act.__name__)
        except Exception as error:  # pylint: disable=broad-except  (told by whom it concerns)
            self.problem = error

    def kill(self):
        self.where.daemon.kill()
        self.where.daemon.wait()
        self.over.wait(self.random.uniform(0, 0.1))
        self.where.respawn_daemon()

    def stop(self):
        self.where.daemon.send_signal(signal.SIGSTOP)
        self.over.wait(self.random.choice((0.02, 0.2, 0.7)))
        self.where.daemon.send_signal(signal.SIGCONT)

    def bypass(self):
        self.where.heddle("bypass", "on")
        self.over.wait(self.random.uniform(0, 0.05))
        self.where.heddle("bypass", "off")

    def switch(self):
        self.where.save_policy(self.random.choice(self.policies))

    def end(self):
        self.over.set()
        self.thread.join()
        if self.problem is not None:
            raise stage.StageError(f"trouble itself: {self.problem}") from self.problem


def ended(process, what):
    """Digest and tickets of the program."""
    try:
        out, error = process.communicate(timeout=120)
    except subprocess.TimeoutExpired as late:
        process.kill()
        raise stage.StageError(f"{what}: does not end: {process.communicate()}") from late
    if process.returncode != 0:
        raise stage.StageError(f"{what} ({process.returncode}): {out[-400:]}{error[-1500:]}")
    words = out.split()
    return words[words.index("digest") + 1], int(words[words.index("tickets") - 1])


def start(where, command, environment):
    return subprocess.Popen(command, env=where.env | environment, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def one(where, plain, trouble):
    """Bare and held; how many launches stood at gates."""
    what = f"seed {plain[2]}"
    bare = ended(start(where, plain, {"LD_LIBRARY_PATH": str(stage.SIM)}), f"{what}, bare")
    with trouble.daemon_there if trouble else contextlib.nullcontext():
        process = start(where, [stage.HEDDLE, "run", "--sim", "--quiet", "--class", "batch",
                                "--label", "held", "--", *plain], {})
        stage.wait_until(lambda: process.poll() is not None or any(
            client["label"] == "held" for client in where.heddle("ps")["clients"]), 10, "attached")
    held = ended(process, f"{what}, held")
    setting.expect(held[0] == bare[0], f"{what}: {held[0]}, bare {bare[0]}")
    return held[1]


def programs(where, program, seeds, operations, trouble=None):
    """Runs them all beside a guest; how many launches stood at gates."""
    guest = Guest(where, seeds[0])
    try:
        return sum(one(where, [program, "--seed", str(seed), "--operations", str(operations)],
                       trouble) for seed in seeds)
    finally:
        guest.leave()
        if trouble:
            trouble.end()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--programs", type=int, default=2, help="under each policy")
    parser.add_argument("--operations", type=int, default=250)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--mode", default="mps", choices=("mps", "timeslice"))
    options = parser.parse_args()
    seed, _ = setting.seeded(options.seed)
    where = setting.fresh_stage("gate_campaign", options.mode)
    coin = setting.write_policy(where, "coin", COIN)

    def body():
        in_all = 0
        for i, policy in enumerate(POLICIES + (coin,)):
            seeds = range(seed + i * options.programs, seed + (i + 1) * options.programs)
            where.stop_daemon()
            where.start_daemon(policy, daemon="gates = true", gpu="starvation_ms = 100")
            gated = programs(where, options.program, seeds, options.operations)
            print(f"{pathlib.Path(policy).stem}: {len(seeds)} programs, {gated} tickets")
            in_all += gated
        # Not of each policy: some programs may not be held, or the guest is elsewhere meanwhile.
        setting.expect(in_all > 0, "nothing stood at a gate")
        trouble = Trouble(where, seed, POLICIES + (coin,))
        gated = programs(where, options.program, seeds, 5 * options.operations, trouble)
        print(f"in trouble: {len(seeds)} programs, {gated} tickets; {len(trouble.did)} times")

    setting.run(body, where)


if __name__ == "__main__":
    main()
