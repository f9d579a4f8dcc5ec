#!/usr/bin/env python3
"""Instructions of a leased launch inside the shim, counted by callgrind: from the entry of its
cuLaunchKernel to the driver's, and from there back.
Fails when the count grows by 5 % over bench/results/instructions.json.

instructions.py --write commits today's count.
"""

import json
import re
import shutil
import subprocess
import sys

import tree

sys.path.insert(0, str(tree.ROOT / "examples/quickstart"))
import stage  # noqa: E402

COMMITTED = tree.ROOT / "bench/results/instructions.json"
WARM, COUNTED = 1024, 4096
# How many completions a launch finds varies with time: the least of several runs repeats to 2 %.
RUNS = 7
GROWTH_MAX = 1.05


def own_cost(profile, library):
    """Instructions executed in `library` itself, out of a callgrind profile."""
    total, inside, called, names = 0, False, False, {}
    for line in profile.splitlines():
        if line.startswith(("ob=", "cob=")):
            key, _, reference = line.partition("=")
            number, _, name = reference.partition(" ")
            known = names.setdefault(number, name)
            if key == "ob":
                inside = known == library
        elif line.startswith("calls="):
            called = True  # the next line is what the callee took
        elif re.match(r"[+*\d-]", line):
            if inside and not called:
                total += int(line.split()[1])
            called = False
    return total


def count(where, launches):
    """Instructions inside the shim, within cuLaunchKernel, over so many launches."""
    output = where.folder / f"callgrind.{launches}"
    shim = stage.DIST / "lib/heddle/libcuda.so.1"
    command = ["valgrind", "--tool=callgrind", "--collect-atstart=no", "--compress-strings=yes",
               "--toggle-collect=cuLaunchKernel", f"--callgrind-out-file={output}",
               stage.DIST / "bin/heddle-bench", "launches", "--count", str(launches)]
    env = where.env | {
        "LD_LIBRARY_PATH": str(shim.parent), "HEDDLE_PRIORITY": "0",
        "HEDDLE_REAL_LIBCUDA": str(stage.SIM / "libcuda.so.1")}
    before = posted(where)
    done = subprocess.run([str(word) for word in command], env=env, capture_output=True, text=True)
    if done.returncode:
        raise stage.StageError(f"valgrind: {done.stderr[-2000:]}")
    stage.wait_until(lambda: posted(where) - before >= launches, 5, "every launch posted")
    return own_cost(output.read_text(), str(shim.resolve()))


def posted(where):
    return sum(d["stats"]["posted"] for d in where.heddle("status")["devices"])


def measure():
    where = stage.Stage(tree.ROOT / "out/instructions", "mps")
    try:
        where.start_daemon("priority", daemon="unobserved = false")
        return min((count(where, WARM + COUNTED) - count(where, WARM)) / COUNTED
                   for _ in range(RUNS))
    finally:
        where.close()


def main():
    if not shutil.which("valgrind") or not stage.HEDDLE.exists():
        print("needs valgrind and an installed dist/")
        sys.exit(77)
    found = measure()
    if sys.argv[1:] == ["--write"]:
        COMMITTED.write_text(json.dumps({
            "leased_launch_instructions": round(found, 1),
            "command": "tests/tidy/instructions.py --write",
            "what": "inside the shim per leased cuLaunchKernel, callgrind"}, indent=2) + "\n")
    committed = json.loads(COMMITTED.read_text())["leased_launch_instructions"]
    print(f"{found:.1f} instructions a leased launch; committed {committed}")
    if found > committed * GROWTH_MAX:
        print("FAILED: grew by more than 5 %; make it leaner, or commit the new count with the why")
        sys.exit(1)


if __name__ == "__main__":
    main()
