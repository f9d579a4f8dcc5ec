#!/usr/bin/env python3
"""Do programs that nobody wrote for heddle run alike under it? The framework matrix.

Each program of catalog.py runs bare twice (the control) and then under `heddle run`: alone, gated
beside a busy latency-critical program, without a daemon, and with the daemon killed (-9) half-way
and restarted 0.3 s later. Outputs are digests; launching API calls are counted at the real driver
by programs/count_launches.cc in runs of their own: bare, alone, without a daemon, and with one that
is killed.

    matrix.py --dist dist --out bench/results/matrix.json
    matrix.py --dist dist --only 'graph*,torch_compile' --conditions bare,bare_again,gated
    matrix.py --dist dist --resume bench/results/matrix.json --out bench/results/matrix.json
    matrix.py --sim --out /tmp/matrix.json            mocks and the simulated GPU: the logic alone

CUDA C++ programs are built first, all at once (nvcc -arch=sm_90). Nothing is fatal: what breaks is
recorded with the end of its log, and the file is written after every cell.

Exit status: 0 all alike or skipped; 3 cells are left for --resume; 1 anything else.
"""

import concurrent.futures
import fnmatch
import json
import signal
import sys
import tempfile
import threading
from pathlib import Path

import catalog
import cells
import verdicts
from host import Host

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from harness import report  # noqa: E402
from harness.session import Session, add_origin, origin, origin_parser  # noqa: E402

CELL_MIN_S = 10  # no further cell is begun with less time left


class Matrix(Session):
    def __init__(self, options, programs, conditions):
        super().__init__(options, origin(options, "framework-matrix") | {
            "gpus": options.gpu[2], "sharing": "mps" if options.mps else "time-sliced",
            "policy": options.policy, "programs": {}, "errors": []})
        self.programs, self.conditions = programs, conditions
        self.lock = threading.Lock()
        if options.resume and options.resume.exists():
            self.result["programs"] = json.loads(options.resume.read_text())["programs"]

    def hurry(self):
        """Begins no further cell; what runs still ends and is saved."""
        self.options.budget_s = 0

    def run(self):
        with tempfile.TemporaryDirectory(prefix="hm-", ignore_cleanup_errors=True) as folder:
            host = Host(self.options, Path(folder))
            if not self.options.sim:
                host.build(self.programs, self.options.arch)
                self.say(f"built; {len(host.problems)} problems")
                self.result["errors"] += [f"{n}: {p}" for n, p in host.problems.items()]
            host.server.start()
            try:
                self.run_all(host)
            finally:
                host.server.stop()
                if self.options.logs:
                    report.keep_logs(host.folder, self.options.logs)
        self.save()

    def run_all(self, host):
        todo = [p for p in self.programs if not self.complete(p)]
        with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool:
            shared = [p for p in todo if not p.exclusive]
            for done in [pool.submit(self.run_program, p, host) for p in shared]:
                done.result()
        for program in todo:
            if program.exclusive:
                self.run_program(program, host)

    def complete(self, program):
        known = self.result["programs"].get(program.name)
        return known is not None and known["verdict"]["result"] in ("alike", "skipped")

    def run_program(self, program, host):
        rows = []
        problem = cells.missing(program) or host.problems.get(program.binary)
        if problem:
            outcome = "skipped" if problem.startswith("not installed") else "failed"
            rows.append({"program": program.name, "condition": "bare", "outcome": outcome,
                         "reason": problem, "error": problem})
        for condition in [] if problem else self.conditions:
            if condition.counted and not (program.counted and host.can_count()):
                continue
            rows.append(self.run_cell(program, condition, host))
            self.keep(program, rows)
            if condition.name == "bare" and rows[-1]["outcome"] != "ok":
                break
        count = verdicts.launches(verdicts.by_condition(rows))
        if count and count["equal"] is False and count["by"] == "CUPTI callbacks":
            again = catalog.Condition("count_bare_again", counted=True)
            rows.append(self.run_cell(program, again, host))
        self.keep(program, rows)

    def run_cell(self, program, condition, host):
        if self.left_s() < CELL_MIN_S:
            return {"program": program.name, "condition": condition.name, "outcome": "not run"}
        limited = min(program.timeout_s, self.left_s() - CELL_MIN_S / 2)
        folder = host.folder / f"{program.name}.{condition.name}"
        row = cells.Cell(program, condition, folder, host, limited).run()
        if row["outcome"] == "hung" and limited < program.timeout_s:
            row |= {"outcome": "not run", "error": "the budget ended"}
        self.say(f"{program.name} {condition.name}: {row['outcome']} {row['wall_s']} s")
        return row

    def keep(self, program, rows):
        with self.lock:
            self.result["programs"][program.name] = {
                "about": program.about, "cells": rows,
                "verdict": verdicts.judge(rows, program.attaches, program.processes,
                                          program.counted)}
            report.write(self.result, self.options.out)

    def save(self):
        found = [p["verdict"]["result"] for p in self.result["programs"].values()]
        self.result["summary"] = {word: found.count(word) for word in sorted(set(found))}
        report.write(self.result, self.options.out)


def chosen(pool, patterns):
    """In the order of the pool; each pattern must name one at least."""
    names = [item.name for item in pool]
    for pattern in patterns.split(","):
        if not fnmatch.filter(names, pattern):
            raise ValueError(f"{pattern} names none of: {', '.join(names)}")
    return [item for item in pool
            if any(fnmatch.fnmatch(item.name, pattern) for pattern in patterns.split(","))]


def parse(arguments):
    parser = origin_parser(__doc__, "matrix.json")
    add = parser.add_argument
    add("--only", default="*", help="names or patterns of programs, comma-separated")
    add("--conditions", default="", help="names or patterns of conditions, comma-separated")
    add("--jobs", type=int, default=4, help="programs that run at the same time")
    add("--budget-s", type=float, default=540)
    add("--resume", type=Path, help="a result: what is alike or skipped there is not run again")
    add("--build", type=Path, help="folder for built programs, kept (default: a fresh one)")
    add("--arch", default="sm_90")
    add("--policy", default="gapfill", help="a shipped policy")
    add("--mps", action="store_true", help="under an MPS server of our own")
    add("--logs", type=Path, help="folder for all logs")
    options = parser.parse_args(arguments)
    add_origin(options, "tests/gpu/matrix.py", arguments)
    try:
        conditions = (chosen(catalog.CONDITIONS, options.conditions) if options.conditions
                      else [c for c in catalog.CONDITIONS if c.default])
        programs = chosen(catalog.MOCKS if options.sim else catalog.CATALOG, options.only)
    except ValueError as error:
        parser.error(str(error))
    return options, programs, conditions


def text(result):
    lines = []
    for name, program in result["programs"].items():
        verdict = program["verdict"]
        lines.append(f"  {name:20s} {verdict['result']:10s} "
                     + "; ".join(verdict.get("why", []) + verdict.get("notes", [])))
    return "\n".join(lines + [json.dumps(result["summary"])])


def main():
    options, programs, conditions = parse(sys.argv[1:])
    matrix = Matrix(options, programs, conditions)
    signal.signal(signal.SIGTERM, lambda *_: matrix.hurry())
    matrix.run()
    print(text(matrix.result))
    left = matrix.result["summary"].keys() - {"alike", "skipped"}
    return 0 if not left else 3 if left == {"not run"} else 1


if __name__ == "__main__":
    sys.exit(main())
