#!/usr/bin/env python3
"""Types that a reader can hold in mind: those of daemon, ipc and shim, counted by ctags.

A type has at most 25 methods: all that its body declares, private ones and each overload too, but
no constructor, destructor or operator. It has at most 20 public fields; 40 where it has no method
and so is data only, such as a message, a row of a listing or what was asked on a command line. Its
functions are defined in at most two files, a header and a source.
"""

import json
import shutil
import subprocess
import sys

import tree

FOLDERS = ("daemon", "ipc", "shim")
METHODS_MAX, FIELDS_MAX, DATA_FIELDS_MAX, FILES_MAX = 25, 20, 40, 2
TYPES_MIN = 400  # fewer: ctags no longer understands what it reads

EXCEPTIONS_MAX = 5
EXCEPTIONS = {
    "heddle::policy::LuaPolicy": "a hook of the core each, with how LuaJIT is called for it",
    "heddle::FilePolicyStore": "19 of its methods are the interface that the server asks",
    "heddle::sim::VirtualMachine": "a process's life in virtual time; no part of what is installed",
    "heddle::sim::GpuModel": "the laws of one GPU; no part of what is installed",
    "heddle::shim::Turn": "one launch from its entry to its end, whose steps share a stack frame",
}
# What is still to be parted; nothing may be added.
UNPARTED = {
    "heddle::policy::Session", "heddle::server::Client",
}


class Type:
    def __init__(self, tag):
        self.path, self.first, self.last = tag["path"], tag["line"], tag["end"]
        self.methods, self.fields, self.files = 0, 0, set()

    def take(self, tag, own_name):
        inside = tag["path"] == self.path and self.first <= tag["line"] <= self.last
        if tag["kind"] == "member":
            self.fields += tag.get("access") == "public"
            return
        if tag["kind"] == "function":
            self.files.add(tag["path"])
        name = tag["name"]
        if inside and name not in (own_name, "~" + own_name) and not name.startswith("operator"):
            self.methods += 1

    def problems(self):
        fields_max = FIELDS_MAX if self.methods else DATA_FIELDS_MAX
        if self.methods > METHODS_MAX:
            yield f"{self.methods} methods, at most {METHODS_MAX}"
        if self.fields > fields_max:
            yield f"{self.fields} public fields, at most {fields_max}"
        if len(self.files) > FILES_MAX:
            yield f"its functions are in {len(self.files)} files, at most {FILES_MAX}"


def tags():
    paths = [str(path) for path in tree.files(".h", ".cc") if path.parts[0] in FOLDERS]
    done = subprocess.run(
        ["ctags", "--output-format=json", "--language-force=C++", "--kinds-C++=cfmps",
         "--fields=+aenKZ", "--fields-C++=+{properties}", "-o", "-", *paths],
        cwd=tree.ROOT, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def types():
    found, parts = {}, []
    for tag in tags():
        if tag["kind"] not in ("class", "struct"):
            parts.append(tag)
        elif "end" in tag:
            found["::".join(filter(None, (tag.get("scope"), tag["name"])))] = Type(tag)
    for tag in parts:
        scope = tag.get("scope")
        constant = tag["kind"] == "member" and "static" in tag.get("properties", "")
        if scope in found and not constant:
            found[scope].take(tag, scope.split("::")[-1])
    return found


def main():
    if not shutil.which("ctags"):
        print("skipped: no ctags here")
        sys.exit(77)
    found, told = types(), []
    if len(found) < TYPES_MIN:
        told.append(f"{len(found)} types were found; there are more than {TYPES_MIN}")
    if len(EXCEPTIONS) > EXCEPTIONS_MAX:
        told.append(f"{len(EXCEPTIONS)} exceptions, at most {EXCEPTIONS_MAX}")
    for name, kind in sorted(found.items()):
        problems = list(kind.problems())
        if name not in EXCEPTIONS and name not in UNPARTED:
            told += [f"{kind.path}: {name}: {problem}" for problem in problems]
    for name in sorted({*EXCEPTIONS, *UNPARTED}):
        if name not in found or not list(found[name].problems()):
            told.append(f"{name} is within bounds or gone: take it off type_sizes.py's list")
    tree.report(told)


if __name__ == "__main__":
    main()
