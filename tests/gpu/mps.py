#!/usr/bin/env python3
"""Does heddled manage MPS as it says? With `[mps] manage = true` and a pipe directory of its own:
started, found in `heddle ps` and `heddle status`, not stopped under its clients, alive when heddled
is killed, found again by the next one, stopped and started when told; a program of another user is
named while it waits inside cuInit (as root).

    mps.py --dist dist           half a minute on a GPU; the host's own MPS, if any, is not touched
    mps.py --sim                 the simulated GPU and tests/integration/fake_mps.py
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from harness.processes import HostError, Job, tail  # noqa: E402

FAKE = ROOT / "tests/integration/fake_mps.py"
NOBODY = 65534


def expect(condition, what):
    if not condition:
        raise HostError(str(what))


def until(condition, seconds, what):
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        expect(time.monotonic() < deadline, f"{what}: not within {seconds} s")
        time.sleep(0.1)
    return value


class Trial:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.pipes, self.log = folder / "pipe", folder / "heddled.log"
        self.env = {"HEDDLE_SOCKET": str(folder / "s"), "STATE_DIRECTORY": "/dev/null"}
        if options.sim:
            (folder / "nvidia-cuda-mps-control").symlink_to(FAKE)
            driver = options.dist / "lib/heddle/sim"
            self.env |= {"HEDDLE_REAL_LIBCUDA": str(driver / "libcuda.so.1"),
                         "PATH": f"{folder}:{os.environ['PATH']}",
                         "HEDDLE_SIM_MODE": "mps", "HEDDLE_SIM_SOCKET": str(folder / "gpu")}
        (folder / "heddled.toml").write_text(
            f'[mps]\nmanage = true\npipe_directory = "{self.pipes}"\n'
            f'log_directory = "{folder / "log"}"\n')
        self.daemon = None
        self.jobs = []
        self.begin = time.monotonic()

    def run(self):
        self.start_daemon()
        first = self.mps("status")
        expect(first["answers"] and not first["error"], first)
        self.say(f"started: pid {first['pid']}, in heddled's cgroup: {first['shares_cgroup']}")
        self.clients_are_shown()
        self.is_not_stopped_under_them()
        self.outlives_heddled(first["pid"])
        if os.geteuid() == 0 and not self.options.sim:
            self.names_who_waits()
        self.end_jobs()
        self.stops_and_starts(first["pid"])

    def clients_are_shown(self):
        self.jobs = [self.start(name) for name in ("one", "two")]
        for job in self.jobs:
            job.wait_ready()
        self.work()
        pids = [job.process.pid for job in self.jobs]
        if self.options.sim:  # nobody else would tell the stand-in
            (self.pipes / "servers").write_text(json.dumps({os.getpid(): pids}))
        until(self.all_are_mps, 20, "both are MPS clients in heddle ps")
        status = self.heddle("status")
        expect(status["mode"] == "mps" and status["devices"][0]["switch_us"] == 10, status)
        # heddled asks MPS now and then; that a client is one its driver tells at once.
        until(lambda: sorted(c["pid"] for s in self.heddle("status")["mps"]["servers"]
                             for c in s["clients"]) == sorted(pids), 20, "MPS lists both")
        self.say(f"clients {pids}: mode mps")

    def is_not_stopped_under_them(self):
        done = self.command("mps", "stop")
        expect(done.returncode == 1 and str(self.jobs[0].process.pid) in done.stderr, done)
        self.work()
        self.say(f"not stopped: {done.stderr.strip()}")

    def outlives_heddled(self, control):
        self.daemon.send_signal(signal.SIGKILL)
        self.daemon.wait()
        self.work()
        expect(Path(f"/proc/{control}").exists(), "MPS died with heddled")
        self.start_daemon()
        expect(self.mps("status")["pid"] == control, "another MPS runs")
        until(self.all_are_mps, 20, "the next heddled sees both as MPS clients")
        self.say("killed, restarted: the same MPS, the same clients")

    def names_who_waits(self):
        """MPS serves one user at a time: nobody's program waits inside cuInit."""
        for path in (self.folder, self.pipes):
            path.chmod(0o755)
        job = self.start("other", "setpriv", f"--reuid={NOBODY}", "--clear-groups", "--")
        try:
            waiting = until(lambda: self.mps("status")["waiting"], 10, "who waits is named")
            expect(waiting[0]["uid"] == NOBODY, waiting)
            until(lambda: "mps_client_waits" in self.log.read_text(), 10, "it is in the log")
            self.say(f"waits inside cuInit: {waiting}")
        finally:
            job.give_up()
            job.process.wait()

    def stops_and_starts(self, control):
        def stopped():
            done = self.command("mps", "stop")
            return done.returncode == 0

        until(stopped, 10, "stopped once nobody uses it")
        expect(not self.lives(control), "it says stopped, and runs")
        status = self.mps("status")
        expect(not status["answers"] and not status["wanted"], status)
        second = self.mps("start")
        expect(second["answers"] and second["pid"] != control, second)
        self.mps("stop")
        expect(not self.lives(second["pid"]), "it says stopped, and runs")
        self.say("stopped, started, stopped")

    # ---- what it takes ----

    def say(self, what):
        print(f"{time.monotonic() - self.begin:5.1f} s  {what}", flush=True)

    def start_daemon(self):
        with open(self.log, "ab") as log:
            self.daemon = subprocess.Popen(
                [self.options.dist / "bin/heddled", "--config", self.folder / "heddled.toml"],
                stdout=log, stderr=log, env=os.environ | self.env, start_new_session=True)
        until(lambda: self.command("status").returncode == 0, 10, "heddled answers")

    def start(self, name, *before):
        command = [*before, self.options.dist / "bin/heddle", "run", "--label", name, "--",
                   self.options.dist / "libexec/heddle/heddle-synthetic", "--kernels", 1,
                   "--kernel-us", "200:0", "--blocks", 132, "--seed", 1]
        return Job(name, name, [str(word) for word in command], self.env,
                   self.folder / f"{name}.log")

    def work(self):
        """Both run for half a second, and nothing fails."""
        for job in self.jobs:
            job.send("go", time.monotonic() + 0.3, 0.5, 0.1, 0.1)
        for job in self.jobs:
            expect(job.answer()["us"], f"{job.name} did nothing")

    def all_are_mps(self):
        clients = self.heddle("ps")["clients"]
        return len(clients) == 2 and all(c["mode"] == "mps" for c in clients)

    @staticmethod
    def lives(pid):
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
        except OSError:
            return False

    def command(self, *words):
        return subprocess.run([self.options.dist / "bin/heddle", *words, "--json"], text=True,
                              env=os.environ | self.env, capture_output=True, timeout=60)

    def heddle(self, *words):
        done = self.command(*words)
        expect(done.returncode == 0, f"heddle {' '.join(words)}: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def mps(self, order):
        return self.heddle("mps", order)

    def end_jobs(self):
        for job in self.jobs:
            job.stop()
        self.jobs = []
        if self.options.sim:
            (self.pipes / "servers").write_text("{}")

    def close(self):
        self.end_jobs()
        if self.daemon and self.daemon.poll() is None:
            until(lambda: self.command("mps", "stop").returncode in (0, 1), 20, "mps stop")
            self.daemon.terminate()
            self.daemon.wait(20)
        pid_file = self.pipes / "nvidia-cuda-mps-control.pid"
        if pid_file.exists() and self.lives(pid := int(pid_file.read_text())):
            os.kill(pid, signal.SIGTERM)  # our own, by its own file


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dist", type=Path, default=ROOT / "dist", help="install tree of heddle")
    parser.add_argument("--sim", action="store_true", help="no GPU, and a stand-in for MPS")
    options = parser.parse_args()
    options.dist = options.dist.resolve()
    if not (options.dist / "bin/heddled").exists():
        print(f"{options.dist} is no install tree: cmake --install build/release")
        return 77
    if not options.sim and not shutil.which("nvidia-cuda-mps-control"):
        print("no nvidia-cuda-mps-control here; --sim tries the logic")
        return 77
    for name in ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY", "LD_PRELOAD"):
        os.environ.pop(name, None)
    # MPS's sockets need a short path.
    with tempfile.TemporaryDirectory(prefix="hm-", ignore_cleanup_errors=True) as folder:
        trial = Trial(options, Path(folder))
        try:
            trial.run()
        except (HostError, AssertionError) as error:
            for log in (trial.log, Path(folder) / "log/control.log"):
                print(f"--- {log.name}\n{tail(log, 20)}")
            print(f"FAILED {error}")
            return 1
        finally:
            trial.close()
    print("as it should be")
    return 0


if __name__ == "__main__":
    sys.exit(main())
