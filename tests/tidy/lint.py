#!/usr/bin/env python3
"""clang-tidy on what runs inside applications and on every launch: lint.py BUILD [--analyze]

What it asks is in .clang-tidy. The analyzer takes three quarters of the time, and is left out
without --analyze. The folder BUILD has compile_commands.json and what is generated.
"""

import concurrent.futures
import os
import re
import shutil
import subprocess
import sys

import tree

FOLDERS = ["daemon/core", "ipc", "shim"]


def findings(path):
    # Without -Wno-error, a -Werror of the build makes an error of each option that only gcc knows.
    checks = "" if "--analyze" in sys.argv else "-clang-analyzer-*"
    done = subprocess.run(["clang-tidy", "--quiet", "--extra-arg=-Wno-error", f"--checks={checks}",
                           "-p", sys.argv[1], path], cwd=tree.ROOT, capture_output=True, text=True)
    told = re.findall(rf"^(?:{tree.ROOT}/)?(.+: (?:error|warning): .+)$", done.stdout, re.M)
    return told or ([f"{path}: {done.stderr.strip()}"] if done.returncode else [])


def main():
    if shutil.which("clang-tidy") is None:
        print("skipped: no clang-tidy here")
        sys.exit(77)
    # The longest first, so that none of them is alone at the end.
    paths = sorted((path for folder in FOLDERS for path in (tree.ROOT / folder).rglob("*.cc")),
                   key=lambda path: -path.stat().st_size)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        told = list(pool.map(findings, (str(path.relative_to(tree.ROOT)) for path in paths)))
    tree.report(sorted({problem for problems in told for problem in problems}))


if __name__ == "__main__":
    main()
