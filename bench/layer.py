#!/usr/bin/env python3
"""Each kernel of one transformer layer beside a compute-bound neighbour: how much longer it takes,
measured and predicted. The check of Fig. 5 in Elvinger et al., SoCC 2025.

    layer.py --json layer.json [--layer decode-b8]     measure, on a GPU as pairs.py wants it
    layer.py --collect layer.json [--ncu PATH]         metrics, by Nsight Compute: layer.ncu.csv
    layer.py --predict layer.json [--heddle PATH]      writes layer.predicted.json, without a GPU
    layer.py --table layer.json

The layer has the shape of workloads/llm.py's. Its kernels of SHORTEST_US and more are victims, one
for each node: two of the same function and grid may read matrices of different size. Neighbours
are issue_kernel of workloads/interference.cu at two rates: one block of 128 threads on each SM, so
that most kernels find room beside it. Settings are those of pairs.py. The whole layer's graph is
measured beside each neighbour too.
"""

import argparse
import csv
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import lifted
import pairs
from md import NO_RESULT, RESULTS, markdown, read

SHORTEST_US = 5
GPU_MODEL = RESULTS.parents[1] / "profiles/gpu/nvidia-h100.toml"


# ---- measuring ----------------------------------------------------------------------------------

def nodes_of(gpu, captured):
    """All kernel nodes by (model, node)."""
    found = {}
    for model, of in captured.items():
        for kernel in gpu.kernel_nodes(of.graph):
            kernel.facts.update(model=model, nodes=1)
            found[model, kernel.facts["node"]] = kernel
    return found


def time_nodes(gpu, document, captured):
    """The victims and then the neighbours; `whole` has all of the layer."""
    chosen = []
    for (model, _), kernel in nodes_of(gpu, captured).items():
        try:
            us = kernel.facts["alone_us"] = gpu.timed(kernel)
        except lifted.Stuck:
            raise
        except lifted.GpuError as error:
            document["skipped"].append({"model": model, "name": kernel.facts["name"],
                                        "error": str(error)})
            continue
        if model == document["layer"]:
            document["whole"].append([kernel.facts["name"], us])
        if model != document["layer"] or us >= SHORTEST_US:
            chosen.append(kernel)
    document["kernels"] = [k.facts for k in chosen]
    return chosen


def order(document):
    """Each victim beside each neighbour in each setting."""
    of = {True: [], False: []}
    for index, kernel in enumerate(document["kernels"]):
        of[kernel["model"] == document["layer"]].append(index)
    return [(v, n, s) for s in pairs.SETTINGS for n in of[False] for v in of[True]]


def beside_whole(gpu, bench, document, graph):
    """The layer as one graph, repeated, beside each neighbour on all SMs."""
    side = lifted.Lifted(gpu.driver.get("cuGraphInstantiateWithFlags", graph, 0),
                         gpu.streams[0], 1)
    for index, kernel in enumerate(document["kernels"]):
        if kernel["model"] != document["layer"]:
            other = bench.side(index, "all", 1)
            alone = pairs.steady(gpu, [side], pairs.BESIDE_S)[0]
            beside = pairs.steady(gpu, [side, other], pairs.BESIDE_S)[0]
            document["whole_beside"].append(
                {"second": index, "alone_us": alone, "slowdown": beside / alone})


