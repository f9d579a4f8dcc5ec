#!/usr/bin/env python3
"""`heddle run --sms` on the simulated GPU: a program computes the same on some SMs as on all, alone
and gated; two programs on ranges that meet never share an SM; what is asked for is told; a program
whose kernels wait for each other's launches ends; a gated graph has an SM set; programs keep their
sets when heddled restarts: sm_sets.py RANKS."""

import json
import os
import pathlib
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples/quickstart"))
import stage  # noqa: E402  (the folder is known only now)

PROGRAM = ROOT / "tests/gpu/programs/sim_order.py"
GRAPH = ROOT / "tests/gpu/programs/sim_graph.py"
NODES = 4  # of its graph
LOW, HIGH = 32, 100  # SMs of a quarter, and of the rest, in whole groups of an H200
SET = 28  # what holds 24 SMs, from the end: 12 + 8 + 8
FENCE_OF_LOW = 24
SET_OF_GAPFILL = 68  # of 64
RESTART_SECONDS = 6
HANGS_SECONDS = 20  # it takes some tenths of a second

FENCES = """
-- Everybody asks, and every other launch of a client goes to 24 SMs if it can.
queue.create("all")
local function gate() return GATE end
return policy {
  name = "sets", api = 1, version = "1.0.0", per_launch = true,
  hooks = {
    client_init = gate, client_active = gate, client_idle = gate,
    enqueue = function(k) return queue.insert("all", k, 0) end,
    dispatch = function(g)
      local k = queue.peek("all")
      if not k then return IDLE, "empty" end
      return RUN, k, k.fenceable and k.seq % 2 == 0 and 24 or nil
    end,
  },
}
"""


SIZES = """
-- Nobody asks; every kernel runs on the two groups from its client's anchor on.
sm_set.family { placement = "ring", sizes = { 2, 4 } }
return policy {
  name = "sizes", api = 1, version = "1.0.0",
  hooks = {
    client_init = function(c) return LEASE end,
    client_active = function(c) return LEASE end,
    client_idle = function(c) return LEASE end,
    kernel_init = function(kn, c) return 16, -2 end,
  },
}
"""
SIZE = 16


def expect(condition, what):
    if not condition:
        raise stage.StageError(str(what))


