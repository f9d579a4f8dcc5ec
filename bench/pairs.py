#!/usr/bin/env python3
"""Pairs of model kernels that run beside each other, each repeated without a pause: how much longer
each takes than alone. Kernels come from models that PyTorch captures as CUDA graphs. Needs an
NVIDIA GPU, CUDA 13.0's driver, torch 2.8 or newer, torchvision, and transformers for one model.

    pairs.py --selftest                                3 kernels, about 20 s
    pairs.py --json pairs.json --limit 420             30 kernels, 435 pairs, 2 settings
    pairs.py --json pairs.json --resume --limit 300    goes on where the file stopped
    pairs.py --collect pairs.json [--ncu PATH]         metrics, by Nsight Compute: pairs.ncu.csv
    heddle profile import-ncu pairs.ncu.csv

Run it outside heddle and MPS with nothing else on the GPU. Kernels and the order of pairs are drawn
by --seed before any pair is measured; a file cut short holds a random part. Settings: `all`, both
on all SMs; `halves`, each on one half of the SMs, and alone there too.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "workloads")]

import lifted  # noqa: E402
from harness import report  # noqa: E402

SEED, KERNELS = 20261125, 30
SHORTEST_US, LONGEST_US = 5, 2000  # of a kernel that is drawn
SAME_NAME = 2  # kernels of one function at most
SETTINGS = {"all": ("all", "all"), "halves": ("first", "second")}
QUEUED = 3  # launches of each side that are always on their way
ENDS = 5  # launches of each side that a figure comes of, at least
BESIDE_S, ALONE_S = 0.05, 0.012
PATIENCE = 6  # times as long until fewer launches must do
SAVE_S = 5
PROFILED = 3  # launches of each kernel under ncu
STUCK = 3  # exit status
RESTART_S = 60  # less is not worth a new process


def draw(kernels, count, seed):
    """Of candidates by model a seeded choice, from each model in turn; at most SAME_NAME of one
    function."""
    chance = random.Random(seed)
    piles = {}
    for kernel in kernels:
        piles.setdefault(kernel.facts["model"], []).append(kernel)
    for pile in piles.values():
        chance.shuffle(pile)
    chosen, keys, names = [], set(), collections.Counter()
    while len(chosen) < count and any(piles.values()):
        for pile in piles.values():
            while pile and len(chosen) < count:
                kernel = pile.pop()
                name = kernel.facts["name"]
                if kernel.key not in keys and names[name] < SAME_NAME:
                    chosen.append(kernel)
                    keys.add(kernel.key)
                    names[name] += 1
                    break
    return chosen


def drawn_pairs(count, seed):
    """All pairs of two different kernels in all settings, in the order they are measured."""
    pairs = [(a, b, s) for a in range(count) for b in range(a + 1, count) for s in SETTINGS]
    random.Random(seed + 1).shuffle(pairs)
    return pairs


def window(ends):
    """When all sides ran, and their ends in it. Those launched first began alone."""
    begin, end = max(e[QUEUED] for e in ends), min(e[-1] for e in ends)
    return end - begin, [[t for t in e if begin <= t <= end] for e in ends]


def steady(gpu, sides, seconds):
    """Microseconds of a repetition of each side while all of them repeat without a pause."""
    begin = gpu.mark(sides[0].stream)
    queued = [collections.deque(gpu.launch(s) for _ in range(QUEUED)) for s in sides]
    ends = [[] for _ in sides]
    moved = gpu.clock()
    while True:
        for side, launches, its_ends in zip(sides, queued, ends):
            while gpu.ended(launches[0]):
                its_ends.append(gpu.us(begin, launches[0]))
                gpu.forget(launches.popleft())
                launches.append(gpu.launch(side))
                moved = gpu.clock()
        if gpu.clock() - moved > lifted.STUCK_S:
            raise lifted.Stuck(f"a launch did not end in {lifted.STUCK_S} s")
        if all(len(e) > QUEUED for e in ends):
            us, inside = window(ends)
            least = min(len(e) for e in inside)
            if us >= seconds * 1e6 and least > ENDS or us >= PATIENCE * seconds * 1e6 and least > 1:
                break
    for launches in queued:
        for event in launches:
            gpu.wait(event)
            gpu.forget(event)
    gpu.forget(begin)
    return [(e[-1] - e[0]) / (len(e) - 1) / side.repeats for e, side in zip(inside, sides)]


class Bench:
    """Lifts kernels as they are needed; each at most once for a place and a stream."""

    def __init__(self, gpu, kernels):
        self.gpu, self.kernels, self.lifted = gpu, kernels, {}

    def side(self, index, place, stream):
        key = index, place, stream
        if key not in self.lifted:
            kernel = self.kernels[index]
            repeats = max(2, round(lifted.CHUNK_US / kernel.facts["alone_us"]))
            self.lifted[key] = self.gpu.lift(kernel, place, repeats, stream)
        return self.lifted[key]

    def pair(self, first, second, setting):
        """One row of the result. Alone before and after: clocks move."""
        sides = [self.side(i, place, stream) for stream, (i, place) in
                 enumerate(zip((first, second), SETTINGS[setting]))]
        alone = [[steady(self.gpu, [s], ALONE_S)[0]] for s in sides]
        beside = steady(self.gpu, sides, BESIDE_S)
        for figures, side in zip(alone, sides):
            figures += steady(self.gpu, [side], ALONE_S)
        means = [sum(a) / 2 for a in alone]
        return {"first": first, "second": second, "setting": setting,
                "slowdowns": [b / a for b, a in zip(beside, means)], "beside_us": beside,
                "alone_us": means,
                "alone_drift": [a[1] / a[0] for a in alone]}


class File:
    """The result, written now and then and at the end, whole or not at all."""

    def __init__(self, path, document):
        self.path, self.document, self.saved = path, document, time.monotonic()

    def save(self, always=True):
        if self.path and (always or time.monotonic() - self.saved >= SAVE_S):
            report.write(self.document, pathlib.Path(self.path))
            self.saved = time.monotonic()


def measure(bench, file, until, order):
    """Measures what the file lacks. A pair that the driver refuses is kept with its error."""
    document = file.document
    there = {(p["first"], p["second"], p["setting"]) for p in document["pairs"]}
    for pair in order:
        if pair in there:
            continue
        if bench.gpu.clock() > until:
            print(f"pairs: the limit is reached; {len(document['pairs'])} pairs are measured",
                  file=sys.stderr)
            break
        try:
            document["pairs"].append(bench.pair(*pair))
        except lifted.Stuck as error:
            document["pairs"].append(failed(pair, error))
            raise
        except lifted.GpuError as error:
            document["pairs"].append(failed(pair, error))
            print(f"pairs: {pair}: {error}", file=sys.stderr)
        file.save(always=False)


def failed(pair, error):
    first, second, setting = pair
    return {"first": first, "second": second, "setting": setting, "error": str(error)}


def capture(names, skipped):
    """Graphs by model; what cannot be captured is told, and the others go on."""
    import pair_models
    graphs = {}
    for name in names:
        began = time.monotonic()
        try:
            graphs[name] = pair_models.Captured(name)
        except Exception as error:  # whatever a model's library raises
            skipped.append({"model": name, "error": f"{type(error).__name__}: {error}"[:500]})
            print(f"pairs: {name} is left out: {type(error).__name__}: {error}", file=sys.stderr)
            continue
        print(f"pairs: {name}: captured in {time.monotonic() - began:.1f} s", file=sys.stderr)
    return graphs


def candidates(gpu, name, graph, skipped, avoid):
    """A graph's kernels that are long enough, with what they take alone."""
    found = []
    for kernel in gpu.kernels(graph):
        kernel.facts["model"] = name
        if list(identity(kernel.facts)) in avoid:
            continue
        try:
            kernel.facts["alone_us"] = gpu.timed(kernel)
        except lifted.GpuError as error:
            skipped.append({"model": name, "name": kernel.facts["name"],
                            "identity": identity(kernel.facts), "error": str(error),
                            "stuck": isinstance(error, lifted.Stuck)})
            if isinstance(error, lifted.Stuck):
                raise
            continue
        if SHORTEST_US <= kernel.facts["alone_us"] <= LONGEST_US:
            found.append(kernel)
    return found


