#!/usr/bin/env python3
"""Shape of the tree: entries, lengths, sizes of results, READMEs, names that do not belong here.

With --format: clang-format leaves every C++ file as it is (skipped unless it is version 14).
"""

import re
import shutil
import subprocess
import sys

import tree

# The top level, and nothing else.
ENTRIES = {
    "README.md", "SECURITY.md", "CHANGELOG.md", "LICENSE", "CMakeLists.txt", "CMakePresets.json",
    "ipc", "shim", "daemon", "policies", "profiles", "bench", "examples", "tests", ".ci",
    ".clang-format", ".clang-tidy", ".editorconfig", ".gitignore",
}

LINES_MAX = 500
COLUMNS_MAX = 100
README_LINES_MAX = 60
# Longer files, or of longer lines, each with its reason.
LONG_FILES = {
    "shim/driver/entry_points.inc": "generated: one line per driver entry point",
    "policies/lib/api.lua": "generated: one line per field",
}

# What is measured stays as far as a table needs it.
RESULTS = "bench/results"
RESULT_BYTES_MAX, RESULTS_BYTES_MAX = 50_000, 300_000
# Raw blocks of results, by heddle-bench keep, from which tables are computed: all of them.
RAWS, RAWS_BYTES_MAX = "bench/results/raw/", 3 << 20

FORMATTED = (".h", ".cc")  # clang-format sees to their columns
SOURCES = (".h", ".cc", ".cu", ".inc", ".capnp", ".py", ".sh", ".lua", ".cmake")

# Package registries and mirrors: the machine's own configuration names them, we never do.
HOSTS = re.compile(
    r"\b(?<!pod-)(?:(?:deb|archive|security|snapshot|ftp|registry|files|index|proxy|download|"
    r"mirrors?)"
    r"(?:\.[a-z0-9-]+)+|pypi|ghcr|quay|nvcr)\.(?:org|com|io|net)\b")

# Notes that are not in the tree: a reader cannot look them up.
ELSEWHERE = re.compile(r"\b[Ii]ssue" r" \d+\b|\b(?:DESIG[N]|FACT[S]|PAPER[S]|POLICY_AP[I])\b(?!_)")


def lengths(path, text):
    lines = text.splitlines()
    name = str(path)
    if path.suffix in SOURCES and len(lines) > LINES_MAX and name not in LONG_FILES:
        yield f"{name}: {len(lines)} lines, at most {LINES_MAX}"
    if path.suffix in SOURCES and path.suffix not in FORMATTED and name not in LONG_FILES:
        for number, line in enumerate(lines, 1):
            if len(line) > COLUMNS_MAX:
                yield f"{name}:{number}: {len(line)} columns, at most {COLUMNS_MAX}"
    if path.name == "README.md" and len(path.parts) > 1:
        if len(lines) > README_LINES_MAX:
            yield f"{name}: {len(lines)} lines; a README is one screen ({README_LINES_MAX})"


def stale_names(path, text):
    """Paths of this project that a README names in backticks and that are gone."""
    if path.name != "README.md":
        return
    for name in re.findall(r"`([a-z][\w./-]*/[\w./-]*)`", text):
        if name.split("/")[0] in ENTRIES and not (tree.ROOT / name).exists():
            yield f"{path}: names {name}, which is not there"


def anchors(text):
    """What `#...` of a link may name, as code hosts make it of headings."""
    heads = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def dead_links(path, text):
    if path.suffix != ".md":
        return
    for link in re.findall(r"\]\((?!\w+:)([^)\s]+)\)", text):
        name, _, anchor = link.partition("#")
        target = tree.ROOT / path.parent / name if name else tree.ROOT / path
        if not target.exists():
            yield f"{path}: links to {link}, which is not there"
        elif anchor and anchor not in anchors(target.read_text()):
            yield f"{path}: links to {link}: no such heading"


def entries():
    present = {path.parts[0]: len(path.parts) > 1 for path in tree.files()}
    for name, is_folder in sorted(present.items()):
        if name not in ENTRIES:
            yield f"{name}: does not belong at the top level"
        elif is_folder and name != ".ci" and not (tree.ROOT / name / "README.md").is_file():
            yield f"{name}/: has no README.md"


def results():
    sizes = {path: (tree.ROOT / path).stat().st_size for path in tree.files()
             if str(path).startswith(RESULTS)}
    raws = sum(sizes.pop(path) for path in list(sizes) if str(path).startswith(RAWS))
    if raws > RAWS_BYTES_MAX:
        yield f"{RAWS}: {raws} bytes in all, at most {RAWS_BYTES_MAX}; let an old result go"
    for path, size in sizes.items():
        if size > RESULT_BYTES_MAX:
            yield (f"{path}: {size} bytes, at most {RESULT_BYTES_MAX}; bench/table.py --keep makes "
                   "it small")
    if sum(sizes.values()) > RESULTS_BYTES_MAX:
        yield (f"{RESULTS}: {sum(sizes.values())} bytes in all, at most {RESULTS_BYTES_MAX}; let a "
               "result go that no table needs")


def shape():
    problems = [*entries(), *results()]
    for path in tree.files():
        try:
            text = (tree.ROOT / path).read_text()
        except UnicodeDecodeError:
            continue
        problems += lengths(path, text)
        problems += stale_names(path, text)
        problems += dead_links(path, text)
        for number, line in enumerate(text.splitlines(), 1):
            if HOSTS.search(line):
                problems.append(f"{path}:{number}: names a registry host")
            if "results" not in path.parts and ELSEWHERE.search(line):
                problems.append(f"{path}:{number}: names what is not in the tree; say it itself")
    tree.report(problems)


def format_check():
    tool = shutil.which("clang-format-14") or shutil.which("clang-format")
    asked = [tool, "--version"] if tool else ["true"]
    if "version 14." not in subprocess.run(asked, capture_output=True, text=True).stdout:
        print("clang-format 14 is not here")
        sys.exit(77)
    paths = [str(path) for path in tree.files(*FORMATTED)]
    said = subprocess.run([tool, "--dry-run", "-Werror", *paths], cwd=tree.ROOT,
                          capture_output=True, text=True).stderr
    found = sorted(set(re.findall(r"^(\S+?):\d+:\d+: error: code should be", said, re.M)))
    tree.report([f"{path}: run clang-format -i on it" for path in found])


if __name__ == "__main__":
    if sys.argv[1:] == ["--format"]:
        format_check()
    shape()
