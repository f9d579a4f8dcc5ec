#!/usr/bin/env python3
"""What an installed tree may need and may show: binaries.py DIST."""

import re
import subprocess
import sys

import tree

GLIBC = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1",
         "ld-linux-x86-64.so.2"}
SHIM_NEEDS = GLIBC - {"libm.so.6"}
# Debian 11's and Ubuntu 20.04's; programs under the shim may live in older containers.
GLIBC_FLOOR, SHIM_FLOOR = (2, 31), (2, 17)
# The shim's exports besides the driver's entry points; all carry our prefix.
OWN_EXPORT = re.compile(r"heddle_\w+")
EXPECTED = ["bin/heddle-install", "bin/heddled", "bin/heddle", "bin/heddle-bench",
            "lib/heddle/libcuda.so.1", "lib/heddle/libcuda.so", "lib/heddle/sim/libcuda.so.1",
            "share/heddle/policies"]


def readelf(option, path):
    return subprocess.run(["readelf", "-W", option, str(path)], capture_output=True, text=True,
                          check=True).stdout


def needed(path):
    return set(re.findall(r"\(NEEDED\).*\[(.+)\]", readelf("-d", path)))


def exports(path):
    names = set()
    for line in readelf("--dyn-syms", path).splitlines():
        field = line.split()
        if len(field) >= 8 and field[4] in ("GLOBAL", "WEAK") and field[6] != "UND":
            names.add(field[7].split("@")[0])
    return names


def too_new(path, floor):
    for version in sorted(set(re.findall(r"GLIBC_(\d+)\.(\d+)", readelf("-V", path)))):
        if tuple(map(int, version)) > floor:
            yield f"needs GLIBC_{'.'.join(version)}; the floor is {floor[0]}.{floor[1]}"


def driver_entry_points():
    text = (tree.ROOT / "shim/driver/entry_points.inc").read_text()
    return set(re.findall(r"HEDDLE_ENTRY\((\w+)\)", text))


def shim_problems(path):
    if not re.search(r"\(SONAME\).*\[libcuda\.so\.1\]", readelf("-d", path)):
        yield "SONAME is not libcuda.so.1"
    for library in sorted(needed(path) - SHIM_NEEDS):
        yield f"needs {library}"
    yield from too_new(path, SHIM_FLOOR)
    shown, table = exports(path), driver_entry_points()
    for name in sorted(table - shown):
        yield f"does not export {name}"
    for name in sorted(shown - table):
        if not OWN_EXPORT.fullmatch(name):
            yield f"exports {name}"
    # One entry is the compiler's frame_dummy; more are constructors of ours, which would run
    # in every process before main.
    array = re.search(r"\.init_array\s+INIT_ARRAY\s+\w+\s+\w+\s+(\w+)", readelf("-S", path))
    if array and int(array[1], 16) > 8:
        yield f"has {int(array[1], 16) // 8 - 1} constructors"


def main():
    dist = tree.ROOT / sys.argv[1]
    if not dist.is_dir():
        print(f"{dist} is not there: cmake --install build/release")
        sys.exit(77)
    problems = [f"{name}: missing" for name in EXPECTED if not (dist / name).exists()]
    shim = dist / "lib/heddle/libcuda.so.1"
    if shim.exists():
        problems += [f"shim: {problem}" for problem in shim_problems(shim)]
    for path in sorted(dist.rglob("*")):
        if path.is_symlink() or not path.is_file() or path.open("rb").read(4) != b"\x7fELF":
            continue
        shipped = {library.name for library in (dist / "lib").glob("*.so*")}
        # The demo programs are CUDA applications: they find a driver where they run.
        allowed = GLIBC | shipped | {"libcuda.so.1"}
        name = path.relative_to(dist)
        problems += [f"{name}: needs {library}" for library in sorted(needed(path) - allowed)]
        problems += [f"{name}: {problem}" for problem in too_new(path, GLIBC_FLOOR)]
    tree.report(problems)


if __name__ == "__main__":
    main()
