#!/usr/bin/env python3
"""Of all launches that CUPTI sees at the driver, how many passed heddle's shim? By framework.

Programs of catalog.py run under heddle, all at once, each with a daemon of its own. CUPTI calls
back on each launching entry point of the driver (programs/count_launches.cc): that is what was
launched. What `heddle ps` knows of passed the shim. A graph's launch counts once on both sides.
Launches before the shim has attached are not known: a program that begins at once has some.

    coverage.py --dist dist --out bench/results/coverage.json      then bench/table.py --write
    coverage.py --sim --out /tmp/coverage.json     the simulated GPU has no CUPTI: there the program
                                                   counts its launches itself

Exit status: 0 if all that was launched passed the shim; 1 if not, or if a program that is installed
could not be counted.
"""

import concurrent.futures
import sys
import tempfile
from importlib import metadata
from pathlib import Path

import catalog
import cells
import verdicts
from host import Host, compile_one
from matrix import chosen

from harness.report import write  # noqa: E402  (matrix.py has made it known)
from harness.session import Session, add_origin, origin, origin_parser  # noqa: E402

# Which modules a program's row names the versions of.
MODULES = {"torch": ("torch",), "torch_eager": ("torch", "torchvision"),
           "torch_compile": ("torch", "triton"), "transformers": ("transformers", "torch"),
           "jax": ("jax",), "cupy": ("cupy",), "numba": ("numba",), "cuda_python": ("cuda",)}
PROGRAMS = ("torch_eager,torch_train,torch_graphs,torch_compile,transformers,jax,cupy,numba,"
            "cuda_python")


def versions(name):
    """"torch 2.9.0, triton 3.5.0": of what is installed here."""
    found = metadata.packages_distributions()
    modules = MODULES.get(name) or MODULES.get(name.partition("_")[0], ())
    return ", ".join(f"{module} {metadata.version(found[module][0])}"
                     for module in modules if module in found)


def row(cell, by_cupti=True):
    """What one program's run says; `launched` is missing where nothing was counted. `by_cupti`:
    else the program's own count is taken."""
    if not verdicts.ok(cell):
        return {"outcome": cell["outcome"], "why": cell.get("error") or cell.get("reason", "")}
    known = verdicts.managed(cell)
    counted = cell.get("counted") if by_cupti else {"kernels": cell["launches"], "graphs": 0}
    if not known or not counted:
        return {"outcome": "not counted", "why": cell.get("shim", {}).get("error", "")}
    ungated = {}
    for client in cell["shim"]["counters"]:
        for why, count in client["self"].items():
            ungated[why] = ungated.get(why, 0) + count
    return {"outcome": "ok", **counted, "launched": sum(counted.values()),
            "passed": known["launches"],
            "ungated": {why: count for why, count in ungated.items() if count}}


def whole(found):
    return found["outcome"] == "ok" and found["passed"] == found["launched"]


class Coverage(Session):
    def __init__(self, options):
        super().__init__(options, origin(options, "coverage") | {"programs": {}, "errors": []})

    def run(self, programs):
        with tempfile.TemporaryDirectory(prefix="hc-", ignore_cleanup_errors=True) as folder:
            host = Host(self.options, Path(folder))
            if not self.options.sim:
                host.binaries.mkdir()
                if problem := compile_one(host.counter_command()):
                    self.fail(problem)
                    return
            with concurrent.futures.ThreadPoolExecutor(len(programs)) as pool:
                runs = [pool.submit(self.run_one, program, host) for program in programs]
                for program, run in zip(programs, runs):
                    self.result["programs"][program.name] = run.result()
                    write(self.result, self.options.out)

    def run_one(self, program, host):
        condition = catalog.Condition("coverage", "present", counted=not self.options.sim)
        cell = cells.Cell(program, condition, host.folder / program.name, host,
                          min(program.timeout_s, self.options.timeout_s)).run()
        found = {"about": program.about, "versions": versions(program.name),
                 **row(cell, condition.counted)}
        self.say(f"{program.name}: {found.get('passed', '-')} of {found.get('launched', '-')} "
                 f"launches passed the shim ({found['outcome']}) {found.get('why', '')[-300:]}")
        return found


def parse(arguments):
    parser = origin_parser(__doc__, "coverage.json")
    add = parser.add_argument
    add("--only", help="names or patterns of programs, comma-separated")
    add("--timeout-s", type=float, default=60, help="of each program; they run side by side")
    add("--policy", default="gapfill", help="a shipped policy")
    parser.set_defaults(mps=False, build=None)
    options = parser.parse_args(arguments)
    add_origin(options, "tests/gpu/coverage.py", arguments)
    pool, default = (catalog.MOCKS, "sim_*") if options.sim else (catalog.CATALOG, PROGRAMS)
    try:
        return options, chosen(pool, options.only or default)
    except ValueError as error:
        parser.error(str(error))


def main():
    options, programs = parse(sys.argv[1:])
    coverage = Coverage(options)
    coverage.run(programs)
    write(coverage.result, options.out)  # also where nothing ran
    ran = [found for found in coverage.result["programs"].values() if found["outcome"] != "skipped"]
    return 0 if ran and all(whole(found) for found in ran) else 1


if __name__ == "__main__":
    sys.exit(main())
