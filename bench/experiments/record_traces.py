#!/usr/bin/env python3
"""Records what is shipped in profiles/traces: programs one after the other, each alone on the GPU,
once the daemon has measured its kernels. The recording begins with what was measured of them.

    record_traces.py --dist dist --out FOLDER --only resnet50-bs1,resnet50-bs32    about a minute
    record_traces.py --dist dist --out FOLDER                                      all, in turn
    record_traces.py --list

All of a call load side by side. FOLDER gets NAME.trace, some iterations (or tokens) of each, and
traces.json: how long an iteration took there and how long it takes when virtual time plays the
trace. What breaks or takes too long is named under `errors` there, and the rest goes on; the exit
status is 1 then. Without an NVIDIA GPU a synthetic program on the simulated one stands for each.
"""

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BENCH = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(BENCH))
from harness.processes import Daemon, HostError, Job, NoMps  # noqa: E402
from harness.session import Session, add_origin, origin, origin_parser  # noqa: E402


def model(name, batch, *options):
    return ["jobs.py", name, str(batch), *options]


def llama(*options):
    return ["llm.py", "--tokens", "8", *options]


PROGRAMS = {
    # In profiles/traces already, of an older heddle.
    "alexnet-bs64": model("alexnet", 64),
    "vgg16-bs64": model("vgg16", 64),
    "resnet101-bs1": model("resnet101", 1),
    "resnet101-bs64": model("resnet101", 64),
    "deeplabv3_resnet50-bs1": model("deeplabv3_resnet50", 1),
    "fcn_resnet50-bs8": model("fcn_resnet50", 8),
    "keypointrcnn_resnet50_fpn-bs1": model("keypointrcnn_resnet50_fpn", 1),
    "maskrcnn_resnet50_fpn-bs1": model("maskrcnn_resnet50_fpn", 1),
    # FIKIT's further models, and what else the scenarios run.
    "resnet50-bs1": model("resnet50", 1),
    "resnet50-bs32": model("resnet50", 32),
    "resnet50-bs1-graph": model("resnet50", 1, "--graph", "true"),
    "resnet50-bs32-graph": model("resnet50", 32, "--graph", "true"),
    "resnet50-bs32-training": model("resnet50", 32, "--mode", "training"),
    "deeplabv3_resnet101-bs4": model("deeplabv3_resnet101", 4),
    "deeplabv3_resnet101-bs8": model("deeplabv3_resnet101", 8),
    "fasterrcnn_resnet50_fpn-bs1": model("fasterrcnn_resnet50_fpn", 1),
    "fcos_resnet50_fpn-bs1": model("fcos_resnet50_fpn", 1),
    "fcn_resnet101-bs1": model("fcn_resnet101", 1),
    "googlenet-bs1": model("googlenet", 1),
    # KRISP's.
    "albert-bs32": model("albert", 32),
    "densenet201-bs32": model("densenet201", 32),
    "resnet152-bs32": model("resnet152", 32),
    "resnext101_32x8d-bs32": model("resnext101_32x8d", 32),
    "shufflenet_v2_x1_0-bs32": model("shufflenet_v2_x1_0", 32),
    "squeezenet1_1-bs32": model("squeezenet1_1", 32),
    "vgg19-bs32": model("vgg19", 32),
    # Behind 1000 tokens, batch 1, and behind 4000, batch 8, as in bench/scenarios.
    "llama-3.1-8b-decode-bs1": llama(),
    "llama-3.1-8b-decode-bs8": llama("--batch", "8", "--context", "4000"),
    "llama-3.1-8b-decode-bs8-graph": llama("--batch", "8", "--context", "4000", "--graph", "true"),
    "llama-3.1-8b-prefill-bs1": llama("--mode", "prefill"),
}
SIMULATED = ["--kernels", "20", "--kernel-us", "800:0.5", "--gap-us", "50:0.3"]

EACH_S = 7      # of a program that is loaded
RUN_S = 6       # of iterations: the measurement stage, and the recording
STAGE_S = 3     # at most of them until the daemon calls the program profiled
RECORD_S = 0.6  # recorded, of which is kept ...
LEAST_S = 0.05  # ... at least this much, and
ITERATIONS = 3.2  # so many: two whole ones wherever it begins
PLAY = """
repetitions = 1
block_s = 0.5
policies = []
baselines = ["mps"]
[[job]]
name = "alone"
role = "latency"
command = ["none"]
[job.sim]
trace = "{}"
"""