def identity(facts):
    return [facts["model"], facts["node"], facts["name"]]


def chosen_before(gpu, document, graphs):
    """The kernels of a file, found again in graphs captured anew."""
    of = {}
    for name, captured in graphs.items():
        for kernel in gpu.kernels(captured.graph):
            of[name, kernel.key] = kernel
    kernels = []
    for facts in document["kernels"]:
        key = (facts["name"], tuple(facts["grid"]), tuple(facts["block"]),
               facts["dynamic_smem_bytes"])
        kernel = of.get((facts["model"], key))
        if kernel is None:
            raise lifted.GpuError(f"{facts['model']}: has no {facts['name']} in that launch "
                                  "configuration any more; measure with the libraries of then")
        kernel.facts = facts
        kernels.append(kernel)
    return kernels


def prepare(gpu, options, file):
    """The chosen kernels; captures only what is needed. Graphs are kept with them."""
    import pair_models
    document = file.document
    if document["kernels"]:
        names = dict.fromkeys(k["model"] for k in document["kernels"])
        graphs = capture(names, [])
        return chosen_before(gpu, document, graphs), graphs
    names = options.models.split(",") if options.models else list(pair_models.MODELS)
    graphs = capture(names, document["skipped"])
    avoid = [s["identity"] for s in document["skipped"] if s.get("stuck")]
    found = []
    for name, captured in graphs.items():
        found += candidates(gpu, name, captured.graph, document["skipped"], avoid)
    chosen = draw(found, options.kernels, document["seed"])
    document["kernels"] = [k.facts for k in chosen]
    document["candidates"] = [identity(k.facts) + [k.facts["alone_us"]] for k in found]
    print(f"pairs: {len(chosen)} kernels of {len(found)} of {SHORTEST_US} us and more",
          file=sys.stderr)
    return chosen, graphs


