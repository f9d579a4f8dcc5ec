"""Ways to share a GPU, each with its own processes H and L (workloads/switched.py), which load once
and are told what to do."""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from harness.processes import Daemon, HostError, Job, Mps, NoMps, PINNED, placement

WORKER = Path(__file__).resolve().parents[1] / "workloads/switched.py"
LOAD_S, ANSWER_S = 120, 90


def name_of(job, priority=0):
    parts = [job["kind"], job.get("model", ""), str(job.get("batch", ""))]
    return "-".join(filter(None, parts)) + (f"@{priority}" if priority else "")


def stand_in(job):
    """For the simulated GPU."""
    if job["kind"] == "tick":
        return {"kind": "spin", "kernels": 1, "us": 100, "blocks": 1}
    graph = job["kind"] == "graph"
    return {"kind": "spin", "kernels": 8, "us": 600 if graph else 400, "blocks": 264,
            "graph": graph}


class SimGpu:
    def __init__(self, folder, dist, mode):
        self.folder, self.program = folder, dist / "lib/heddle/sim/heddle-sim-gpu"
        self.env = {"HEDDLE_SIM_SOCKET": str(folder / "gpu"), "HEDDLE_SIM_MODE": mode}

    def start(self):
        self.folder.mkdir(parents=True)
        self.process = subprocess.Popen([self.program], env=os.environ | self.env)
        while not Path(self.env["HEDDLE_SIM_SOCKET"]).exists():
            time.sleep(0.02)

    def stop(self):
        self.process.terminate()
        self.process.wait(5)


class Side:
    """One way to share: "bare", or under a heddled of its own, "ask" or "gates"."""

    def __init__(self, way, mode):
        self.way, self.mode, self.daemon, self.jobs = way, mode, None, {}
        self.env = mode.server.env | PINNED | {"OMP_NUM_THREADS": "2"}
        if way != "bare":
            lines = [f"daemon.gates = {str(way == 'gates').lower()}"]
            self.daemon = Daemon(mode.dist, mode.folder / way, mode.name == "mps", self.env, lines)
            self.daemon.start()
            self.env["HEDDLE_SOCKET"] = str(self.daemon.socket)

    def prefix(self, role, label=None):
        """What starts a program as H or L here."""
        if not self.daemon:
            lib = self.mode.dist / "lib/heddle/sim"
            return ["env", f"LD_LIBRARY_PATH={lib}"] if self.mode.sim else []
        return [str(self.daemon.heddle), "run", "--quiet", "--class",
                "latency" if role == "H" else "batch", "--label", label or role,
                *["--sim"] * self.mode.sim, "--"]

    def start(self, role, name=None):
        name = name or role
        label = f"{self.mode.name}.{self.way}.{name}"
        self.jobs[name] = Job(label, None, [*self.prefix(role), sys.executable, str(WORKER)],
                              self.env, self.mode.folder / f"{label}.log")

    def prepare(self, role, wanted, name=None):
        """Waits until it is ready, and has it load. Bare H also has its jobs at a high priority.
        Those that have a name of their own work together, and share no core."""
        name = name or role
        self.jobs[name].wait_ready(LOAD_S)
        both = (self.way, role, self.mode.name) == ("bare", "H", "mps")
        for job in wanted:
            for priority in (0, -5) if both and job["kind"] != "tick" else (0,):
                spec = stand_in(job) if self.mode.sim else job
                self.ask(name, do="load", job=name_of(job, priority), priority=priority, **spec)
        cpus = placement().get({"H": "hp", "L": "be"}[role])
        if cpus and name == role:
            self.ask(name, do="pin", cpus=cpus)

    def send(self, role, **command):
        if self.jobs[role].broken:
            raise HostError(f"{self.jobs[role].name} is gone")
        self.jobs[role].send(json.dumps(command))

    def answer(self, role, timeout_s=ANSWER_S):
        job = self.jobs[role]
        try:
            found = job.answer(timeout_s)
        except HostError:
            job.give_up()
            raise
        if "error" in found:
            raise HostError(f"{job.name}: {found['error']}")
        return found

    def ask(self, role, **command):
        self.send(role, **command)
        return self.answer(role)

    def cpu_s(self):
        """Of heddled: user and system time."""
        if not self.daemon:
            return 0
        stat = Path(f"/proc/{self.daemon.process.pid}/stat").read_text()
        user, system = stat.rsplit(")", 1)[1].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def counters(self, label):
        """Of all clients that are called so; launches without a word by their reasons."""
        total = {}
        for client in json.loads(self.daemon.command("ps", "--json"))["clients"]:
            if client["label"] == label:
                for key, value in (client["counters"] | client["counters"]["self"]).items():
                    if isinstance(value, int):
                        total[key] = total.get(key, 0) + value
        return total

    def left(self, role):
        """Whether the newest gate page of the process says that its gates stand open for good."""
        pid = self.jobs[role].about["pid"]
        pages = [line.split()[0] for line in Path(f"/proc/{pid}/maps").read_text().splitlines()
                 if "heddle-gates" in line]
        if not pages:
            return None
        with open(f"/proc/{pid}/map_files/{pages[-1]}", "rb") as page:
            return page.read(1) != b"\0"

    def stop(self):
        for job in self.jobs.values():
            job.give_up()
        if self.daemon:
            self.daemon.stop()


class Mode:
    """MPS or time-slicing, with its sides. `wanted`: {"H": [JOB, ...], "L": [JOB, ...]}. `ways`:
    these alone, and bare."""

    def __init__(self, name, wanted, folder, dist, sim, ways=()):
        self.name, self.wanted, self.folder = name, wanted, folder / name
        self.dist, self.sim, self.errors = dist, sim, []
        self.folder.mkdir(parents=True)
        self.server = (SimGpu(self.folder / "gpu", dist, name) if sim else
                       (Mps if name == "mps" else NoMps)(self.folder / "server"))
        self.server.start()
        self.sides = {way: Side(way, self) for way in ("bare", "ask", "gates")
                      if not ways or way in ("bare", *ways)}
        self.threads = [threading.Thread(target=self.load, args=(side, role), daemon=True)
                        for side in self.sides.values() for role in "HL"]
        for thread in self.threads:
            thread.start()

    def load(self, side, role, name=None):
        """Starts a process of a side; what goes wrong is kept in `errors`."""
        try:
            side.start(role, name)
            side.prepare(role, self.wanted[role], name)
        except (HostError, OSError) as error:
            side.jobs[name or role].give_up()
            self.errors.append(str(error))

    def wait(self):
        for thread in self.threads:
            thread.join()

    def stop(self):
        for side in self.sides.values():
            side.stop()
        self.server.stop()
