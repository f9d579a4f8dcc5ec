"""The source tree as the tidy tests see it: every file that is not a build output."""

import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUTPUTS = {".git", ".deps", "build", "dist", "out", "__pycache__"}


def files(*suffixes):
    """Paths relative to the root, sorted; all files if no suffix is given."""
    if (ROOT / ".git").exists() and shutil.which("git"):
        listed = subprocess.run(["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT,
                                capture_output=True, text=True, check=True).stdout.split("\0")
        found = [pathlib.Path(name) for name in listed if name]
    else:
        found = [path.relative_to(ROOT) for path in ROOT.rglob("*")]
    return sorted(path for path in found
                  if (not suffixes or path.suffix in suffixes) and (ROOT / path).is_file()
                  and not OUTPUTS & set(path.parts))


def report(problems):
    """Prints one line per problem and ends the process."""
    for problem in problems:
        print(problem)
    print(f"{len(problems)} problems")
    sys.exit(1 if problems else 0)