def metrics_run(gpu, path):
    """Runs each kernel of a file in a graph, for a profiler that waits for it."""
    document = json.loads(pathlib.Path(path).read_text())
    graphs = capture(dict.fromkeys(k["model"] for k in document["kernels"]), [])
    return profiled(gpu, chosen_before(gpu, document, graphs))


def profiled(gpu, kernels):
    runs = [gpu.lift(k, "all", PROFILED, 0) for k in kernels]
    gpu.driver.call("cuProfilerStart")
    for run in runs:
        gpu.wait(gpu.launch(run))
    gpu.driver.call("cuProfilerStop")
    return 0


# The keys of `heddle profile import-ncu`, and what says which kernel it was.
METRICS = ["sm__inst_issued.avg.per_cycle_active"] + [
    f"sm__inst_executed_pipe_{p}.avg.pct_of_peak_sustained_active"
    for p in ("fma", "fp64", "tensor")] + [
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum.pct_of_peak_sustained_elapsed",
    "l1tex__t_sector_hit_rate.pct", "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "lts__t_sector_hit_rate.pct", "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
    "sm__warps_active.avg.pct_of_peak_sustained_active", "gpu__time_duration.sum",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active", "dram__bytes_read.sum",
    "dram__bytes_write.sum", "lts__t_sectors_op_read.sum", "lts__t_sectors_op_write.sum",
    "launch__registers_per_thread", "launch__shared_mem_per_block_static",
    "launch__shared_mem_per_block_dynamic"]


def collect(path, ncu, program=__file__):
    output = str(pathlib.Path(path).with_suffix(".ncu.csv"))
    words = [ncu, "--csv", "--page=raw", "--print-units=base", "--print-kernel-base=mangled",
             f"--log-file={output}", "--clock-control=none", "--cache-control=none",
             "--graph-profiling=node", "--profile-from-start=off",
             "--metrics=" + ",".join(METRICS), sys.executable,
             str(pathlib.Path(program).resolve()), "--metrics-run", path]
    print("pairs: " + " ".join(words), file=sys.stderr)
    try:
        code = subprocess.run(words, env={**os.environ, "LC_ALL": "C"}, check=False).returncode
    except OSError as error:
        print(f"pairs: {ncu}: {error.strerror}; name Nsight Compute with --ncu PATH",
              file=sys.stderr)
        return 1
    print(f"pairs: {output}; then: heddle profile import-ncu {output}", file=sys.stderr)
    return code


