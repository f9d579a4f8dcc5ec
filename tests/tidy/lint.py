#!/usr/bin/env python3
"""clang-tidy on what runs inside applications and on every launch: lint.py BUILD [--analyze]

What it asks is in .clang-tidy. The analyzer takes three quarters of the time, and is left out
without --analyze. The folder BUILD has compile_commands.json and what is generated.

Most of the rest goes into headers. So files with the same options are looked at together, and in
halves where they do not go together. The analyzer looks at no function of an included file.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

import tree

FOLDERS = ["daemon/core", "ipc", "shim"]
ANALYZES = "--analyze" in sys.argv
TOGETHER = 1 if ANALYZES else 8


def findings(paths, options):
    """What clang-tidy says of files with the same options."""
    checks = "-bugprone-suspicious-include" + ("" if ANALYZES else ",-clang-analyzer-*")
    with tempfile.NamedTemporaryFile("w", suffix=".cc") as together:
        together.write("".join(f'#include "{path}"\n' for path in paths))
        together.flush()
        path = paths[0] if len(paths) == 1 else together.name
        done = subprocess.run(["clang-tidy", "--quiet", f"--checks={checks}", f"--config-file="
                               f"{tree.ROOT}/.clang-tidy", path, "--", *options],
                              cwd=tree.ROOT, capture_output=True, text=True)
    told = re.findall(rf"^(?:{tree.ROOT}/)?(.+: (?:error|warning): .+)$", done.stdout, re.M)
    if len(paths) > 1 and (told or done.returncode):
        half = len(paths) // 2
        return findings(paths[:half], options) + findings(paths[half:], options)
    return told or ([f"{paths[0]}: {done.stderr.strip()}"] if done.returncode else [])


def groups():
    """Files of the folders, and options that the build compiles them with: of several the first."""
    by_options, seen = {}, set()
    commands = pathlib.Path(sys.argv[1], "compile_commands.json").read_text()
    for command in json.loads(commands):
        path = pathlib.Path(command["file"])
        here = any(path.is_relative_to(tree.ROOT / folder) for folder in FOLDERS)
        if here and path.suffix == ".cc" and path not in seen:
            seen.add(path)
            words = shlex.split(command["command"])
            options = [word for word in words[1:] if re.match(r"-[DI]|-std=|--sysroot=", word)]
            system = [words[i + 1] for i, word in enumerate(words) if word == "-isystem"]
            options += [f"-isystem{folder}" for folder in system]
            by_options.setdefault(tuple(options), []).append(path)
    every = {path for folder in FOLDERS for path in (tree.ROOT / folder).rglob("*.cc")}
    if every != seen:
        sys.exit(f"{sys.argv[1]}: does not build {', '.join(map(str, every ^ seen))}")
    for options, paths in by_options.items():
        paths.sort()
        for i in range(0, len(paths), TOGETHER):
            yield paths[i:i + TOGETHER], options


def main():
    if shutil.which("clang-tidy") is None:
        print("skipped: no clang-tidy here")
        sys.exit(77)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        told = list(pool.map(lambda group: findings(*group), groups()))
    tree.report(sorted({problem for problems in told for problem in problems}))


if __name__ == "__main__":
    main()
