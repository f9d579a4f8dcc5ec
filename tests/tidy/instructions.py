#!/usr/bin/env python3
"""Instructions of a leased launch inside the shim, from the entry of its cuLaunchKernel to the
driver's and from there back, and of a gated launch inside the daemon, counted by callgrind.
Fails when a count grows by 5 % over bench/results/instructions.json.

instructions.py --write commits today's counts.
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
# How many completions a leased launch finds varies with time: the least of several runs repeats
# to 2 %.
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


def callgrind(output, options, command, env=None):
    """What callgrind says of a command: its profile."""
    command = ["valgrind", "--tool=callgrind", "--collect-atstart=no",
               f"--callgrind-out-file={output}", *options, stage.DIST / "bin/heddle-bench",
               *command]
    done = subprocess.run([str(word) for word in command], env=env, capture_output=True, text=True)
    if done.returncode:
        raise stage.StageError(f"valgrind: {done.stderr[-2000:]}")
    return output.read_text()


def leased(where, launches):
    """Instructions inside the shim, within cuLaunchKernel, over so many launches."""
    shim = stage.DIST / "lib/heddle/libcuda.so.1"
    env = where.env | {
        "LD_LIBRARY_PATH": str(shim.parent), "HEDDLE_PRIORITY": "0",
        "HEDDLE_REAL_LIBCUDA": str(stage.SIM / "libcuda.so.1")}
    before = posted(where)
    profile = callgrind(where.folder / f"callgrind.{launches}",
                        ["--compress-strings=yes", "--toggle-collect=cuLaunchKernel"],
                        ["launches", "--count", launches], env)
    stage.wait_until(lambda: posted(where) - before >= launches, 5, "every launch posted")
    return own_cost(profile, str(shim.resolve()))


def posted(where):
    return sum(d["stats"]["posted"] for d in where.heddle("status")["devices"])


def gated(where, launches):
    """Instructions of a daemon's turns over so many launches of 16 gated clients."""
    profile = callgrind(where.folder / f"callgrind.{launches}",
                        ["--toggle-collect=heddle::bench::turn_of_daemon*"],
                        ["gated", "--clients", 16, "--count", launches])
    return int(re.search(r"^totals: (\d+)", profile, re.MULTILINE)[1])


def each(count, where):
    """Of one launch, once all is warm."""
    return round((count(where, WARM + COUNTED) - count(where, WARM)) / COUNTED, 1)


def measure():
    where = stage.Stage(tree.ROOT / "out/instructions", "mps")
    try:
        where.start_daemon("priority", daemon='report = "each"')
        return {"leased_launch_instructions": min(each(leased, where) for _ in range(RUNS)),
                "gated_launch_instructions": each(gated, where)}
    finally:
        where.close()


def main():
    if not shutil.which("valgrind") or not stage.HEDDLE.exists():
        print("needs valgrind and an installed dist/")
        sys.exit(77)
    found = measure()
    if sys.argv[1:] == ["--write"]:
        COMMITTED.write_text(json.dumps(found | {
            "command": "tests/tidy/instructions.py --write",
            "what": "callgrind; leased: inside the shim per cuLaunchKernel; gated: inside the "
                    "daemon, engine, core and a policy whose enqueue says RUN, per launch of 16 "
                    "clients that synchronize after each"}, indent=2) + "\n")
    committed = json.loads(COMMITTED.read_text())
    for name, count in found.items():
        print(f"{name}: {count}; committed {committed[name]}")
    if not all(found.values()):
        print("FAILED: counted nothing; install dist/ without --strip, for callgrind goes by names")
        sys.exit(1)
    if any(count > committed[name] * GROWTH_MAX for name, count in found.items()):
        print("FAILED: grew by more than 5 %; make it leaner, or commit the new count with the why")
        sys.exit(1)


if __name__ == "__main__":
    main()
