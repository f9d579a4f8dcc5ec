#!/usr/bin/env python3
"""A training job on two GPUs, as best effort, and a service at half load on one of them: bare, and
under `auto`, time-sliced and under MPS. Does the job compute the same, does nothing hang, and do
stops reach the right GPU? And what do stops on one GPU cost a program on the other, unmanaged?

    two_gpus.py --dist dist --out bench/results/two_gpus.json       five minutes on two GPUs
    two_gpus.py --sim --out /tmp/two_gpus.json                      two simulated ones: the logic

Exit status 1, and "wrong" says why: a row failed or hung, losses differ from the bare ones, or what
heddled counted, stops above all, is at another GPU than the programs. Times are told and not
judged: "bars" says what is wanted of over_bare and over_own. The file is written after each row;
a folder beside it has the logs.
"""

import json
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

from ranks import RANKS, ROOT, Condition
from stops import NVCC

from harness import report, session  # (ranks.py knows where it is)

BUILD_S, SPARE_S = 90, 10
TOGETHER_S, ROW_S = 60, 45  # at most; what must be left of the budget for a condition to begin
BARS = {"h_mean": 1.10, "h_p99": 1.10, "job": 0.35}


def gpu_ids(options):
    """UUIDs, in the order of the bus."""
    if options.sim:
        ids = [uuid.UUID(bytes=f"heddle-sim-gpu-{i}".encode()) for i in range(RANKS)]
        return [f"GPU-{one}" for one in ids]
    query = ["nvidia-smi", "--query-gpu=pci.bus_id,uuid", "--format=csv,noheader"]
    done = subprocess.run(query, text=True, capture_output=True, check=True, timeout=60)
    return [line.split(", ")[1] for line in sorted(done.stdout.splitlines())]


def ratios(row, alone):
    """Of a service and a job, over what they have alone."""
    h, job, of_h, of_job = (of.get(key, {}) for of in (row, alone) for key in ("H", "job"))
    pairs = (("h_mean", h.get("mean_us"), of_h.get("mean_us")),
             ("h_p99", h.get("p99_us"), of_h.get("p99_us")),
             ("job", job.get("per_s"), of_job.get("per_s")))
    return {key: round(x / base, 3) for key, x, base in pairs if x and base}


def misled(row, service, least):
    """What of heddled's counts is at another GPU than it should be, or missing."""
    found = row["heddle"]
    if not found:
        return ["heddled told nothing"]
    stops = {gpu: of["all"].get("stops", 0) for gpu, of in found.items()}
    wrong = [f"{n} stops on {gpu}" for gpu, n in stops.items() if n and gpu != service]
    wrong += [f"no stops on {service}"] * (stops.get(service, 0) < least)
    # (H of the neighbour's part may have ended.)
    with_both, with_other = (["job", "service"], ["job"]) if "job" in row else (["L"], [])
    for gpu, of in found.items():
        labels = sorted({c["label"] for c in of["clients"] if c.get("launches")} - {"H"})
        wrong += [f"on {gpu} are {labels}"] * (
            labels != (with_both if gpu == service else with_other))
    return wrong


def judge(name, condition, result):
    """Adds to a condition its figures over those alone, bare and its own; what is wrong."""
    bare = result["conditions"].get("bare", {}).get("rows", {})
    rows = condition.get("rows", {})
    service = result["gpus"][0 if name == "neighbour" else result["gpu_of_service"]]
    wrong = [f"{name}: {condition[key]}" for key in ("failed", "skipped") if key in condition]
    for title, row in rows.items():
        wrong += [f"{name}, {title}: {text}" for text in row.get("failed", [])]
        at = row.get("job", {}).get("first_wrong")
        wrong += [f"{name}, {title}: loss {at} differs"] if at is not None else []
        # The simulated job's kernels are long for sure, and the host so slow that a hook may be.
        least = result["mode"] == "simulated" and name == "auto"
        found = misled(row, service, least) if "heddle" in row else []
        if row.get("policy", {}).get("faulted") and result["mode"] == "real":
            found.append(f"by the built-in: {row['policy']['faulted']}")
        wrong += [f"{name}, {title}: {text}" for text in found]
        for key, alone in (("over_bare", bare), ("over_own", rows)) if "job" in row else ():
            row[key] = ratios(row, alone.get("service alone", {}) | alone.get("job alone", {}))
    return wrong


