"""The quick start's measurements: see examples/quickstart.sh. Python's standard library alone."""

import argparse
import json
import shutil
import statistics
import sys
import time

import report
import stage

MODES = (("mps", "MPS-like"), ("timeslice", "time-sliced"))
POLICIES = ("priority", "gapfill", "auto")
LONG_KERNEL_MS = 30
SETTLE_S = 0.4  # after a policy came into force, or both programs began: not counted
NAMES = {"alone": "alone", "default": "shared, no heddle", "priority": "heddle, priority.lua",
         "gapfill": "heddle, gapfill.lua", "auto": "heddle, auto.lua"}

HURT_MIN = 2.0           # default sharing: at least so much worse than alone
SLOWDOWN_MAX = 1.15      # gapfill: at most so much worse than alone
BATCH_OF_IDLE_MIN = 0.5  # gapfill: best effort's part of the time that the other leaves


def figures(results, kernels, begin_ns, end_ns):
    """hp_ms_mean, hp_ms_p99, be_per_s of what happened between two times."""
    found = {}
    if "latency" in results:
        # Until the GPU's own clock says that the last kernel ended: how late a busy host then wakes
        # the program would hide what sharing costs, for it is added to every row.
        begun = results["latency"]["begun_ns"]
        each = len(kernels["latency"]) // len(begun)
        ended = [kernel["end_ns"] for kernel in kernels["latency"][each - 1::each]]
        times = sorted((end - begin) / 1e6 for begin, end in zip(begun, ended)
                       if begin_ns <= begin and end <= end_ns)
        if not times:
            raise stage.StageError("the latency-critical program finished nothing")
        found["hp_ms_mean"] = statistics.fmean(times)
        found["hp_ms_p99"] = times[min(len(times) - 1, int(0.99 * len(times)))]
    if "batch" in results:
        done = sum(1 for kernel in kernels["batch"] if begin_ns <= kernel["end_ns"] <= end_ns)
        found["be_per_s"] = done / ((end_ns - begin_ns) / 1e9)
    return {key: round(value, 4) for key, value in found.items()}


class Session:
    """All runs of one mode and one pair of programs."""

    def __init__(self, folder, mode, options, kernel_ms=None):
        self.stage = stage.Stage(folder, mode)
        self.seed, self.seconds = options.seed, options.seconds
        self.batch_arguments = ["--kernel-ms", kernel_ms] if kernel_ms else []
        self.device = ""
        self.pictures = []

    def run(self, name, roles, managed=False, phases=(None,)):
        """Runs the programs together for as many phases; one dict of figures per phase. The policy
        of a phase is put in force by saving its file."""
        self.stage.next_gpu(name)
        begin = time.monotonic_ns() + 600_000_000
        phase_ns = int(self.seconds * 1e9)
        demos = {role: self.stage.start_demo(
            role, name, self.seed, self.seconds * len(phases), begin, managed,
            self.batch_arguments if role == "batch" else ()) for role in roles}
        windows = []
        for number, policy in enumerate(phases):
            start = begin + number * phase_ns
            time.sleep(max(0, start - time.monotonic_ns()) / 1e9)
            if number > 0:
                self.stage.switch_policy(policy)
            live = max(start, time.monotonic_ns() if number else start)
            windows.append((live + int(SETTLE_S * 1e9), begin + (number + 1) * phase_ns))
        results = {role: demo.finish() for role, demo in demos.items()}
        kernels = self.stage.check_answers(results)
        self.device = results[roles[0]]["device"]
        for policy, (first, _) in zip(phases, windows):
            self.pictures.append((policy or name, report.timeline(kernels, first)))
        return [figures(results, kernels, *window) for window in windows], kernels

    def measure(self):
        """alone, default, each policy; and the idle fraction of the latency program."""
        (hp,), kernels = self.run("latency-alone", ["latency"])
        (batch,), _ = self.run("batch-alone", ["batch"])
        both = ["latency", "batch"]
        (default,), _ = self.run("default", both)
        self.stage.start_daemon(POLICIES[0])
        shared, _ = self.run("heddle", both, managed=True, phases=POLICIES)
        self.stage.stop_daemon()
        found = {"alone": hp | batch, "default": default} | dict(zip(POLICIES, shared))
        return found, idle_fraction(kernels["latency"])

    def close(self):
        self.stage.close()


def measured(*about):
    """The session, and what it measured."""
    session = Session(*about)
    try:
        return session, *session.measure()
    finally:
        session.close()


def idle_fraction(kernels):
    busy = sum(kernel["end_ns"] - kernel["start_ns"] for kernel in kernels)
    wall = max(k["end_ns"] for k in kernels) - min(k["start_ns"] for k in kernels)
    return round(1 - busy / wall, 4)


