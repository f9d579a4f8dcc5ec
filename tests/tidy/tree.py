"""The source tree as the tidy tests see it: every file that is not a build output."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUTPUTS = {".git", ".deps", "build", "dist", "out", "__pycache__"}


def files(*suffixes):
    """Paths relative to the root, sorted; all files if no suffix is given."""
    found = []
    for path in ROOT.rglob("*"):
        relative = path.relative_to(ROOT)
        if OUTPUTS & set(relative.parts) or not path.is_file():
            continue
        if not suffixes or path.suffix in suffixes:
            found.append(relative)
    return sorted(found)


def report(problems):
    """Prints one line per problem and ends the process."""
    for problem in problems:
        print(problem)
    print(f"{len(problems)} problems")
    sys.exit(1 if problems else 0)