def measure(condition, run, rows, save):
    """Fills `rows`; those before one that fails are kept."""
    options = condition.options
    steps = options.steps if not condition.managed else options.steps // 3
    parts = {"service alone": condition.service_alone,
             "job alone": lambda: condition.job_alone(steps)}
    if not condition.managed:
        parts["job again"] = parts["job alone"]
    parts["together"] = lambda: condition.together(min(TOGETHER_S, run.left_s() - SPARE_S))
    condition.start_all()
    for title, part in parts.items():
        rows[title] = part()
        said = {key: rows[title][key] for key in ("H", "job") if key in rows[title]}
        save(f"{title}: {json.dumps(said)}")


def neighbours(options, folder, rows, save):
    """Bare alone, bare beside, beside one that heddle stops."""
    for title, managed, beside in (("alone", False, False), ("bare", False, True),
                                   ("heddle", True, True)):
        condition = Condition(options, folder / title, managed)
        with condition.running():
            rows[title] = condition.neighbour(beside)
        save(f"neighbour {title}: {json.dumps(rows[title]['A'])}")


def parse(arguments):
    parser = session.origin_parser(__doc__, "two_gpus.json")
    add = parser.add_argument
    add("--policy", default="auto")
    add("--budget-s", type=float, default=300)
    add("--steps", type=int, help="300; 60 simulated")
    add("--window-s", type=float, help="of the service's figures: 4; 1 simulated")
    add("--job", nargs=2, default=["resnet50", "48"], metavar=("MODEL", "BATCH"))
    add("--service", nargs=2, default=["bert-large", "1"], metavar=("MODEL", "BATCH"))
    add("--gpu-of-service", type=int, choices=range(RANKS), default=0)
    add("--only", nargs="*", default=["bare", "auto", "auto mps", "neighbour"])
    add("--binary", type=Path, help="a built standing.cu")
    options = parser.parse_args(arguments)
    options.steps = options.steps or (60 if options.sim else 300)
    options.window_s = options.window_s or (1 if options.sim else 4)
    if options.sim:  # it does not run standing.cu
        options.only = [name for name in options.only if name != "neighbour"]
    options.rate, options.losses = None, None
    return session.add_origin(options, "tests/gpu/two_gpus.py", arguments)


def start_build(options, folder):
    """Of standing.cu, while others are measured. None: it is there, is not wanted, or cannot be."""
    if options.binary or "neighbour" not in options.only:
        return None
    options.binary = folder / "standing"
    command = [NVCC, "-O2", "-std=c++17", "-arch=native", ROOT / "tests/gpu/standing.cu", "-o",
               options.binary]
    try:
        return subprocess.Popen(command)
    except OSError:
        return None


def run_one(name, run, folder, condition, save, build):
    options, managed = run.options, name != "bare"
    if name == "neighbour":
        folder.mkdir()
        if build:
            build.wait(BUILD_S)
        return neighbours(options, folder, condition["rows"], save)
    made = Condition(options, folder, managed, name.endswith("mps"))
    with made.running():
        measure(made, run, condition["rows"], save)


def run_all(run, folder, build):
    """Each condition by itself; after each row the file has all that is known."""
    options, result = run.options, run.result
    for name in options.only:
        condition = result["conditions"][name] = {"rows": {}}
        where = folder / name.replace(" ", "-")

        def save(text):
            result["wrong"] = [text for of, each in result["conditions"].items()
                               for text in judge(of, each, result)]
            report.write(result, options.out)
            run.say(text)

        try:
            if run.left_s() < ROW_S:
                condition["skipped"] = "too little time was left"
            else:
                run_one(name, run, where, condition, save, build)
        except Exception as error:  # the others are measured all the same
            condition["failed"] = f"{type(error).__name__}: {error}"
        report.keep_logs(where, options.out.with_suffix(".logs"))
        save(f"{name}: done")


def main():
    options = parse(sys.argv[1:])
    result = session.origin(options, "two_gpus") | {
        "bars": BARS, "gpus": gpu_ids(options), "gpu_of_service": options.gpu_of_service,
        "conditions": {}}
    if len(result["gpus"]) < RANKS:
        print(f"needs {RANKS} GPUs")
        return 77
    run = session.Session(options, result)
    with tempfile.TemporaryDirectory(prefix="h2-", ignore_cleanup_errors=True) as made:
        build = start_build(options, Path(made))
        run_all(run, Path(made), build)
        if build:
            build.kill()
            build.wait(10)
    for text in result["wrong"]:
        run.say(text)
    return 1 if result["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
