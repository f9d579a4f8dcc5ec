#!/usr/bin/env python3
"""A program that launches only graphs, on the simulated GPU: its profile has the kernels inside, a
metric of one of them makes the graph's use known in part, and rule, policy and `ps` go by that."""

import pathlib
import subprocess
import sys
import tempfile
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
for folder in ("examples/quickstart", "tests/gpu/programs"):
    sys.path.insert(0, str(ROOT / folder))
import stage  # noqa: E402  (the folder is known only now)

CONFIG = """
[daemon]
socket = "{socket}"
[gpu]
mode = "mps"
[profiles]
runs = 10
directory = "{profiles}"
[policy]
name = "{policy}"
directory = "{policies}"
[[rule]]
label = "graphs"
dram_max = 0.1
"""

# Everybody asks. Whoever launches a graph waits for 20 ms, and is told by which price.
POLICY = """
queue.create("all")
local asked = {}
return policy {
  name = "by_nodes", api = 1, version = "1.0.0",
  hooks = {
    kernel_init = function(kn, c) asked[kn.name] = kn.unknown_pct end,
    client_active = function(c) return GATE end,
    enqueue = function(k) return queue.insert("all", k, 0) end,
    dispatch = function(g)
      local k = queue.peek("all")
      if not k then return IDLE, "empty" end
      local kn = k.kernel
      if kn.unknown_pct and k.wait_us < 20000 then
        return IDLE, string.format("%.0f %% of DRAM, unknown %.0f %%, asked by %.0f %%",
                                   kn.dram_pct or -1, kn.unknown_pct, asked[kn.name] or -1)
      end
      return RUN, k
    end,
  },
}
"""
MEASURED, BLOCKS, OTHER_BLOCKS = 3, 64, 32  # nodes of the kernel that a profiler saw, its blocks
DRAM_PCT = 40


def expect(condition, what):
    if not condition:
        raise stage.StageError(str(what))


def launch_graphs():
    """Until stdin closes."""
    import ctypes
    import select

    from sim_order import NON_BLOCKING, Gpu
    gpu = Gpu()
    word, stream, graph = gpu.word(), gpu.made("cuStreamCreate", NON_BLOCKING), ctypes.c_void_p()
    values = (word, ctypes.c_uint32(100_000), ctypes.c_uint64(0))
    parameters = (ctypes.c_void_p * 3)(*(ctypes.addressof(one) for one in values))
    gpu("cuStreamBeginCapture_v2", stream, 0)
    for blocks in MEASURED * [BLOCKS] + [OTHER_BLOCKS]:
        gpu("cuLaunchKernel", gpu.spin, blocks, 1, 1, 1024, 1, 1, 0, stream, parameters, None)
    gpu("cuStreamEndCapture", stream, ctypes.byref(graph))
    executable = gpu.made("cuGraphInstantiateWithFlags", graph, ctypes.c_uint64(0))
    while not select.select([sys.stdin], [], [], 0.001)[0]:
        gpu("cuGraphLaunch", executable, stream)
        gpu("cuStreamSynchronize", stream)


class Graphs:
    def __init__(self, where):
        self.command = [stage.HEDDLE, "run", "--sim", "--quiet", "--label", "graphs", "--",
                        sys.executable, __file__, "launch"]
        self.env = where.env

    def __enter__(self):
        self.process = subprocess.Popen(self.command, env=self.env, stdin=subprocess.PIPE)

    def __exit__(self, *_):
        self.process.stdin.close()
        expect(self.process.wait(20) == 0, "the program failed")


def device(where):
    return next((device for client in where.heddle("ps")["clients"] if client["label"] == "graphs"
                 for device in client["devices"]), {})


def write_metrics(file):
    """As `heddle profile collect-metrics` does, of one of the two kernels."""
    kernels = tomllib.loads(file.read_text())["kernel"]
    inside = [kernel for kernel in kernels if kernel["block_threads"] > 0]
    expect(len(kernels) == 3 and len(inside) == 2, kernels)
    expect(all(kernel["duration_us"]["count"] == 0 for kernel in inside), inside)
    measured = next(kernel["id"] for kernel in inside if kernel["grid_blocks"] == BLOCKS)
    before, after = file.read_text().split(f'id = "{measured}"\n')
    line = f'metrics = {{ dram_pct = {DRAM_PCT} }}\n'
    file.write_text(f'{before}id = "{measured}"\n{line}{after}')


def past_waits(where):
    told = where.heddle("explain", "graphs")["devices"][0]
    return [wait["held"]["reason"] for wait in told["past"] if wait["held"]]


def check(where):
    profiles = where.sockets / "profiles"
    policies = where.folder / "policies"
    policies.mkdir(exist_ok=True)
    (policies / "by_nodes.lua").write_text(POLICY)

    def start(policy):
        (where.folder / "heddled.toml").write_text(CONFIG.format(
            socket=where.socket, profiles=profiles, policy=policy, policies=policies))
        where.respawn_daemon()

    start("fifo")
    with Graphs(where):
        stage.wait_until(lambda: device(where).get("profiled"), 10, "the task was measured")
    file, = stage.wait_until(lambda: list(profiles.glob("graphs-*.toml")), 10, "its profile")
    where.stop_daemon()
    write_metrics(file)

    start("by_nodes")
    with Graphs(where):
        stage.wait_until(lambda: device(where), 10, "the program")
        beside = where.start_demo("latency", "beside", 7, 2, 0, True)
        told = stage.wait_until(
            lambda: [c for c in device(where).get("ceilings", []) if c["unknown"] > 0], 10,
            "a use that is known in part")
        expect(told[0]["channel"] == "dram" and told[0]["use"] > 0, told)
        expect(abs(told[0]["unknown"] - 0.25) < 0.01, told)
        wanted = f"{DRAM_PCT} % of DRAM, unknown 25 %, asked by 25 %"
        stage.wait_until(lambda: wanted in past_waits(where), 3, f"a wait by {wanted}")
        text = subprocess.run([stage.HEDDLE, "explain", "graphs"], env=where.env, text=True,
                              capture_output=True, check=True).stdout
        expect("(unknown of 25 % of its work)" in text and wanted in text, text)
        beside.finish()


def main():
    if sys.argv[1:] == ["launch"]:
        return launch_graphs()
    with tempfile.TemporaryDirectory(prefix="heddle-graph-metrics-") as folder:
        where = stage.Stage(pathlib.Path(folder), "mps")
        try:
            check(where)
        finally:
            where.close()


if __name__ == "__main__":
    main()
