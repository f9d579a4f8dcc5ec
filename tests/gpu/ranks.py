"""Programs on two GPUs: the ranks of a training job, a service on one of them, and what they did;
two_gpus.py has what is measured."""

import contextlib
import hashlib
import json
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from harness.report import moved, p99  # noqa: E402
from harness.processes import PINNED, HostError, Job, Setting, tail  # noqa: E402
from stops import ALLOCATIONS, LONG_MS, PAUSE_MS, REQUESTS, SERVICE_MS  # noqa: E402

RANKS, CHUNK = 2, 20  # steps between two answers of the ranks
READY_S, CHUNK_S, REPLY_S, END_S = 100, 45, 30, 8  # who is silent for longer hangs
LEAD_S, TAIL_S, CAPACITY_S = 0.3, 0.3, 2
SETTLE, LEAST = 2, 4  # windows that auto has to settle; windows at least
SIM = {"service": ["--kernels", 1, "--kernel-us", 6000, "--blocks", 132, "--seed", 1],
       "job": ["sim", 10000, 2]}
NO_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
                "NVSHMEM_DISABLE_NVLS": "1"}


class Condition(Setting):
    """Programs on both GPUs, bare or under a heddled of its own."""

    def __init__(self, options, folder, managed, mps=False):
        env = PINNED | NO_MULTICAST | {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "OMP_NUM_THREADS": "4",
                                       "STATE_DIRECTORY": "/dev/null"}  # heddled keeps nothing
        super().__init__(options, folder, options.policy, mps, env)
        self.daemon.config_lines = ['gpu.stops = "on"']
        self.managed, self.jobs = managed, []
        self.progress_file = Path("/dev/shm") / f"heddle-two-gpus-{os.getpid()}"
        folder.mkdir()

    @contextlib.contextmanager
    def running(self):
        with super().running() if self.managed else contextlib.nullcontext():
            try:
                yield
            finally:
                self.end_all()
                self.progress_file.unlink(missing_ok=True)

    def end_all(self):
        """Ranks leave together; who does not is killed."""
        deadline = time.monotonic() + END_S
        for job in self.jobs:
            with contextlib.suppress(HostError, ValueError):  # it is gone; its input is closed
                job.send("quit")
        for job in self.jobs:
            with contextlib.suppress(subprocess.TimeoutExpired):
                job.process.wait(max(0.1, deadline - time.monotonic()))
            job.give_up()
            job.process.wait(END_S)

    def start(self, name, role, command, gpu=None, **env):
        """`gpu`: the only one that it sees, and on the simulated driver, the one that it has."""
        if gpu is not None:
            env["CUDA_VISIBLE_DEVICES"] = str(gpu)
        if self.options.sim:
            gpu = env.get("RANK", gpu)
            env |= {"HEDDLE_SIM_SOCKET": str(self.folder / f"gpu{gpu}"), "HEDDLE_SIM_GPU": str(gpu)}
        prefix = self.daemon.prefix(role, name.split(".")[0]) if self.managed and role else []
        job = Job(name, None, [str(word) for word in [*prefix, *command]], self.env | env,
                  self.folder / f"{name}.log")
        self.jobs.append(job)
        return job

    def start_all(self):
        options = self.options
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        job = SIM["job"] if options.sim else options.job
        rank = [sys.executable, ROOT / "tests/gpu/programs/ddp.py", *job]
        self.ranks = [self.start(f"job.{i}", "be", rank, RANK=str(i), WORLD_SIZE=str(RANKS),
                                 LOCAL_RANK=str(i), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
                      for i in range(RANKS)]
        service = ([options.dist / "libexec/heddle/heddle-synthetic", *SIM["service"]]
                   if options.sim else [sys.executable, ROOT / "bench/workloads/jobs.py",
                                        *options.service, "--precision", "half", "--graph", "true"])
        self.service = self.start("service", "hp", service, gpu=options.gpu_of_service)
        for each in self.jobs:
            each.wait_ready(READY_S)

    def tell_ranks(self, *words):
        for rank in self.ranks:
            rank.send(*words)
        return [rank.answer(CHUNK_S) for rank in self.ranks]

    def train(self, chunks, enough):
        self.tell_ranks("again")
        while not enough():
            chunks.append(self.tell_ranks("steps", CHUNK))

    def serve(self, seconds, *arrivals):
        self.service.send("go", time.monotonic() + LEAD_S, seconds, LEAD_S / 2, TAIL_S, *arrivals)
        return self.service.answer(seconds + REPLY_S)

    def window(self, number):
        """Half of what it serves alone, bare, where that is known; the same requests in every
        other window."""
        if self.options.rate is None:
            found = self.serve(CAPACITY_S)
            self.options.rate = round(len(found["us"]) / found["span_s"] / 2, 2)
        return self.serve(self.options.window_s, "poisson", self.options.rate, number % 2)

    def service_alone(self):
        return {"H": latencies([self.window(0), self.window(1)])}

    def job_alone(self, steps):
        chunks = []
        self.train(chunks, lambda: len(chunks) * CHUNK >= steps)
        return {"job": self.progress(chunks)}

    def together(self, seconds):
        """Until the steps are done and there are windows enough, or the time is over; with what
        heddled counted meanwhile. What goes wrong is in `failed`, and the rest is kept."""
        chunks, windows, failed, done = [], [], [], threading.Event()

        def job():
            try:
                self.train(chunks, done.is_set)
            except (HostError, OSError, ValueError) as error:
                failed.append(str(error))

        thread = threading.Thread(target=job, daemon=True)
        before, end = self.counters(), time.monotonic() + seconds
        thread.start()
        try:
            while thread.is_alive() and time.monotonic() < end and (
                    len(chunks) * CHUNK < self.options.steps or len(windows) < LEAST):
                windows.append(self.window(len(windows)))
                if len(windows) == SETTLE:
                    settled = time.monotonic()
        except (HostError, OSError, ValueError) as error:
            failed.append(str(error))
        done.set()
        thread.join(CHUNK_S + 5)
        if thread.is_alive():
            failed.append("job: is silent")
        after = len(windows) > SETTLE
        row = {"H": latencies(windows[SETTLE * after:]) |
               {"means_us": [round(statistics.fmean(w["us"] or [0])) for w in windows]},
               "job": self.progress(chunks, settled if after else 0),
               **self.told(before)}
        return row | ({"failed": failed, "hung": any("silent" in f for f in failed)} if failed
                      else {})

    def counters(self):
        return self.daemon.counters() if self.managed else {}

    def told(self, before):
        """What heddled says: counters since then, and why its programs wait now."""
        if not self.managed:
            return {}
        after = self.counters()
        policy = after["status"]["policy"] if after else {}
        found = {"heddle": gained(before, after), "explain": {},
                 "policy": {key: policy.get(key) for key in ("name", "error", "faulted")}}
        for job in self.jobs:
            with contextlib.suppress(HostError):
                text = self.daemon.command("explain", str(job.process.pid))
                found["explain"][job.name] = text.splitlines()[:12]
        return found

    def progress(self, chunks, since=0):
        """Steps a second of what began later; all losses against the first ones that were seen."""
        begins, ends = ([get(answer[key] for answer in chunk) for chunk in chunks]
                        for get, key in ((min, "begin"), (max, "end")))
        took = [e - b for b, e in zip(begins, ends) if b >= since]
        losses = [[x for chunk in chunks for x in chunk[rank]["losses"]] for rank in range(RANKS)]
        wanted = self.options.losses
        if not wanted or len(wanted[0]) < len(losses[0]) and not self.managed:
            self.options.losses = losses
        wrong = [i for mine, theirs in zip(losses, wanted or losses)
                 for i, (a, b) in enumerate(zip(mine, theirs)) if a != b]
        compared = min(len(losses[0]), len((wanted or losses)[0]))
        return {"steps": len(losses[0]), "per_s": round(CHUNK * len(took) / (sum(took) or 1), 3),
                "losses": hashlib.sha256(json.dumps(losses).encode()).hexdigest()[:16],
                "first_last": [[mine[0], mine[-1]] for mine in losses if mine],
                "compared": compared, "first_wrong": min(wrong, default=None)}

    def standing(self, name, words, role=None, gpu=None):
        """A standing.cu that waits for its `go`."""
        job = self.start(name, role, [self.options.binary, *words], gpu=gpu)
        if job.lines.get(timeout=READY_S) != "ready\n":
            raise HostError(f"{name}: {tail(job.log)}")
        return job

    def neighbour(self, beside):
        """Of one that allocates on GPU 1, what it took; `beside` L and H on GPU 0."""
        allocates = self.standing("A", ["allocate", 2, ALLOCATIONS], gpu=1)
        others, progress = {}, self.progress_file
        if beside:
            others = {"L": self.standing("L", ["long", progress, LONG_MS], "be", 0),
                      "H": self.standing("H", ["request", progress, SERVICE_MS, PAUSE_MS,
                                               2 * REQUESTS], "hp", 0)}
        before = self.counters()
        for job in (*others.values(), allocates):
            job.send("go")
        found = {"A": allocates.answer()}
        if beside:
            found["H"] = others["H"].answer()
            others["L"].process.stdin.close()
            found["L"] = others["L"].answer()
            found |= self.told(before)
        return found


def latencies(windows):
    us = [x for window in windows for x in window["us"]]
    figures = {"mean_us": round(statistics.fmean(us), 1), "p99_us": p99(us)} if us else {}
    return figures | {"requests": len(us), "unserved": sum(w["unserved"] for w in windows)}


def numbers(row):
    return {key: value for key, value in row.items() if type(value) in (int, float)}


def gained(before, after):
    """Of each GPU by its UUID: what heddled counted, in all and for each client on it."""
    if not before or not after:
        return {}
    gpus, found = {d["index"]: d["uuid"] for d in after["status"]["devices"]}, {}
    olds = {d["index"]: d["stats"] for d in before["status"]["devices"]}
    for device in after["status"]["devices"]:
        found[device["uuid"]] = {"can_stop": device["can_stop"], "clients": [],
                                 "all": moved(olds.get(device["index"], {}), device["stats"])}
    clients = {c["pid"]: c for c in before["ps"]["clients"]}
    for client in after["ps"]["clients"]:
        old = clients.get(client["pid"], {"counters": {"self": {}}, "devices": []})
        on = {d["device"]: numbers(d) for d in old["devices"]}
        row = {key: client[key] for key in ("label", "pid", "mode", "held", "threads_wait_because")}
        row["counters"] = moved(numbers(old["counters"]), numbers(client["counters"]))
        row["self"] = moved(old["counters"]["self"], client["counters"]["self"])
        for d in client["devices"]:
            on_gpu = gpus.get(d["device"], "unknown")
            found.setdefault(on_gpu, {"all": {}, "clients": []})["clients"].append(
                row | {"not_because": d["stops_not_because"], "allowed": d["allowed"]} |
                moved(on.get(d["device"], {}), numbers(d)))
    return found