class Recordings(Session):
    def __init__(self, options):
        super().__init__(options, origin(options, "traces") | {"traces": [], "errors": []})
        self.heddle = options.dist / "bin/heddle"

    def run(self):
        self.options.out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="heddle-traces-") as folder:
            self.folder, jobs = Path(folder), {}
            env = NoMps(self.folder).env | {"HEDDLE_SOCKET": str(self.folder / "heddle.sock"),
                                            "HEDDLE_SIM_SOCKET": str(self.folder / "gpu")}
            self.daemon = Daemon(self.options.dist, self.folder / "daemon", False, env, [])
            self.daemon.folder.mkdir()
            self.daemon.socket = self.folder / "heddle.sock"
            try:
                self.daemon.start()
                for name in self.options.only:
                    jobs[name] = Job(name, "anywhere", self.command(name), env,
                                     self.folder / f"{name}.log")
                for name, job in jobs.items():
                    self.surviving(name, job, self.await_loaded)
                self.say("loaded")
                for name, job in jobs.items():
                    if not job.broken:
                        self.surviving(name, job, self.record)
            finally:
                for job in jobs.values():
                    job.stop()
                self.daemon.stop()
        done = json.dumps(self.result, indent=1)
        (self.options.out / "traces.json").write_text(done + "\n")

    def surviving(self, name, job, body):
        try:
            body(name, job)
        except (HostError, OSError, subprocess.SubprocessError, LookupError) as error:
            job.give_up()  # whatever it is at, the next one must be alone
            self.fail(f"{name}: {error}")

    def await_loaded(self, _name, job):
        job.wait_ready(max(1, self.left_s() - len(self.options.only) * EACH_S))

    def command(self, name):
        run = self.daemon.prefix("hp", name)
        if self.options.sim:
            run.insert(2, "--sim")
            return run + [self.options.dist / "libexec/heddle/heddle-synthetic", *SIMULATED]
        script, *words = PROGRAMS[name]
        return run + [sys.executable, BENCH / "workloads" / script, *words]

    def client(self, name):
        clients = json.loads(self.daemon.command("ps", "--json"))["clients"]
        return next(client for client in clients if client["label"] == name)

    def record(self, name, job):
        if self.left_s() < EACH_S:
            raise HostError("not recorded, time is spent")
        job.send("go", f"{time.monotonic():.6f}", RUN_S, 0, 0)
        deadline = time.monotonic() + STAGE_S
        while not self.client(name)["devices"][0]["profiled"]:
            if time.monotonic() > deadline:
                self.say(f"{name}: not profiled after {STAGE_S} s, recorded all the same")
                break
            time.sleep(0.05)
        whole, trace = self.folder / "whole.trace", self.options.out / f"{name}.trace"
        self.daemon.command("record", str(whole), "--seconds", str(RECORD_S))
        if job.lines.qsize():
            raise HostError(f"its {RUN_S} s were over before the recording")
        answer = job.answer()
        unit_us = statistics.median(answer.get("tbt_us", answer["us"]))
        seconds = max(LEAST_S, ITERATIONS * unit_us / 1e6)
        for keep_s in (seconds, 2 * seconds, RECORD_S):
            self.daemon.command("trace", "cut", str(whole), str(trace), "--seconds", str(keep_s),
                                "--client", str(self.client(name)["id"]))
            played_ms, problem = self.play(trace, answer)
            if not problem:
                break
        else:
            trace.unlink()
            raise HostError(problem)
        shown = json.loads(self.daemon.command("trace", "show", str(trace), "--json"))
        found = {"name": name, "bytes": trace.stat().st_size, "seconds": shown["seconds"],
                 "launches": shown["clients"][0]["launches"], "lost": shown["lost"],
                 "real_ms": statistics.median(answer["us"]) / 1e3, "played_ms": played_ms}
        self.result["traces"].append(found)
        self.say("{name}: {launches} launches, {lost} lost, {bytes} bytes; an iteration took "
                 "{real_ms:.3f} ms, and in virtual time {played_ms:.3f}".format(**found))

    def play(self, trace, answer):
        """The mean of an iteration in virtual time, or what is missing for one."""
        scenario, result = self.folder / "play.toml", self.folder / "play.json"
        tokens = len(answer.get("tbt_us", [])) // len(answer["us"])
        scenario.write_text(PLAY.format(trace.resolve()) + f"tokens = {tokens}\n" * (tokens > 0))
        done = subprocess.run(
            [self.options.dist / "bin/heddle-bench", "virtual", scenario, "--json", result],
            text=True, capture_output=True, timeout=60)
        if done.returncode != 0:
            return None, done.stderr.strip()
        figures = json.loads(result.read_text())["figures"]
        return figures["mps"]["jobs"]["alone"]["jct_ms"]["mean"]["value"], None


def main(arguments):
    parser = origin_parser(__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", default=list(PROGRAMS), type=lambda text: text.split(","))
    parser.add_argument("--list", action="store_true", help="the programs, and start nothing")
    parser.add_argument("--budget-s", type=float, default=540, help="at most (%(default)s)")
    options = parser.parse_args(arguments)
    for name in options.only:
        if name not in PROGRAMS:
            parser.error(f"--only: no program {name}; there are: {', '.join(PROGRAMS)}")
    if options.list:
        print(*PROGRAMS, sep="\n")
        return 0
    if options.out is None:
        parser.error("--out: a folder for the traces")
    options.sim = options.sim or shutil.which("nvidia-smi") is None
    session = Recordings(add_origin(options, "record_traces.py", arguments))
    session.run()
    return 1 if session.result["errors"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