def show(document):
    """What was measured, for people."""
    for i, k in enumerate(document["kernels"]):
        print(f"{i:3} {k['alone_us']:8.1f} us {k['grid_blocks']:7} x {k['block_threads']:4}  "
              f"{k['model']:18} {k['name'][:60]}")
    for p in document["pairs"][:20]:
        told = p.get("error") or " ".join(f"{s:.3f}" for s in p["slowdowns"])
        print(f"{p['first']:3} {p['second']:3} {p['setting']:7} {told}")
    good = [s for p in document["pairs"] if "error" not in p for s in p["slowdowns"]]
    counts = [sum(low <= s < high for s in good)
              for low, high in ((0, 1.1), (1.1, 1.5), (1.5, 1e9))]
    print(f"{len(document['pairs'])} pairs, {len(document['pairs']) - len(good) // 2} failed; "
          f"slowdowns below 1.1, 1.5, above: {counts}")


def parse(arguments):
    parser = argparse.ArgumentParser(prog="heddle-bench pairs", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--json", metavar="FILE", help="measure; the result")
    what.add_argument("--selftest", action="store_true", help="three kernels of one small model")
    what.add_argument("--collect", metavar="FILE", help="metrics of a result's kernels, by ncu")
    what.add_argument("--metrics-run", metavar="FILE", help="what --collect runs under ncu")
    parser.add_argument("--limit", type=float, default=600, help="seconds in all (600)")
    parser.add_argument("--kernels", type=int, default=KERNELS, help=f"drawn ({KERNELS})")
    parser.add_argument("--models", help="apart by commas (all of workloads/pair_models.py)")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--resume", action="store_true", help="go on where the file stopped")
    parser.add_argument("--ncu", default="ncu", help="where Nsight Compute is")
    return parser.parse_args(arguments)


def started():
    """The GPU, in the context that PyTorch uses."""
    import torch
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    return lifted.Gpu()


def run(options, gpu, versions):
    until = gpu.clock() + options.limit - (time.monotonic() - BEGAN)
    document = {"version": 1, "seed": options.seed, "kernels": [], "pairs": [], "skipped": [],
                "sms": gpu.sms, "sm_groups": gpu.groups, **versions}
    if options.resume and os.path.exists(options.json):
        document = json.loads(pathlib.Path(options.json).read_text())
    file = File(options.json, document)
    try:
        kernels, graphs = prepare(gpu, options, file)
        file.save()
        if len(kernels) < 2:
            print("pairs: fewer than two kernels were found", file=sys.stderr)
            return 1
        measure(Bench(gpu, kernels), file, until, drawn_pairs(len(kernels), document["seed"]))
        del graphs  # until here: kernels read and write what they hold
    except lifted.Stuck as error:
        file.save()
        left = int(until - gpu.clock())
        if not options.json or left < RESTART_S:
            print(f"pairs: {error}; what was measured is kept: go on with --resume",
                  file=sys.stderr)
            sys.stderr.flush()
            os._exit(STUCK)  # teardown would wait for the launch
        print(f"pairs: {error}; goes on in a new process without it", file=sys.stderr)
        sys.stderr.flush()
        os.execv(sys.executable, [sys.executable, *again(sys.argv, left)])
    file.save()
    show(document)
    return 1 if any("error" in p for p in document["pairs"]) else 0


def again(words, left):
    """The command line that goes on where this one cannot."""
    return [*words, "--resume", f"--limit={left}"]


BEGAN = time.monotonic()


def main(arguments):
    options = parse(arguments)
    if options.collect:
        return collect(options.collect, options.ncu)
    try:
        gpu = started()
        if options.metrics_run:
            return metrics_run(gpu, options.metrics_run)
        import pair_models
        if options.selftest:
            options.models, options.kernels = pair_models.SELFTEST, 3
        return run(options, gpu, pair_models.versions())
    except (lifted.GpuError, ImportError) as error:
        print(f"pairs: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
