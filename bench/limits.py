"""Tables of MEMORY.md: what heddle counts against NVML, what a limit costs, what other teams notice
(tests/gpu/memory.py)."""

import statistics

from md import RESULTS, computed, read

WAYS = {"driver": "`cuMemAlloc`", "vmm": "`cuMemCreate`", "torch": "PyTorch",
        "torch_expandable": "PyTorch, expandable segments", "graph": "PyTorch, graphs' pools",
        "cupy": "CuPy", "jax": "JAX"}


def document():
    return read(RESULTS / "memory.json")


def counts():
    """Of the GPU's count: after steps of 256, 656, 0 and 150 MiB, and where the limit refused."""
    found = document()
    sharing = {name: of["rows"] for name, of in found["sharing"].items()}
    rows = [["taken by", *(f"{name}: {what}" for name in sharing for what in (
        "most apart, MiB", "at the limit, MiB: heddle / NVML"))]]
    for way, name in WAYS.items():
        cells = [name]
        for of in sharing.values():
            row = of.get(way, {"error": "not run"})
            if "error" in row:
                cells += ["–", "–"]
                continue
            apart = max(abs(s["heddle"] - s["nvml"]) for s in row["steps"])
            cells += [f"{apart:.0f}",
                      f"{row['filled']['heddle']:.0f} / {row['filled']['nvml']:.0f}"]
        rows.append(cells)
    return rows


def cost():
    rows = [["median ns, least of rounds", "take 1 MiB", "free it"]]
    for name, of in document()["sharing"].items():
        for how, label in (("bare", "bare"), ("heddle", "under heddle"),
                           ("limit", "under a limit")):
            ns = of["cost"][how]
            rows.append([f"{name}, {label}", *(f"{min(ns[key]):.0f}"
                                               for key in ("hold_ns", "free_ns"))])
    return rows


def turns(team):
    """How many, those refused, and the median and 99th percentile of the others."""
    taken = sorted(team["us"])
    times = [statistics.median(taken), taken[len(taken) * 99 // 100]] if taken else []
    return [len(taken) + team["refused"], team["refused"], *times]


def teams():
    labels = {"alone": "alone", "limited": "the other has used up its limit and asks on",
              "unlimited": "no limits: the other has used up the GPU"}
    rows = [["64 MiB taken, set and freed, again and again", "turns", "refused", "p50, µs",
             "p99, µs"]]
    for name, of in document()["sharing"].items():
        for condition, label in labels.items():
            team = of["teams"][condition]["team"]
            found = computed(team, "turns", lambda: turns(team))
            cells = [f"{x:.0f}" for x in found]
            rows.append([f"{name}: {label}", *cells, *["–"] * (4 - len(cells))])
    return rows
