#!/usr/bin/env python3
"""Two replicas of server.py and a fine-tuning job share a GPU: what do TTFT and TBT become?

    run.py                  on the simulated GPU: every figure is simulated
    run.py --model torch    on this host's GPU (--mps: under an MPS server of our own)

Both replicas are measured alone, then beside the job, without heddle; then all of it under a
heddled of its own. There a worker is killed in a request, and a replica sleeps and wakes up while
requests come. Exit status: 1 if a request was lost or a token is another than before.
"""

import argparse
import http.client
import json
import os
import queue
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "bench"))
from harness.processes import Daemon, HostError, Mps, NoMps, tail  # noqa: E402
from harness.report import write  # noqa: E402
from harness.session import add_origin, origin  # noqa: E402

TOKENS = 8       # of a request
LONG = 512       # of the one whose worker is killed
PROMPTS = 8
CLIENTS = 2      # of each replica, as many as it has workers
THINK_S = 0.02   # a client's mean pause between requests
PATIENCE_S = 120
MIB = 1 << 20


class Program:
    """A replica or the job, bare or under heddle; its lines come with the time."""

    def __init__(self, setting, label, role, *command):
        words = [sys.executable, *map(str, command)]
        if setting.daemon:
            words = [str(setting.daemon.heddle), "run", "--quiet", "--class", role, "--label",
                     label, *["--sim"] * setting.sim, "--", *words]
        self.log = setting.folder / f"{label}.log"
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True,
                                            env=setting.env, start_new_session=True)
        self.label, self.lines, self.times = label, queue.Queue(), []
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.times.append(time.monotonic())
            self.lines.put(line)
        self.lines.put("")

    def first_line(self):
        try:
            line = self.lines.get(timeout=PATIENCE_S)
        except queue.Empty:
            line = ""
        if not line:
            raise HostError(f"{self.label} did not start:\n{tail(self.log)}")
        return line

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


class Replica(Program):
    def __init__(self, setting, label, *more):
        super().__init__(setting, label, "latency", HERE / "server.py", "--model", setting.model,
                         "--workers", CLIENTS, *more)

    def ready(self):
        self.port = int(self.first_line().split()[1])

    def ask(self, method, path, body=None):
        """The lines of the answer, each with the time at which it was there."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            connection.request(method, path, json.dumps(body) if body else None)
            reply = connection.getresponse()
            while line := reply.readline():
                yield time.monotonic(), json.loads(line)
        finally:
            connection.close()

    def say(self, method, path):
        return [line for _, line in self.ask(method, path)][-1]

    def wait_until(self, condition):
        """The /health of which it is true."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition(health := self.say("GET", "/health")):
            if time.monotonic() > deadline:
                raise HostError(f"{self.label} stays at {health}:\n{tail(self.log)}")
            time.sleep(0.01)
        return health


class Requests:
    """What clients sent in a phase, and what became of it."""

    def __init__(self, known):
        self.known = known  # (prompt, how many) -> its tokens, whoever had them first
        self.ttft_ms, self.tbt_ms, self.sent, self.lost = [], [], 0, []

    def one(self, replica, prompt, count=TOKENS, at_first=lambda worker: None):
        """Returns the workers that it took."""
        self.sent += 1
        begin, times, tokens, workers = time.monotonic(), [], [], []
        try:
            for at, line in replica.ask("POST", "/generate", {"prompt": prompt, "tokens": count}):
                if not times:
                    at_first(line["worker"])
                times.append(at)
                tokens.append(line["token"])
                workers.append(line["worker"])
        except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
            self.lost.append(f"{replica.label}, prompt {prompt}: {error!r}")
            return set()
        expected = self.known.setdefault((prompt, count), tokens)
        if tokens != expected or len(tokens) != count:
            self.lost.append(f"{replica.label}, prompt {prompt}: {tokens}, not {expected}")
        if tokens:
            self.ttft_ms.append((times[0] - begin) * 1e3)
        self.tbt_ms += [(b - a) * 1e3 for a, b in zip(times, times[1:])]
        return set(workers)

    def client(self, replica, seed, end):
        draw = random.Random(seed)
        while True:  # one at least, however late the thread is
            self.one(replica, draw.randrange(PROMPTS))
            if time.monotonic() >= end:
                return
            time.sleep(draw.expovariate(1 / THINK_S))

    def clients(self, replicas, seconds):
        """Threads that send requests from now on, for so long."""
        end = time.monotonic() + seconds
        found = [threading.Thread(target=self.client, args=(replica, 100 * at + number, end))
                 for at, replica in enumerate(replicas) for number in range(CLIENTS)]
        for each in found:
            each.start()
        return found

    def figures(self):
        return {"requests": self.sent, "lost": len(self.lost)} | {
            f"{name}_{which}_ms": round(quantile(times, part), 2)
            for name, times in (("ttft", self.ttft_ms), ("tbt", self.tbt_ms))
            for which, part in (("p50", 0.5), ("p99", 0.99))}


def quantile(values, part):
    return sorted(values)[min(len(values) - 1, int(part * len(values)))] if values else 0.0


