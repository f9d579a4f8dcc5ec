#!/usr/bin/env python3
"""How well heddle predicts programs from their first launch on: each is recorded alone, through its
measurement stage and beyond, and `heddle trace predict` scores the recording.

    predict_stage.py --dist dist --mps --out bench/results/predict-stage.json    minutes, on a GPU
    predict_stage.py --dist dist --sim --out /tmp/predict-stage.json    two programs, without one

--traces FOLDER keeps the recordings (a few MB each). What takes too long, or breaks, is named under
`errors`, and the rest goes on; the exit status is 1 then.
"""

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BENCH = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(BENCH))
from harness.processes import Daemon, HostError, Job, Mps, NoMps  # noqa: E402
from harness.session import Session, add_origin, origin  # noqa: E402

MODELS = (("alexnet", 64), ("vgg16", 64), ("resnet101", 1), ("resnet101", 64),
          ("deeplabv3_resnet50", 1), ("fcn_resnet50", 8), ("keypointrcnn_resnet50_fpn", 1),
          ("maskrcnn_resnet50_fpn", 1))
SIMULATED = {"dense": ["--kernels", "20", "--kernel-us", "800:0.5", "--gap-us", "50:0.3"],
             "sparse": ["--kernels", "10", "--kernel-us", "400:0.3", "--gap-us", "1500:0.3"]}
LEAST_S = 30  # a PyTorch process loads in less
HEADER_S = 10  # until a recording has begun


class Recordings(Session):
    def __init__(self, options):
        super().__init__(options, origin(options, "predict-stage") | {
            "sharing": "mps" if options.mps else "time-sliced", "seconds": options.seconds,
            "tasks": [], "errors": []})
        self.heddle = options.dist / "bin/heddle"

    def run(self):
        with tempfile.TemporaryDirectory(prefix="heddle-rec-") as folder:
            self.folder = Path(folder)
            self.traces = self.options.traces or self.folder
            self.traces.mkdir(parents=True, exist_ok=True)
            mps = (Mps if self.options.mps and not self.options.sim else NoMps)(self.folder / "mps")
            mps.start()
            try:
                for name, command in self.programs():
                    if self.left_s() < LEAST_S:
                        self.fail(f"{name}: not run, time is spent")
                        continue
                    try:
                        self.record(name, command, mps.env)
                    except (HostError, subprocess.SubprocessError) as error:
                        self.fail(f"{name}: {error}")
            finally:
                mps.stop()
        self.score()

    def programs(self):
        if self.options.sim:
            synthetic = self.options.dist / "libexec/heddle/heddle-synthetic"
            return [(name, [synthetic, *words]) for name, words in SIMULATED.items()]
        jobs = BENCH / "workloads/jobs.py"
        return [(f"{model}-bs{batch}", [sys.executable, jobs, model, str(batch)])
                for model, batch in MODELS]

    def record(self, name, command, env):
        """A daemon of its own, so that the recording begins before the core has seen anything."""
        folder = self.folder / name
        env = env | {"HEDDLE_SOCKET": str(folder / "heddle.sock"),
                     "HEDDLE_SIM_SOCKET": str(folder / "gpu")}
        daemon = Daemon(self.options.dist, folder, self.options.mps, env, [])
        trace = self.traces / f"{name}.trace"
        trace.unlink(missing_ok=True)
        recorder = None
        try:
            daemon.start()
            recorder = subprocess.Popen(
                [self.heddle, "--socket", daemon.socket, "record", trace],
                stdout=subprocess.DEVNULL)
            deadline = time.monotonic() + HEADER_S
            while not trace.exists() or not trace.stat().st_size:
                if recorder.poll() is not None or time.monotonic() > deadline:
                    raise HostError(f"{trace}: heddle record did not begin")
                time.sleep(0.01)
            run = daemon.prefix("hp", name)
            if self.options.sim:
                run.insert(2, "--sim")
            job = Job(name, "hp", run + command, env, folder / "job.log")
            try:
                job.wait_ready()
                job.send("go", f"{time.monotonic():.6f}", self.options.seconds, 0, 0)
                job.answer()
            finally:
                job.stop()
        finally:
            if recorder:
                recorder.send_signal(signal.SIGINT)
                recorder.wait(HEADER_S)
            daemon.stop()
        self.result["tasks"].append(self.scored([trace])["tasks"][0])
        self.say(f"{name}: {self.result['tasks'][-1]['launches']} launches")

    def scored(self, traces):
        done = subprocess.run([self.heddle, "trace", "predict", "--json", *traces], text=True,
                              capture_output=True, check=True, timeout=60)
        return json.loads(done.stdout)

    def score(self):
        traces = sorted(self.traces.glob("*.trace"))
        if traces:
            self.result["all"] = self.scored(traces)["all"]
        self.options.out.write_text(json.dumps(self.result, indent=1) + "\n")


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dist", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--traces", type=Path)
    parser.add_argument("--mps", action="store_true")
    parser.add_argument("--sim", action="store_true")
    parser.add_argument("--seconds", type=float, default=2.0, help="of iterations (%(default)s)")
    parser.add_argument("--budget-s", type=float, default=540, help="at most (%(default)s)")
    parser.add_argument("--commit", help="of dist, where this is no checkout")
    session = Recordings(add_origin(parser.parse_args(arguments), "predict_stage.py", arguments))
    session.run()
    return 1 if session.result["errors"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
