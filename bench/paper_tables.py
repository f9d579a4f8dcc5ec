#!/usr/bin/env python3
"""The tables of the two interference papers (Elvinger et al.: "SoCC" 2025, "Measuring" 2025) on
this GPU, beside theirs: pairs of microbenchmarks in one process (interference.cu), and torch.mm.

    paper_tables.py --json FILE [--program FILE] [--seconds 0.15] [--repetitions 3]   two minutes
    paper_tables.py --table FILE

A slowdown is of the first beside the second, against the blocks alone around it. `together` is the
throughput of both, each over its own alone: 2 where they do not disturb each other, 1 where they
might as well take turns. The papers run kernels of equal length once, one after the other over both
together, which is the same.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import interference
from harness.md import markdown, read

LOW, HIGH = ",sms=0-63", ",sms=64-131"
CONFINED = "issue,ilp=4,blocks=132"


def equal(spec):
    return spec, spec


def apart(spec):
    return spec + LOW, spec + HIGH


# (table, row, what is measured, first, second, the paper's figure)
ROWS = [
    *(("SoCC, Table 3 (fp64)", f"S{i}", "together", *equal(f"fp64,ilp={i}"), socc)
      for i, socc in enumerate((1.93, 1.87, 1.33, 1.03), 1)),
    *(("Measuring, Table 4 (fp64)", f"S{i}", "together", *equal(f"fp64,ilp={i}"), figure)
      for i, figure in enumerate((1.988, 1.977, 1.356, 1.018), 1)),
    *(("Measuring, Table 3 (copy beside compute)", f"S{i}", "together", spec,
       "dram,blocks=132", figure)
      for i, (spec, figure) in enumerate(zip(
          [*(f"issue,ilp={n}" for n in (1, 2, 3, 4)), "issue,ilp=4,threads=256"],
          (1.915, 1.896, 1.893, 1.65, 1.001)), 1)),
    *(("Measuring, Table 2 (DRAM, disjoint SMs)", f"{blocks} blocks", "slowdown",
       *apart(f"dram,blocks={blocks}"), figure)
      for blocks, figure in ((33, 1.06), (66, 1.14), (99, 1.23), (132, 1.36))),
    *(("SoCC, Fig. 3; Measuring, Fig. 2 (L2, disjoint SMs)", f"{mb} MB", "slowdown",
       *apart(f"l2,mb={mb},blocks=66"), figure)
      for mb, figure in ((4, 1.0), (8, 1.0), (16, 2.15), (22.5, 1.79), (26, 1.12))),
    *(("Measuring, Fig. 3 (L1)", f"{kb} KB", "slowdown", *equal(f"l1,kb={kb}"), figure)
      for kb, figure in ((48, 1.0), (54, None), (60, None), (80, None), (108, None), (130, 1.0))),
    ("SoCC, pitfall 1 (6.25 % occupancy)", "compute beside itself", "slowdown",
     *equal("issue,ilp=4"), 1.73),
    ("Measuring, pitfall 2 (6.25 % occupancy)", "compute beside itself", "slowdown",
     *equal("issue,ilp=4"), 1.85),
    ("SoCC, pitfall 2", "compute at IPC 3.99 beside a copy", "slowdown",
     "issue,ilp=4,threads=1024", "dram,blocks=132", 1.0),
    *(("Measuring, 4.1.1 (sleep beside sleep)", f"{blocks} blocks of 1 024", "slowdown",
       *equal(f"sleep,blocks={blocks},threads=1024"), figure)
      for blocks, figure in ((132, 1.0), (264, 2.0))),
]
TORCH = [("Measuring, 4.3", "torch.mm 1024 beside itself", 1024, 1.7)]


def slowdown(program, first, second, options):
    return interference.measure(program, first, second, options.seconds, options.repetitions)


def measured(program, row, options):
    table, name, what, first, second, paper = row
    point = slowdown(program, first, second, options)
    found = {"table": table, "row": name, "what": what, "first": first, "second": second,
             "paper": paper, "pressure": point["pressure"], "alone_pressure":
             point["alone_pressure"], "unit": point["unit"], "slowdowns": point["slowdowns"]}
    if what == "slowdown":
        return found | {"ours": point["slowdown"]}
    other = point if first == second else slowdown(program, second, first, options)
    return found | {"ours": 1 / point["slowdown"] + 1 / other["slowdown"]}


def confined(program, options):
    """How much longer 132 blocks take on one group of SMs: by what they press with."""
    rate = {}
    for sms, spec in ((132, CONFINED), (8, CONFINED + ",sms=0-7")):
        with interference.Program(program, spec, spec) as one:
            rate[sms] = sms * one.ask("alone", options.seconds)["pressure"]
    return {"table": "Measuring, pitfall 2 (6.25 % of the SMs)", "row": "compute on 8 of 132 SMs",
            "what": "slowdown", "first": CONFINED, "second": "", "paper": 15.8,
            "ours": rate[132] / rate[8]}


MM = r"""
import json, statistics, sys, time
import torch
size, seconds = int(sys.argv[1]), float(sys.argv[2])
torch.backends.cuda.matmul.allow_tf32 = False
a, b = (torch.randn(size, size, device="cuda") for _ in "ab")
out = [torch.empty_like(a) for _ in "ab"]
streams = [torch.cuda.Stream() for _ in "ab"]
graphs = []
for stream, into in zip(streams, out):
    with torch.cuda.stream(stream):
        torch.mm(a, b, out=into)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(50):
            torch.mm(a, b, out=into)
    graphs.append(graph)