def verdicts(found, idle, where):
    """Why the quick start fails, if it does."""
    alone, default, gapfill = found["alone"], found["default"], found["gapfill"]
    hurt = default["hp_ms_mean"] / alone["hp_ms_mean"]
    slowdown = gapfill["hp_ms_mean"] / alone["hp_ms_mean"]
    wanted = BATCH_OF_IDLE_MIN * idle * alone["be_per_s"]
    if hurt < HURT_MIN:
        yield f"{where}: default sharing costs {hurt:.2f}x, expected at least {HURT_MIN}x"
    if slowdown > SLOWDOWN_MAX:
        yield f"{where}: under gapfill {slowdown:.2f}x of alone, at most {SLOWDOWN_MAX}x"
    if gapfill["be_per_s"] < wanted:
        yield f"{where}: best effort got {gapfill['be_per_s']:.0f}/s, at least {wanted:.0f}/s"


def rows_of(result):
    """The table, as cells: used for the terminal, the report and the README."""
    rows = []
    sections = [(title, result if mode == "mps" else result[mode]) for mode, title in MODES]
    sections.append((f"time-sliced, best-effort kernels of {LONG_KERNEL_MS} ms: heddle stops them",
                     result["long_kernels"]))
    for title, found in sections:
        rows.append((True, [title, "H mean", "H p99", "H / alone", "L per s"]))
        for key, name in NAMES.items():
            f = found[key]
            rows.append((False, [name, f"{f['hp_ms_mean']:.2f} ms", f"{f['hp_ms_p99']:.2f} ms",
                                 f"{f['hp_ms_mean'] / found['alone']['hp_ms_mean']:.2f}x",
                                 f"{f['be_per_s']:.0f}"]))
    return rows


def table(result):
    lines = [f"{result['device']}, seed {result['seed']}; H latency-critical, L best effort; "
             "every figure is simulated"]
    for heading, cells in rows_of(result):
        if heading and len(cells[0]) > 24:
            lines += ["", cells[0]]
            cells = [""] + cells[1:]
        elif heading:
            lines.append("")
        lines.append(f"{cells[0]:24s}" + "".join(f"{cell:>12s}" for cell in cells[1:]))
    return "\n".join(line.rstrip() for line in lines)


def one_seed(options, folder):
    """Measures, prints, writes; returns the reasons for failure."""
    shutil.rmtree(folder, ignore_errors=True)
    result = {"device": "", "seed": options.seed}
    reasons, pictures = [], []
    for mode, title in MODES:
        print(f"quickstart: {title} sharing ...", file=sys.stderr)
        session, found, idle = measured(folder / mode, mode, options)
        if any(verdicts(found, idle, title)):
            print(f"quickstart: {title} sharing again, in case something else ran ...",
                  file=sys.stderr)
            session, found, idle = measured(folder / f"{mode}-again", mode, options)
        result["device"] = session.device
        if mode == "mps":
            result |= {"hp_idle_fraction": idle} | found
        else:
            result[mode] = {"hp_idle_fraction": idle} | found
        reasons += verdicts(found, idle, title)
        pictures += [(f"{title}: {NAMES.get(name, name)}", svg) for name, svg in session.pictures]
    print("quickstart: best-effort kernels longer than any gap ...", file=sys.stderr)
    session, result["long_kernels"], _ = measured(folder / "long", "timeslice", options,
                                                  LONG_KERNEL_MS)
    pictures += [(f"best-effort kernels of {LONG_KERNEL_MS} ms: {NAMES.get(name, name)}", svg)
                 for name, svg in session.pictures]
    (folder / "result.json").write_text(json.dumps(result, indent=2) + "\n")
    (folder / "report.html").write_text(report.page(result, rows_of(result), pictures))
    print(table(result))
    return reasons


def main():
    parser = argparse.ArgumentParser(prog="examples/quickstart.sh")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=4, help="per measurement (4)")
    parser.add_argument("--five-seeds", action="store_true", help="five seeds in turn from --seed")
    options = parser.parse_args()
    out = stage.ROOT / "out/quickstart"
    if shutil.which("nvidia-smi"):
        print("quickstart: an NVIDIA driver is here; this demonstration uses the simulated GPU all "
              "the same (real programs: heddle-bench run)", file=sys.stderr)
    failed = []
    seeds = range(options.seed, options.seed + (5 if options.five_seeds else 1))
    for options.seed in seeds:
        folder = out / f"seed-{options.seed}" if options.five_seeds else out
        try:
            reasons = one_seed(options, folder)
        except stage.StageError as error:
            reasons = [str(error)]
        failed += [f"seed {options.seed}: {reason}" for reason in reasons]
        print()
    print("out/quickstart/seed-*/" if options.five_seeds else "out/quickstart/report.html")
    for reason in failed:
        print(f"FAILED {reason}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
