#!/usr/bin/env python3
"""Random programs of executable graphs, which have twins, on the simulated GPU: graph_order.py
CAMPAIGN. Launches of one executable follow each other as they do without heddle, whatever their
streams, threads and updates. HEDDLE_SEED repeats a seed; HEDDLE_GRAPH_ROUNDS makes it longer."""

import os
import pathlib
import random
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples/quickstart"))
import stage  # noqa: E402  (the folder is known only now)

ROUNDS = os.environ.get("HEDDLE_GRAPH_ROUNDS", "8000")
# A launch priority alone makes twins; sizes that change all the time make many.
POLICIES = ("priority", ROOT / "bench/experiments/cycle.lua")


def run(where, what, command, seed):
    done = subprocess.run([*command, "--seed", str(seed), "--rounds", ROUNDS], env=where.env,
                          text=True, capture_output=True, timeout=100, check=False)
    if done.returncode != 0:
        raise stage.StageError(f"{what}, seed {seed}: {done.stdout[-400:]}{done.stderr[-400:]}")


def check(where, campaign, seed):
    run(where, "bare", ["env", f"LD_LIBRARY_PATH={stage.SIM}", campaign], seed)
    for policy in POLICIES:
        where.stop_daemon()
        where.start_daemon(policy)
        command = [stage.HEDDLE, "run", "--sim", "--quiet", "--class", "latency", "--", campaign]
        for more in range(2):
            run(where, policy, command, seed + more)


def main():
    if not stage.HEDDLE.exists():
        print("dist/ is not installed: cmake --install build/release")
        return 77
    seed = int(os.environ.get("HEDDLE_SEED", random.randrange(1 << 30)))
    print(f"seed {seed}")
    where = stage.Stage(ROOT / "out/graph_order", "mps")
    try:
        check(where, sys.argv[1], seed)
    finally:
        where.close()
    print("ok: launches of an executable follow each other, twins or not")
    return 0


if __name__ == "__main__":
    sys.exit(main())
