#!/usr/bin/env python3
"""Makes of NVIDIA's cuda-samples (v13.0), built, the folder that samples.py runs and can be carried
to a GPU host: each program with its data, once for each of its runs in test_args.json, and
arguments.json. In a checkout, with CUDA's nvcc on the PATH:

    sed -i 's/set(CMAKE_CUDA_ARCHITECTURES[^)]*)/set(CMAKE_CUDA_ARCHITECTURES 90)/' \\
        $(grep -rl CMAKE_CUDA_ARCHITECTURES --include=CMakeLists.txt .)
    cmake -G Ninja -B build -DCMAKE_BUILD_TYPE=Release && cmake --build build -- -k 0
    stage_samples.py CHECKOUT OUT      prints which samples are left out, and why

A partial toolkit lacks libraries (NPP, nvJPEG): drop those folders from their CMakeLists.txt. What
the GPU host lacks (GL, glut) goes into OUT/lib by hand, for LD_LIBRARY_PATH; `ldd` names it.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import samples

DOCUMENTS = {"doc", "CMakeFiles"}
SOURCES = {".cu", ".cuh", ".cpp", ".c", ".h", ".hpp", ".md", ".txt", ".cmake", ".o", ".ninja"}


def runs_of(name, test_args):
    """The arguments of each run; none where the sample's own list skips it."""
    how = test_args.get(name, {})
    if how.get("skip"):
        return []
    return [run.get("args", []) for run in how.get("runs", [how])]


def stage(source, built, out, test_args):
    """Copies a sample's programs and data, into a folder for each run; {name: arguments}."""
    found = {}
    for program in samples.programs(built):
        for i, arguments in enumerate(runs_of(program.name, test_args)):
            name = program.name if i == 0 else f"{program.name}-{i + 1}"
            folder = out / (source.name if i == 0 else name)
            copy_data(source, folder)
            copy_data(built, folder)
            shutil.copy2(program, folder / name)
            subprocess.run(["strip", folder / name], check=False)
            found[name] = arguments
    return found


def copy_data(source, out):
    """What programs read; of those that compile as they run, the sources too."""
    left_out = set() if source.name.endswith("_nvrtc") else SOURCES
    for path in source.rglob("*"):
        parts = path.relative_to(source)
        program = os.access(path, os.X_OK) and path.suffix == ""
        if path.is_file() and path.suffix not in left_out and not program \
                and not DOCUMENTS & set(parts.parts):
            (out / parts).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, out / parts)


def main():
    checkout, out = map(Path, sys.argv[1:])
    test_args = json.loads((checkout / "test_args.json").read_text())
    arguments, left_out = {}, []
    for lists in sorted(checkout.glob("Samples/[0-7]*/*/CMakeLists.txt")):
        source = lists.parent
        found = stage(source, checkout / "build" / source.relative_to(checkout), out, test_args)
        arguments |= found
        if not found:
            skipped = test_args.get(source.name, {}).get("skip")
            left_out.append(f"{source.name} ({'skipped by its list' if skipped else 'not built'})")
    (out / "arguments.json").write_text(json.dumps(arguments, indent=1) + "\n")
    print(f"{len(arguments)} programs; left out: {', '.join(left_out)}")


if __name__ == "__main__":
    main()
