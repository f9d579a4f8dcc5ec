#!/usr/bin/env python3
"""The dependency rule: which folder may include what, also as daemon/README.md has it.

Dependencies point one way. A folder that is not named here falls under its nearest named parent.
"""

import re

import tree

# Folder -> what of this project its files may include, besides themselves.
PROJECT = {
    "ipc": [],
    "shim": ["ipc"],
    "daemon/base": [],
    # Pure functions: how kernels slow each other, and how many SMs one needs.
    "daemon/model": ["ipc/kernel_facts.h", "ipc/sm_set.h"],
    "daemon/core": ["daemon/model", "ipc/kernel_facts.h", "ipc/gate_sizes.h", "ipc/stop.h",
                    "ipc/sm_set.h"],
    # The GPU model and virtual time; of ipc the shim's rule of which launches are told.
    "daemon/sim": ["daemon/base", "daemon/model", "daemon/core", "daemon/trace", "ipc"],
    "daemon/policy": ["daemon/base", "daemon/model", "daemon/core", "ipc/kernel_facts.h"],
    "daemon/trace": ["daemon/base", "daemon/model", "daemon/core", "ipc/kernel_facts.h"],
    # Jobs instead of launches: no process, clock or Lua.
    "daemon/plan": ["daemon/base"],
    # The format of profiles, and their store: no process or Lua.
    "daemon/profile": ["daemon/base", "daemon/model", "daemon/core", "ipc/kernel_facts.h"],
    "daemon/server": ["daemon/base", "daemon/model", "daemon/core", "daemon/profile",
                      "daemon/trace", "ipc"],
    "daemon/cli": ["daemon/base", "daemon/model", "daemon/core", "daemon/profile", "daemon/sim",
                   "daemon/policy", "daemon/trace", "daemon/server", "daemon/plan", "ipc"],
    # What joins them: main.
    "daemon": ["ipc", "daemon/base", "daemon/core", "daemon/policy", "daemon/server"],
    "bench/sim": ["daemon/sim", "shim/driver"],
    # Of the shim besides: the driver's objects, which heddle-stop-probe looks for as it does.
    "bench/workloads": ["shim/driver", "shim/stop/objects.h", "shim/link/log.h",
                        "daemon/sim/script.h"],
    # The format: no process, clock or Lua.
    "bench/scenario": ["daemon/base"],
    "bench/virtual": ["daemon", "ipc/sm_set.h", "bench/runner", "bench/scenario"],
    "bench": ["ipc", "daemon", "shim/driver", "bench/scenario", "bench/virtual"],
    "tests": ["ipc", "shim", "daemon", "bench"],
}

# Borrowed headers -> the folders that may include them. tests/ may include anything.
BORROWED = {
    r"uv\.h": ["daemon/server", "daemon", "bench"],
    r"(lua|lualib|lauxlib|luajit)(\.h|\.hpp)|luajit-2\.1/.*": ["daemon/policy"],
    r"(capnp|kj)/.*|ipc/heddle\.capnp\.h": ["ipc", "shim", "daemon/server", "daemon/cli"],
    r"cuda(_runtime)?(_api)?\.h": ["bench/workloads"],
    r"spdlog/.*|fmt/.*": ["daemon/server", "daemon/cli", "daemon"],
    r"toml\+\+/.*": ["daemon/base", "daemon/plan", "daemon/server", "daemon"],
    r"nlohmann/.*": ["daemon/base", "daemon/trace", "daemon/server", "daemon/cli", "daemon",
                     "bench"],
    r"CLI/.*": ["daemon/cli", "daemon", "bench"],
    r"tl/expected\.hpp": ["daemon/base"],
    r"xxhash\.h": ["ipc", "daemon/server", "daemon/policy"],
    r"benchmark/.*": ["bench"],
}

# The core and the model are sans-IO: they know no clock, thread or system call.
CORE_FORBIDDEN = r"chrono|thread|mutex|condition_variable|future|iostream|fstream|.*\.h"

# The shim may be loaded into set-uid programs, which obey no variable of their caller.
PLAIN_GETENV = re.compile(r"(?<!secure_)\bgetenv\(")

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def folder_of(path, names):
    """The longest of `names` that holds `path`, or None."""
    holding = [name for name in names if path == name or path.startswith(name + "/")]
    return max(holding, key=len, default=None)


def problem_with(path, included, quoted):
    folder = folder_of(path, PROJECT)
    if folder in (None, "tests"):
        return None
    for pattern, allowed in BORROWED.items():
        if re.fullmatch(pattern, included):
            return None if folder in allowed else f"{included} belongs to {', '.join(allowed)}"
    if quoted and "/" in included:
        if folder == folder_of(included, PROJECT):
            return None
        if any(included == a or included.startswith(a + "/") for a in PROJECT[folder]):
            return None
        return f"{folder} may not depend on {included}"
    if folder in ("daemon/core", "daemon/model") and re.fullmatch(CORE_FORBIDDEN, included):
        return f"the core is sans-IO: no {included}"
    return None


def documented(text):
    """{folder: its cell of the column "may include"} of the README's table."""
    rows = re.findall(r"^\| `([\w.]+?)/?` \|.*\| ([^|]*) \|$", text, re.M)
    return {"daemon" if name == "main.cc" else f"daemon/{name}": cell for name, cell in rows}


def problems_of_readme():
    cells = documented((tree.ROOT / "daemon/README.md").read_text())
    for folder, allowed in PROJECT.items():
        if folder.split("/")[0] != "daemon":
            continue
        names = [name.removeprefix("daemon/") for name in allowed]
        names = [f"`{name}`" if name.endswith(".h") else f"`{name}/`" for name in names]
        cell = ", ".join(names) or "–"
        if cells.get(folder) != cell:
            yield f"daemon/README.md: {folder} may include {cell}"


def main():
    problems = [*problems_of_readme()]
    for path in tree.files(".h", ".cc", ".cu", ".inc"):
        for number, line in enumerate((tree.ROOT / path).read_text().splitlines(), 1):
            if PLAIN_GETENV.search(line) and folder_of(str(path), PROJECT) in ("ipc", "shim"):
                problems.append(f"{path}:{number}: secure_getenv, in a guest of set-uid programs")
            match = INCLUDE.match(line)
            if not match:
                continue
            problem = problem_with(str(path), match[2], match[1] == '"')
            if problem:
                problems.append(f"{path}:{number}: {problem}")
    tree.report(problems)


if __name__ == "__main__":
    main()
