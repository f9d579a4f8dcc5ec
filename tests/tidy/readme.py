#!/usr/bin/env python3
"""The README's output block is what the quick start prints today, numbers aside.

readme.py           runs the quick start in short and compares the shapes
readme.py --write   runs it at full length and puts its output into README.md
"""

import re
import subprocess
import sys

import tree

BEGIN, END = "<!-- quickstart:begin -->\n", "<!-- quickstart:end -->"


def shape(text):
    """Every number becomes one 0, every run of blanks one blank."""
    return [re.sub(r"\s+", " ", re.sub(r"\d+(\.\d+)?", "0", line)).strip()
            for line in text.splitlines()]


def main():
    write = sys.argv[1:] == ["--write"]
    command = ["examples/quickstart.sh", "--installed"] + ([] if write else ["--seconds", "2"])
    done = subprocess.run(command, cwd=tree.ROOT, capture_output=True, text=True)
    print(done.stdout, done.stderr, sep="")
    if done.returncode:
        sys.exit(done.returncode)
    printed = done.stdout.split("\n\nout/quickstart")[0]
    readme = tree.ROOT / "README.md"
    before, _, rest = readme.read_text().partition(BEGIN)
    block, _, after = rest.partition(END)
    if write:
        readme.write_text(f"{before}{BEGIN}```\n{printed}\n```\n{END}{after}")
        return
    wanted, got = shape(block.strip().strip("`").strip()), shape(printed)
    if wanted != got:
        print("README.md's block has another shape: tests/tidy/readme.py --write")
        for old, new in zip(wanted + [""] * len(got), got):
            if old != new:
                print(f"- {old}\n+ {new}")
        sys.exit(1)


if __name__ == "__main__":
    main()
