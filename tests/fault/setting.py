"""What tests of dist/ share: a stage in a folder of their own, a printed seed, checked answers."""

import os
import pathlib
import random
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples/quickstart"))
import stage  # noqa: E402  (the folder is known only now)

# Lets nobody run that has to ask, so that a launch certainly waits.
HOLD = """
return policy {
  name = "hold", api = 1, version = "1.0.0",
  hooks = {
    enqueue = function(k) return queue.insert("held", k, 0) end,
    dispatch = function() return IDLE, "held by the test" end,
  },
}
"""


def seeded(seed=None):
    if seed is None:
        seed = int(os.environ.get("HEDDLE_SEED", random.SystemRandom().randrange(1 << 31)))
    print(f"HEDDLE_SEED={seed}", flush=True)
    return seed, random.Random(seed)


def fresh_stage(name, mode="mps"):
    if not stage.DEMO.exists():
        print("dist/ is not installed: cmake --install build/release")
        sys.exit(77)
    return stage.Stage(ROOT / "out/fault" / name, mode)


def write_policy(where, name, text):
    path = where.folder / f"{name}.lua"
    path.write_text('queue.create("held")\n' + text)
    return path


def start_pair(where, name, seed, seconds):
    where.next_gpu(name)
    begin = time.monotonic_ns() + 500_000_000
    return {role: where.start_demo(role, name, seed, seconds, begin, managed=True)
            for role in stage.CLASSES}


def expect(condition, what):
    if not condition:
        raise stage.StageError(str(what))


def run(body, where):
    """Runs a test body; prints why it failed."""
    try:
        body()
    except stage.StageError as error:
        print(f"FAILED {error}")
        sys.exit(1)
    finally:
        where.close()