def run(which):
    ends = time.monotonic() + seconds
    begin, count = time.monotonic(), 0
    while time.monotonic() < ends:
        for i in which:
            with torch.cuda.stream(streams[i]):
                graphs[i].replay()
        torch.cuda.synchronize()
        count += 1
    return (time.monotonic() - begin) / count
ratios = []
for _ in range(5):
    alone = run([0])
    ratios.append(run([0, 1]) / alone)
print(json.dumps(ratios))
"""


def torch_row(row, options):
    table, name, size, paper = row
    done = subprocess.run([sys.executable, "-c", MM, str(size), str(options.seconds * 2)],
                          text=True, capture_output=True)
    found = {"table": table, "row": name, "what": "slowdown", "first": f"torch.mm {size}",
             "second": f"torch.mm {size}", "paper": paper}
    if done.returncode != 0:
        return found | {"error": done.stderr.strip().splitlines()[-1:]}
    ratios = json.loads(done.stdout)
    return found | {"ours": statistics.median(ratios), "each": ratios}


def table(path):
    """Of the rows that are still defined as they were measured."""
    document = read(path)
    now = {row[:5] for row in ROWS}
    rows = [["table", "row", "", "the paper", "ours", "apart"]]
    for r in document["rows"]:
        key = tuple(r[name] for name in ("table", "row", "what", "first", "second"))
        if r["second"] != "" and not r["first"].startswith("torch.mm") and key not in now:
            continue
        if r["first"].startswith("torch.mm") and r["what"] != "slowdown":
            continue
        ours, paper = r.get("ours"), r["paper"]
        rows.append([r["table"], r["row"], r["what"], f"{paper:.2f}" if paper else "–",
                     f"{ours:.2f}" if ours else "failed",
                     f"{100 * (ours / paper - 1):+.0f} %" if ours and paper else "–"])
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json")
    parser.add_argument("--table", type=Path)
    parser.add_argument("--program", help="what interference.cu was built to")
    parser.add_argument("--seconds", type=float, default=0.15)
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    if options.table:
        rows = table(options.table)
        print(markdown(rows[0], rows[1:]))
        return 0
    if not options.json:
        parser.error("--json FILE or --table FILE")
    failed = 0
    program = options.program or interference.build()
    document = {"version": 1, "seconds": options.seconds, "repetitions": options.repetitions,
                "commit": os.environ.get("HEDDLE_COMMIT", ""), "rows": []}
    jobs = [*((measured, (program, row, options)) for row in ROWS), (confined, (program, options)),
            *((torch_row, (row, options)) for row in TORCH)]
    for what, arguments in jobs:
        try:
            document["rows"].append(what(*arguments))
        except interference.PairError as error:
            failed += 1
            print(f"paper_tables.py: {error}", file=sys.stderr)
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(document, file, indent=1)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