def run(options, gpu, captured, versions):
    until = gpu.clock() + options.limit
    document = {"version": 1, "seed": 0, "layer": options.layer, "kernels": [], "pairs": [],
                "skipped": [], "whole": [], "whole_beside": [],
                "sms": gpu.sms, "sm_groups": gpu.groups,
                "commit": os.environ.get("HEDDLE_COMMIT", ""),
                "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **versions}
    file = pairs.File(options.json, document)
    try:
        bench = pairs.Bench(gpu, time_nodes(gpu, document, captured))
        pairs.measure(bench, file, until, order(document))
        file.save()
        beside_whole(gpu, bench, document, captured[options.layer].graph)
    except lifted.Stuck as error:
        file.save()
        print(f"layer: {error}; what was measured is kept", file=sys.stderr)
        sys.stderr.flush()
        os._exit(pairs.STUCK)  # teardown would wait for the launch
    file.save()
    pairs.show(document)
    for whole in document["whole_beside"]:
        print(f"the whole layer beside {whole['second']}: {whole['alone_us']:.1f} us, "
              f"{whole['slowdown']:.3f}")
    return 1 if any("error" in p for p in document["pairs"]) else 0


def metrics_run(gpu, document, captured):
    """Each kernel of the file in its order, for ncu."""
    nodes = nodes_of(gpu, captured)
    kernels = [nodes[k["model"], k["node"]] for k in document["kernels"]]
    if any(k.facts["name"] != f["name"] for k, f in zip(kernels, document["kernels"])):
        raise lifted.GpuError("the layer has other kernels than when it was measured")
    return pairs.profiled(gpu, kernels)


def on_gpu(options):
    gpu = pairs.started()
    import pair_models
    document = json.loads(Path(options.metrics_run).read_text()) if options.metrics_run else None
    name = document["layer"] if document else options.layer
    captured = {n: pair_models.Captured(n) for n in (name, *pair_models.NEIGHBOURS)}
    if document:
        return metrics_run(gpu, document, captured)
    return run(options, gpu, captured, pair_models.versions())


# ---- predicting ---------------------------------------------------------------------------------

def csv_rows(path, kernels):
    """The report's two lines of headers, and the rows of each kernel: they are in order."""
    lines = list(csv.reader(path.read_text().splitlines()))
    first = next(i for i, line in enumerate(lines) if line and line[0] == "ID")
    head, rows = lines[first:first + 2], [line for line in lines[first + 2:] if line]
    name = head[0].index("Kernel Name")
    each = [rows[i:i + pairs.PROFILED] for i in range(0, len(rows), pairs.PROFILED)]
    if [k["name"] for k in kernels for _ in range(pairs.PROFILED)] != [r[name] for r in rows]:
        raise ValueError(f"{path} is not of the kernels of {path.stem}")
    return head, each


def predict_one(heddle, document, report, victim):
    """What heddle says of one victim's pairs: its metrics alone, not those of its namesakes."""
    head, rows = report
    others = [i for i, k in enumerate(document["kernels"]) if k["model"] != document["layer"]]
    there = [victim, *others]
    mine = [p for p in document["pairs"] if p["first"] == victim and "error" not in p]
    part = document | {"kernels": [document["kernels"][i] for i in there],
                       "pairs": [p | {"first": 0, "second": there.index(p["second"])}
                                 for p in mine]}
    with tempfile.TemporaryDirectory() as folder:
        of, metrics = Path(folder, "pairs.json"), Path(folder, "pairs.ncu.csv")
        of.write_text(json.dumps(part))
        with metrics.open("w", newline="") as stream:
            lines = [*head, *(row for i in there for row in rows[i])]
            csv.writer(stream, quoting=csv.QUOTE_ALL).writerows(lines)
        said = json.loads(subprocess.run(
            [heddle, "--json", "profile", "predict-pairs", of, "--metrics", metrics,
             "--gpu-model", GPU_MODEL], check=True, capture_output=True, text=True).stdout)
    if said["unknown"]:
        raise ValueError(f"heddle found no metrics of {said['unknown']} kernels")
    return [{"first": victim, "second": p["second"], "setting": p["setting"],
             "slowdown": s["predicted"][0], "binds": s["binds"][0]}
            for p, s in zip(mine, said["pairs"])]


def predict(heddle, path):
    document = json.loads(path.read_text())
    report = csv_rows(path.with_suffix(".ncu.csv"), document["kernels"])
    ipc = report[0][0].index("sm__inst_issued.avg.per_cycle_active")
    found = {"ipc": [sum(float(r[ipc]) for r in rows) / len(rows) for rows in report[1]],
             "pairs": []}
    for index, kernel in enumerate(document["kernels"]):
        if kernel["model"] == document["layer"]:
            found["pairs"] += predict_one(heddle, document, report, index)
    path.with_suffix(".predicted.json").write_text(json.dumps(found, indent=1) + "\n")


# ---- the table ----------------------------------------------------------------------------------

SKIPPED = re.compile(r"at|native|c10|cu\w*|std|_GLOBAL__\w*|\w*_internal|gpu_kernel_impl\w*")


def short(name):
    """Of a mangled name the first two identifiers that say something."""
    words, at = [], 0
    while name.startswith("_Z") and (number := re.compile(r"(?<!L.)(?<!\d)\d+").search(name, at)):
        end = number.end() + int(number[0])
        word = name[number.end():end]
        named = len(word) > 2 and re.fullmatch(r"[A-Za-z_]\w*", word)
        at = end if named else number.end()
        if named and not SKIPPED.fullmatch(word):
            words.append(word)
    return " ".join(words[:2])[:60] or name[:40]


def cell(measured, predicted, binds=""):
    return f"{measured:.2f} / {predicted:.2f} ({predicted / measured - 1:+.0%}) {binds}".rstrip()


def weighted(slowdowns, alone):
    return sum(s * us for s, us in zip(slowdowns, alone)) / sum(alone)


def table(path):
    predicted = path.with_suffix(".predicted.json")
    if not predicted.exists():
        return NO_RESULT
    document, found = read(path), read(predicted)
    kernels, total = document["kernels"], sum(us for _, us in document["whole"])

    def by_pair(rows):
        return {(r["first"], r["second"], r["setting"]): r for r in rows if "error" not in r}
    measured, said = by_pair(document["pairs"]), by_pair(found["pairs"])
    victims = [i for i, k in enumerate(kernels) if k["model"] == document["layer"]]
    columns = list(dict.fromkeys((n, s) for _, n, s in order(document)))
    rows = [[short(kernels[v]["name"]), f"{kernels[v]['alone_us'] / total:.0%}",
             f"{kernels[v]['alone_us']:.1f}", f"{found['ipc'][v]:.2f}"] for v in victims]
    share = sum(kernels[v]["alone_us"] for v in victims)
    sums = ["sum of these", f"{share / total:.0%}", f"{share:.1f}", "–"]
    for n, s in columns:
        both = [(measured[v, n, s], said[v, n, s]) if (v, n, s) in measured else None
                for v in victims]
        for row, pair in zip(rows, both):
            row.append(cell(pair[0]["slowdowns"][0], pair[1]["slowdown"], pair[1]["binds"])
                       if pair else "–")
        there = [pair for pair in both if pair]
        alone = [m["alone_us"][0] for m, _ in there]
        sums.append(cell(weighted([m["slowdowns"][0] for m, _ in there], alone),
                         weighted([p["slowdown"] for _, p in there], alone)) if there else "–")
    whole = {w["second"]: w for w in document["whole_beside"]}
    graph = ["the layer's graph, repeated", "", "–", "–"]
    if whole:
        graph[2] = f"{min(w['alone_us'] for w in whole.values()):.1f}"
    graph += [f"{whole[n]['slowdown']:.2f}" if s == "all" and n in whole else "–"
              for n, s in columns]
    where = {"all": "both on all SMs", "halves": "each on its half"}
    header = [f"{document['layer']} on {document['gpu']}", "of the layer's time", "alone, µs",
              "IPC",
              *(f"beside IPC {found['ipc'][n]:.2f}, {where[s]}" for n, s in columns)]
    return markdown(header, [*rows, sums, graph])


def tables():
    return "\n\n".join(map(table, sorted(p for p in (RESULTS / "pairs").glob("layer*.json")
                                          if p.suffixes == [".json"]))) or NO_RESULT


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    for option in ("--json", "--collect", "--predict", "--table", "--metrics-run"):
        what.add_argument(option, metavar="FILE")
    parser.add_argument("--layer", default="decode-b8", help="of LAYERS in pair_models.py")
    parser.add_argument("--limit", type=float, default=100, help="seconds to measure for (100)")
    parser.add_argument("--ncu", default="ncu", help="where Nsight Compute is")
    parser.add_argument("--heddle", default=RESULTS.parents[1] / "dist/bin/heddle")
    options = parser.parse_args()
    if options.collect:
        return pairs.collect(options.collect, options.ncu, __file__)
    try:
        if options.predict:
            return predict(options.heddle, Path(options.predict))
        if options.table:
            return print(table(Path(options.table)))
        return on_gpu(options)
    except (lifted.GpuError, ImportError, OSError, ValueError,
            subprocess.CalledProcessError) as error:
        print(f"layer: {error}{getattr(error, 'stderr', None) or ''}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
