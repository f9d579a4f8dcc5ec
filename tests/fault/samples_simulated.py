#!/usr/bin/env python3
"""tests/gpu/samples.py on the simulated GPU: a program that uses it is alike if it attached, and
unproven under a shim that does nothing; one that never calls the driver is alike either way:
samples_simulated.py PATH-OF-HEDDLE-RANKS."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import setting

SAMPLES = setting.ROOT / "tests/gpu/samples.py"
GPU, NO_GPU = "heddle-ranks", "true"
# Environment, exit status, verdicts, and whether the daemon met the program that uses the GPU.
CASES = (({}, 0, {GPU: "alike", NO_GPU: "alike"}, True),
         ({"HEDDLE_DISABLE": "1"}, 1, {GPU: "unproven", NO_GPU: "alike"}, False))


def main():
    if not setting.stage.DEMO.exists():
        print("dist/ is not installed: cmake --install build/release")
        return 77
    folder = setting.ROOT / "out/fault/samples"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "programs").mkdir(parents=True)
    for program in (pathlib.Path(sys.argv[1]), shutil.which(NO_GPU)):
        shutil.copy(program, folder / "programs")
    arguments = folder / "arguments.json"
    arguments.write_text(json.dumps({GPU: ["--count", "2", "--iterations", "3"]}))
    failed = 0
    for env, status, verdicts, attached in CASES:
        out = folder / "samples.json"
        done = subprocess.run(
            [sys.executable, SAMPLES, "--sim", "--dist", setting.stage.DIST, "--out", out,
             "--programs", folder / "programs", "--arguments", arguments],
            env=os.environ | env, timeout=60)
        programs = json.loads(out.read_text())["programs"]
        found = {name: program["verdict"] for name, program in programs.items()}
        checks = {
            f"exit status {done.returncode}": done.returncode == status,
            f"verdicts {found}": found == verdicts,
            f"{GPU} used the driver": programs[GPU]["used_driver"],
            f"{NO_GPU} did not": not programs[NO_GPU]["used_driver"],
            f"{GPU} attached: {attached}": programs[GPU]["attached"] == attached,
        }
        for text, held in checks.items():
            print("ok    " if held else "FAILED", text)
        failed += not all(checks.values())
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
