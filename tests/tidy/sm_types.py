#!/usr/bin/env python3
"""SMs are types (ipc/sm_set.h): no integer is named as a set, a count of groups or a count of SMs,
and an SM set has no other name."""

import re

import tree

FOLDERS = ("ipc/", "shim/", "daemon/")
PLAN = ("daemon/plan/", "daemon/cli/plan/")  # a MIG layout has partitions
REQUESTS = "shim/driver/rm_api.h"  # of the driver's kernel module: its own names, in bytes
# size_t counts bytes.
INTEGER = re.compile(r"\b(?:u?int\d+_t|int|unsigned)[ &]+"
                     r"(groups|partition|fence|kept|size|sm|sms|sm_set)\b(?! *\()")
OTHER_NAME = re.compile(r"[Pp]artition(?!_point)|(?<!_)\b[Ff]enc(?:e[ds]?|ing|eable)\b|"
                        r"\b(?:un)?fenced_?us\b")
# What is meant by these words is another thing, or what policies know them as.
MEANT = re.compile(
    r"KRISP|minSmPartitionSize|static-partitioning"  # the driver's, MPS's and the paper's
    r'|"(?:k\.|g\.)?(?:fenceable|fenced_us)"|"partition"'  # in Lua
    r"|kernel-scoped|(?:no|the|A|a|that) fence\b")       # of memory


def check(path, text):
    for number, line in enumerate(text.splitlines(), 1):
        code = line.split("//")[0]
        if path != REQUESTS and (found := INTEGER.search(code)):
            yield f"{path}:{number}: an integer `{found[1]}`; SmSet, GroupCount or SmCount"
        if not MEANT.search(line) and (found := OTHER_NAME.search(line)):
            yield f"{path}:{number}: '{found[0]}'; say SM set"


def main():
    problems = []
    for path in tree.files(".h", ".cc", ".capnp"):
        if str(path).startswith(FOLDERS) and not str(path).startswith(PLAN):
            problems += check(str(path), (tree.ROOT / path).read_text())
    tree.report(problems)


if __name__ == "__main__":
    main()