class Setting:
    """Everything that runs. `daemon` is None as long as it is bare."""

    def __init__(self, options, folder):
        self.model, self.seconds, self.policy = options.model, options.seconds, options.policy
        self.sim, self.dist, self.folder = options.sim, options.dist, folder
        self.server = (Mps if options.mps else NoMps)(folder / "mps")
        self.bare = self.env = os.environ | self.server.env
        if self.sim:
            self.bare = self.env = os.environ | {
                "HEDDLE_SIM_MODE": options.sim_mode, "HEDDLE_SIM_SOCKET": str(folder / "gpu"),
                "LD_LIBRARY_PATH": str(options.dist / "lib/heddle/sim")}
            self.mps = options.sim_mode == "mps"
        else:
            self.mps = options.mps
        self.daemon, self.programs, self.known, self.result = None, [], {}, {}

    def start_daemon(self):
        self.env = self.bare | {"STATE_DIRECTORY": str(self.folder),
                                "HEDDLE_SOCKET": str(self.folder / "heddle.sock")}
        self.daemon = Daemon(self.dist, self.folder, self.mps, self.env, [], self.policy, None)
        self.daemon.start()

    def start_replicas(self):
        """One forks its workers before it imports the model, one after."""
        self.replicas = [Replica(self, "replica-a"), Replica(self, "replica-b", "--import-first")]
        self.programs += self.replicas
        for replica in self.replicas:
            replica.ready()

    def start_job(self):
        self.job = Program(self, "fine-tune", "batch", HERE / "decoder.py", self.model)
        self.programs.append(self.job)
        self.job.first_line()

    def stop(self):
        for program in self.programs:
            program.stop()
        self.programs = []

    def close(self):
        self.stop()
        if self.daemon:
            self.daemon.stop()
        self.server.stop()

    def phase(self, name, job=True):
        requests, begin = Requests(self.known), time.monotonic()
        for client in requests.clients(self.replicas, self.seconds):
            client.join()
        self.keep(name, requests, requests.figures())
        if job:
            steps = sum(begin <= at < begin + self.seconds for at in list(self.job.times))
            self.result[name]["job_per_s"] = round(steps / self.seconds, 1)

    def keep(self, name, requests, found):
        self.result[name] = found | {"why": requests.lost[:4]}

    def memory_mib(self, label):
        clients = json.loads(self.daemon.command("ps", "--json"))["clients"]
        return sum(device["memory_bytes"] for client in clients if client["label"] == label
                   for device in client["devices"]) / MIB

    def events(self):
        """A worker is killed at the first token of a request, which is then sent once more. Later
        its replica sleeps, is asked, and wakes up. Others send requests all the time."""
        requests, replica = Requests(self.known), self.replicas[0]
        clients = requests.clients(self.replicas, self.seconds / 2)
        workers = requests.one(replica, 0, LONG, lambda pid: os.kill(pid, signal.SIGKILL))
        requests.one(replica, 0, LONG)
        for client in clients:
            client.join()
        health = replica.wait_until(lambda health: len(health["workers"]) == CLIENTS)
        found = {"workers_replaced": health["replaced"], "workers_of_a_request": len(workers),
                 "memory_mib_awake": round(self.memory_mib(replica.label))}
        replica.say("POST", "/sleep")
        found["memory_mib_asleep"] = round(self.memory_mib(replica.label))
        clients = requests.clients(self.replicas, self.seconds / 4)
        replica.wait_until(lambda health: health["waiting"] > 0)
        replica.say("POST", "/wake_up")
        for client in clients:
            client.join()
        found["memory_mib_awake_again"] = round(self.memory_mib(replica.label))
        self.keep("killed, asleep, awake", requests, requests.figures() | found)

    def measure(self):
        self.server.start()
        self.start_replicas()
        self.phase("alone", job=False)
        self.start_job()
        self.phase("shared, no heddle")
        self.stop()
        self.start_daemon()
        self.start_replicas()
        self.start_job()
        self.phase(f"under heddle, {self.policy}")
        self.events()


def table(result, simulated):
    lines = [f"{'simulated' if simulated else '':28s}{'TTFT p50':>10s}{'p99, ms':>10s}"
             f"{'TBT p50':>10s}{'p99, ms':>10s}{'job / s':>10s}{'requests':>10s}{'lost':>6s}"]
    for name, found in result.items():
        times = "".join(f"{found[key]:10.2f}" for key in (
            "ttft_p50_ms", "ttft_p99_ms", "tbt_p50_ms", "tbt_p99_ms"))
        job = f"{found['job_per_s']:.0f}" if "job_per_s" in found else "–"
        lines.append(f"{name:28s}{times}{job:>10s}{found['requests']:10d}{found['lost']:6d}")
    events = result["killed, asleep, awake"]
    lines.append(f"\n{events['workers_replaced']} worker killed and replaced. Memory of replica-a, "
                 f"MiB: {events['memory_mib_awake']} awake, {events['memory_mib_asleep']} asleep, "
                 f"{events['memory_mib_awake_again']} awake again.")
    return "\n".join(lines)


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--model", choices=("demo", "torch"), default="demo")
    add("--seconds", type=float, default=4, help="of each phase (4)")
    add("--policy", default="auto", help="a shipped policy (auto)")
    add("--mps", action="store_true", help="torch: under an MPS server of our own")
    add("--sim-mode", choices=("mps", "timeslice"), default="mps",
        help="demo: how the GPU is shared")
    add("--dist", type=Path, default=ROOT / "dist", help="install tree of heddle")
    add("--json", type=Path, help="where to write the figures")
    options = parser.parse_args()
    options.sim, options.commit = options.model == "demo", ""
    return add_origin(options, "examples/serving/run.py", sys.argv[1:])


def main():
    options = parse()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was started here ends
    with tempfile.TemporaryDirectory(prefix="heddle-", ignore_cleanup_errors=True) as folder:
        setting = Setting(options, Path(folder))
        try:
            setting.measure()
        except (HostError, OSError) as error:
            sys.exit(f"run.py: {error}")
        finally:
            setting.close()
    print(table(setting.result, setting.sim))
    if options.json:
        write(origin(options, "serving") | {"phases": setting.result}, options.json)
    lost = [why for found in setting.result.values() for why in found["why"]]
    print(*lost, sep="\n", end="\n" if lost else "")
    return 1 if any(found["lost"] for found in setting.result.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