class Running:
    """The program under `heddle run`, or bare."""

    def __init__(self, where, label, *words, program=PROGRAM):
        shim = [stage.HEDDLE, "run", "--sim", "--quiet", "--label", label, *words, "--"]
        env = where.env | {"HEDDLE_MATRIX_PACE_MS": "10", "HEDDLE_LABEL": label}
        if not words:
            env["LD_LIBRARY_PATH"] = str(stage.SIM)
        self.process = subprocess.Popen(
            [*(shim if words else []), sys.executable, program], env=env, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def result(self):
        """Its digests and launches; it is still there, so that the daemon can be asked."""
        while not (line := self.process.stdout.readline()).startswith("{"):
            expect(line, "the program ended")
        return json.loads(line)

    def end(self):
        self.process.stdin.close()
        expect(self.process.wait(20) == 0, "the program failed")


def client(where, label):
    found = [c for c in where.heddle("ps")["clients"] if c["label"] == label]
    expect(len(found) == 1, (label, found))
    return found[0]


def check(where):
    bare = Running(where, "bare")
    wanted = bare.result()
    bare.end()

    where.start_daemon("priority", '[[rule]]\nlabel = "by rule"\nsms = "25%"\n')
    for label, words, sms in (("low", ("--sms", "25%"), LOW), ("high", ("--sms", "33-131"), HIGH),
                              ("by rule", ("--sms", "50%"), LOW)):
        one = Running(where, label, *words)
        found = one.result()
        expect(found == wanted, (label, found, wanted))
        told = client(where, label)
        counters = told["counters"]
        expect(told["sm_count"] == sms, told)
        expect(counters["on_sm_set"] == wanted["launches"], counters)
        expect(counters["off_sm_set"] == 0, counters)
        expect(counters["marker_errors"] == 0, counters)
        one.end()

    # Beside each other, the less important one gated; every launch is there once.
    both = [Running(where, "latency", "--class", "latency", "--sms", "25%-100%"),
            Running(where, "batch", "--class", "batch", "--sms", "25%")]
    for one in both:
        expect(one.result() == wanted, "gated or not, it computes the same")
    expect(sum(d["granted"] for d in client(where, "batch")["devices"]) > 0, "nobody was gated")
    for one in both:
        one.end()
    ran = where.kernels(["latency", "batch"])  # without the first
    for label, sms in (("latency", HIGH), ("batch", LOW)):
        seen = [kernel["sms"] for kernel in ran[label]]
        expect(len(seen) + 1 == wanted["launches"], (label, len(seen)))
        expect(set(seen) == {sms}, (label, set(seen)))


def check_sets(where):
    """By grant: launches that the policy keeps on a set run there, no others; the answers stay."""
    where.stop_daemon()
    where.next_gpu("sets")
    policy = where.folder / "sets.lua"
    policy.write_text(FENCES)
    where.start_daemon(policy)
    bare = Running(where, "bare")
    wanted = bare.result()
    bare.end()
    seen = {}
    for label, words, inside in (("whole", ("--class", "batch"), SET),
                                 ("quarter", ("--sms", "25%"), FENCE_OF_LOW)):
        one = Running(where, label, *words)
        found = one.result()
        expect(found == wanted, (label, found, wanted))
        told = client(where, label)
        seen[label] = (inside, told["counters"], told["devices"][0]["granted"])
        one.end()
    stats = where.heddle("status")["devices"][0]["stats"]
    expect(stats["on_sm_set"] > 0 and stats["off_sm_set"] == 0, stats)
    ran = where.kernels(list(seen))
    for label, (inside, counters, granted) in seen.items():
        sms = [kernel["sms"] for kernel in ran[label]]
        on_set = sms.count(inside)
        # Every other ask.
        expect(granted / 2 - 1 < on_set <= granted / 2 + 1, (label, granted, on_set))
        expect(set(sms) <= {inside, LOW if label == "quarter" else 132}, (label, set(sms)))
        expect(counters["off_sm_set"] == 0, counters)
        if label == "whole":
            expect(counters["on_sm_set"] in (on_set, on_set + 1), (counters, on_set))


def check_sizes(where):
    """By kernel: nobody asks, and every launch but the first of a kernel is on its size."""
    where.stop_daemon()
    where.next_gpu("sizes")
    policy = where.folder / "sizes.lua"
    policy.write_text(SIZES)
    where.start_daemon(policy)
    bare = Running(where, "bare")
    wanted = bare.result()
    bare.end()
    one = Running(where, "sized", "--class", "latency")
    found = one.result()
    expect(found == wanted, (found, wanted))
    told = client(where, "sized")
    one.end()
    expect(told["devices"][0]["granted"] == 0, told)
    expect(told["counters"]["off_sm_set"] == 0, told)
    sms = [kernel["sms"] for kernel in where.kernels(["sized"])["sized"]]
    # What is launched before the daemon has heard of the kernel runs on all.
    expect(set(sms) <= {SIZE, 132} and sms.count(SIZE) > 0.5 * len(sms), sms)
    expect(sms.count(SIZE) <= told["counters"]["on_sm_set"] <= sms.count(SIZE) + 1,
           (told["counters"], sms.count(SIZE)))


def check_restart(where):
    """Two programs keep the sets that they made, whoever comes first to the next heddled."""
    where.stop_daemon()
    where.next_gpu("restart")
    where.start_daemon(where.folder / "sizes.lua")

    def await_attached(*labels):
        stage.wait_until(lambda: {c["label"] for c in where.heddle("ps")["clients"]} ==
                         set(labels), 10, f"attached: {labels}")

    demos = {"latency": where.start_demo("latency", "restart", 7, RESTART_SECONDS, 0, True)}
    await_attached("latency")
    demos["batch"] = where.start_demo("batch", "restart", 7, RESTART_SECONDS, 0, True)
    await_attached("latency", "batch")
    first = demos["latency"].process.pid  # `heddle run` has become the program
    os.kill(first, signal.SIGSTOP)
    where.stop_daemon()
    where.respawn_daemon()
    await_attached("batch")
    os.kill(first, signal.SIGCONT)
    await_attached("latency", "batch")
    stage.wait_until(lambda: client(where, "latency")["counters"]["on_sm_set"] > 20, 10, "launches")
    for role in demos:
        counters = client(where, role)["counters"]
        expect(counters["off_sm_set"] == 0, (role, counters))
    for demo in demos.values():
        demo.finish()
    for role, ran in where.kernels(list(demos)).items():
        expect({kernel["sms"] for kernel in ran} <= {SIZE, 132}, role)


def check_graphs(where):
    """By grant: a graph that asks is on the set that its policy chose, once its twin is there."""
    where.stop_daemon()
    where.next_gpu("graphs")
    where.start_daemon("gapfill", daemon="gates = false")
    where.heddle("policy", "set", "gapfill", "slowdown_pct=0")  # on its set, and nothing tried
    bare = Running(where, "bare", program=GRAPH)
    wanted = bare.result()
    bare.end()
    latency = where.start_demo("latency", "graphs", 7, 4, 0, True)
    one = Running(where, "graph", "--class", "batch", program=GRAPH)
    found = one.result()
    expect(found == wanted, (found, wanted))
    told = client(where, "graph")
    one.end()
    latency.finish()
    stats = where.heddle("status")["devices"][0]["stats"]
    expect(stats["on_sm_set"] > 8 and stats["off_sm_set"] == 0, stats)
    counters = told["counters"]
    expect(counters["graph_twins"] == 1, counters)
    # The first ones go as they are, until the twin is made.
    expect(counters["on_sm_set"] > 0.7 * stats["on_sm_set"], (counters, stats))
    sms = [kernel["sms"] for kernel in where.kernels(["graph"])["graph"]]
    expect(set(sms) <= {SET_OF_GAPFILL, 132}, set(sms))
    # kernels() leaves the program's first out, which is none of a graph.
    expect(sms.count(SET_OF_GAPFILL) == NODES * counters["twin_launches"],
           (counters, sms.count(SET_OF_GAPFILL)))


def check_waiting_kernels(where, ranks):
    """Kernels that run until another thread's launch has come, under a policy with SM sets."""
    where.stop_daemon()
    where.next_gpu("waiting")
    where.start_daemon(where.folder / "sets.lua")
    command = [stage.HEDDLE, "run", "--sim", "--quiet", "--class", "batch", "--label", "waiting",
               "--", ranks, "--ranks", "2", "--count", "2", "--iterations", "25"]
    try:
        done = subprocess.run(command, env=where.env, timeout=HANGS_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise stage.StageError("kernels that wait for launches hang on an SM set") from error
    expect(done.returncode == 0, "the ranks failed")
    stats = where.heddle("status")["devices"][0]["stats"]
    expect(stats["on_sm_set"] > 0 and stats["off_sm_set"] == 0, stats)


def main():
    if not stage.HEDDLE.exists():
        print("dist/ is not installed: cmake --install build/release")
        return 77
    where = stage.Stage(ROOT / "out/sm_sets", "mps")
    try:
        check(where)
        check_sets(where)
        check_sizes(where)
        check_restart(where)
        check_graphs(where)
        check_waiting_kernels(where, sys.argv[1])
    finally:
        where.close()
    print("ok: the same on a quarter, on the rest, by rule, grant and kernel, alone and gated")
    return 0


if __name__ == "__main__":
    sys.exit(main())
