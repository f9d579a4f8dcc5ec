#!/usr/bin/env python3
"""A round on a lent GPU host: named steps one behind the other, whatever fails.

    round.py --out out/round sanity equals        these, in this order; default: all but ddp
    round.py --out out/round --sim                in short, on the simulated GPU: the logic

sanity     values as bare: eight programs in both modes, graph_campaign among them
equals     training and a graph of one priority, under the built-in policy and `auto`, both modes
stops      BERT at half load beside kernels of 11 ms, `auto`, time-sliced
graphs     a graph at half load beside a graph, `auto`, both modes
threads    best effort with HEDDLE_GATES=0 beside an idle service and beside a busy one
ddp        two_gpus.py; needs two GPUs

A part of a step writes OUT/STEP.log and OUT/STEP/PART.json, and prints a line: its exit status
(124 or -9: beyond its limit), seconds and figures. Those of a scenario are, of each job in a row,
mean / p99, then the rate, all ÷ alone. --pack FOLDER: round.tar.gz of OUT, after each part.
Exits with 1 if a part did not with 0.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from harness.session import Session, origin_parser  # noqa: E402

PROGRAMS = "torch_eager,jax,cupy,numba,driver_api,graphs,graph_campaign,stream_order"
CONDITIONS = "bare,bare_again,gated,killed,count_bare,count_heddle"
LEAST_S, END_S = 30, 15  # what a part needs to begin; what it has, of its limit, to end
BUDGET = object()        # in a command: its seconds, without those to end


def parts(step, o):
    """(name, limit in seconds, command) of each part."""
    out, sim = o.out / step, ["--sim"] * o.sim

    def script(name, limit_s, path, *words):
        return name, limit_s, [sys.executable, path, "--out", out / f"{name}.json", "--dist",
                               o.dist, "--budget-s", BUDGET, *words, *sim]

    def matrix(name, more, *words):
        return script(name, 150, "tests/gpu/matrix.py", "--only", "sim_*" if o.sim else PROGRAMS,
                      "--conditions", CONDITIONS + more, "--jobs", 5, "--build", o.build, *words)

    def pair(file, name, *words):
        short = (1, 0.4, "--skip-outputs") if o.sim else (3, 2)
        return name, 200, [
            o.dist / "bin/heddle-bench", "run", f"bench/scenarios/{file}.toml", "--pair", name,
            "--json", out / f"{name}.json", "--logs", out / f"{name}.logs", "--budget-s", BUDGET,
            *words, *sim, "--repetitions", short[0], "--block-s", *short[1:]]

    if step == "sanity":
        return [matrix("timeslice", "" if o.sim else ",stopped"),
                matrix("mps", "", *["--mps"] * (not o.sim))]
    return {"equals": [pair("round", "equals")],
            "stops": [pair("stops", "product", "--policies", "auto@timeslice")],
            "graphs": [pair("gates", "resnet152", "--policies", "auto@mps,auto@timeslice",
                            "--baselines", "mps,timeslice")],
            "threads": [pair("round", "threads_idle"), pair("round", "threads_busy")],
            "ddp": [script("two_gpus", 340, "tests/gpu/two_gpus.py")]}[step]


def told(result):
    """The essential figures of a part, in one line."""
    if "programs" in result:
        whys = [f"{name}: {', '.join(of['verdict']['why'])}"
                for name, of in result["programs"].items() if of["verdict"].get("why")]
        return "; ".join([json.dumps(result["summary"]), *whys])
    if "conditions" in result:
        beside = {name: of["rows"].get("together", {}).get("over_own")
                  for name, of in result["conditions"].items() if name != "neighbour"}
        return f"wrong: {result['wrong']}, ÷ own: {beside}"
    rows = {row: of["jobs"] for row, of in result["figures"].items() if row[:6] != "alone/"}
    return "; ".join(f"{row}: " + ", ".join("{} {} / {}, {}".format(name, *(
        of.get(f"{key}_over_alone", {}).get("value", "–") for key in ("mean", "p99", "per_s")))
        for name, of in jobs.items()) for row, jobs in rows.items())


def run(command, limit_s, log):
    """Its exit status; beyond its limit it is asked to end, and later killed."""
    words = [str(int(limit_s - END_S) if word is BUDGET else word) for word in command]
    return subprocess.run(["timeout", f"--kill-after={END_S}", str(limit_s), *words], cwd=ROOT,
                          stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                          env=os.environ | {"PYTHONUNBUFFERED": "1"}).returncode


def main():
    parser = origin_parser(__doc__)
    add = parser.add_argument
    add("steps", nargs="*", default=["sanity", "equals", "stops", "graphs", "threads"])
    add("--out", type=Path, required=True)
    add("--pack", type=Path)
    add("--build", type=Path, default="/tmp/heddle-round", help="of the programs of matrix.py")
    add("--tools", type=Path, default=ROOT / "build/release/tests/integration",
        help="has graph_campaign")
    add("--budget-s", type=float, default=560, help="of all: what is late has less, or none")
    options = parser.parse_args()
    options.dist, options.out = options.dist.resolve(), options.out.resolve()
    os.environ["HEDDLE_TOOLS"] = str(options.tools.resolve())
    session, worst = Session(options, None), 0
    for step in options.steps:
        (options.out / step).mkdir(parents=True, exist_ok=True)
        for name, limit_s, command in parts(step, options):
            begun, limit_s = time.monotonic(), min(limit_s, session.left_s() - END_S)
            status, figures = "not run", "no time is left"
            if limit_s > LEAST_S:
                with open(options.out / f"{step}.log", "a") as log:
                    status = run(command, limit_s, log)
                try:
                    figures = told(json.loads((options.out / step / f"{name}.json").read_text()))
                except (OSError, ValueError, LookupError, TypeError) as error:
                    figures = f"no result: {type(error).__name__}: {error}"
            worst |= status != 0
            session.say(f"{step}/{name}: {status}, {time.monotonic() - begun:.0f} s; {figures}")
            if options.pack:
                shutil.make_archive(options.pack / "round", "gztar", options.out)
    return worst


if __name__ == "__main__":
    sys.exit(main())
