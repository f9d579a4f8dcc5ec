"""The processes of a measurement: MPS, the daemon, the jobs. Each ends only what it started."""

import json
import os
import queue
import re
import signal
import socket
import subprocess
import threading
import time
from contextlib import contextmanager
from pathlib import Path

UNGATED = "mps_default"  # the policy that lets everyone launch freely
# Set alike for every process, so that outputs can be compared and rows stay comparable.
PINNED = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "PYTHONHASHSEED": "0"}

READY_TIMEOUT_S = 240  # a cold PyTorch start beside seventeen others
REPLY_TIMEOUT_S = 45


class HostError(RuntimeError):
    """A process did not do its part; the message names its log's last lines."""


def tail(path, lines=12):
    try:
        return "\n".join(line[:300] for line in
                         path.read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return "(no log)"


class Ending:
    """Signals that end the measurement, as Ctrl-C does: also that of a terminal that closes. What
    is started `with` it is known to whoever clears up before a signal counts."""

    NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self):
        self.held, self.asked = 0, False
        for number in self.NUMBERS:
            signal.signal(number, self.ask)

    def ask(self, *_):
        if not self.asked:  # a second one does not disturb the clearing up
            self.asked = True
            if not self.held:
                raise KeyboardInterrupt

    def __enter__(self):
        self.held += 1

    def __exit__(self, *_):
        self.held -= 1
        if self.asked and not self.held:
            raise KeyboardInterrupt


class Mps:
    """An MPS server of our own, in a private directory, so that the host's is left as found."""

    def __init__(self, folder):
        self.folder = folder
        self.pipe = folder / "pipe"
        self.env = {"CUDA_MPS_PIPE_DIRECTORY": str(self.pipe),
                    "CUDA_MPS_LOG_DIRECTORY": str(folder / "log")}

    def start(self):
        self.pipe.mkdir(parents=True)
        (self.folder / "log").mkdir()
        subprocess.run(["nvidia-cuda-mps-control", "-d"], env=os.environ | self.env, check=True,
                       timeout=30)

    def stop(self):
        pid_file = self.pipe / "nvidia-cuda-mps-control.pid"
        if not pid_file.exists():
            return
        pid = int(pid_file.read_text())
        subprocess.run(["nvidia-cuda-mps-control"], input="quit\n", text=True, check=False,
                       env=os.environ | self.env, timeout=60, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 20
        while os.path.exists(f"/proc/{pid}") and time.monotonic() < deadline:
            time.sleep(0.05)


class NoMps:
    """Time-slicing: a pipe directory that does not exist keeps clients off any MPS server."""

    def __init__(self, folder):
        self.env = {"CUDA_MPS_PIPE_DIRECTORY": str(folder / "none")}

    def start(self):
        pass

    def stop(self):
        pass


def cores():
    """CPUs by physical core, where the host tells; else neighbours are taken for siblings."""
    online = sorted(os.sched_getaffinity(0))
    groups = {}
    for cpu in online:
        path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        groups.setdefault(path.read_text() if path.exists() else str(cpu), []).append(cpu)
    if all(len(group) == 1 for group in groups.values()):
        return [online[i:i + 2] for i in range(0, len(online), 2)]
    return list(groups.values())


def placement():
    """A physical core each for both sides and the daemon, alike in every condition: a thread that
    spins (a synchronizing program, heddled) slows whoever shares its core by half, which would be
    measured as a difference between conditions. None where there are too few."""
    free = cores()
    if len(free) < 6:
        return {}
    return {"hp": free[1], "be": free[3], "daemon": free[5]}


def pinned(side):
    cpus = placement().get(side)
    return ["taskset", "-c", ",".join(map(str, cpus))] if cpus else []


class Daemon:
    """heddled with a generated configuration; policies are switched by the command line. `place` is
    its side of placement(), or None to leave it anywhere; `mps` None: as heddled finds it."""

    def __init__(self, dist, folder, mps, env, config_lines, policy="priority", place="daemon"):
        self.folder, self.env, self.policy, self.place = folder, env, policy, place
        self.heddle, self.heddled = dist / "bin/heddle", dist / "bin/heddled"
        self.socket = folder / "heddle.sock"
        self.policies = folder / "policies"
        self.shipped = dist / "share/heddle/policies"
        self.mps = mps
        self.config_lines = config_lines
        self.process = None
        self.loaded = None

    def start(self):
        self.policies.mkdir(parents=True)
        (self.policies / "lib").mkdir()
        for source in self.shipped.rglob("*.lua"):
            target = self.policies / source.relative_to(self.shipped)
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(source.read_bytes())
        self.config = self.folder / "heddled.toml"
        self.config.write_text("\n".join(self.toml()) + "\n")
        self.log = self.folder / "heddled.log"
        self.spawn()

    def spawn(self):
        """Starts the process, for the first time or after its death, and waits until it answers."""
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                pinned(self.place) + [self.heddled, "--config", self.config], stdout=log,
                stderr=log, env=os.environ | self.env, start_new_session=True)
        deadline = time.monotonic() + 10
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise HostError(f"heddled did not start:\n{tail(self.log)}")
            time.sleep(0.02)

    def toml(self):
        mode = {True: "mps", False: "timeslice", None: "auto"}[self.mps]
        # What one measurement learned is not to be another's.
        anew = not any(line.startswith("profiles.") for line in self.config_lines)
        return [f'daemon.socket = "{self.socket}"', f'gpu.mode = "{mode}"',
                f'policy.directory = "{self.policies}"', f'policy.name = "{self.policy}"',
                *["profiles.keep = false"] * anew, *self.config_lines]

    def answers(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
            try:
                probe.connect(str(self.socket))
            except OSError:
                return False
        return True

    def command(self, *arguments):
        try:
            done = subprocess.run([self.heddle, *arguments], text=True, capture_output=True,
                                  timeout=20,
                                  env=os.environ | self.env | {"HEDDLE_SOCKET": str(self.socket)})
        except subprocess.TimeoutExpired:
            raise HostError(f"heddle {' '.join(arguments)}: no answer in 20 s") from None
        if done.returncode != 0:
            raise HostError(f"heddle {' '.join(arguments)}: {done.stderr or done.stdout}")
        return done.stdout

    def use(self, policy, params):
        """Loads the policy with exactly these parameters: what heddled keeps from an earlier row
        of the same policy goes back to the file's defaults."""
        wanted = (policy, self.defaults(policy) | params)
        if self.loaded == wanted:
            return
        if self.loaded is None or self.loaded[0] != policy:
            self.command("policy", "load", policy)
        if wanted[1]:
            self.command("policy", "set", policy, *(f"{k}={v}" for k, v in wanted[1].items()))
        self.loaded = wanted

    def defaults(self, policy):
        text = next(self.policies.rglob(f"{policy}.lua")).read_text()
        return dict(re.findall(r"(\w+)\s*=\s*\{[^{}]*\bdefault\s*=\s*([\w.+-]+)", text))

    def status(self):
        return {"status": json.loads(self.command("status", "--json")),
                "ps": json.loads(self.command("ps", "--json"))}

    def counters(self):
        """status(), or nothing: a missing counter must not cost a measurement."""
        try:
            return self.status()
        except (HostError, ValueError):
            return {}

    def prefix(self, role, label):
        job_class = "latency" if "hp" in role else "batch"
        return [self.heddle, "run", "--class", job_class, "--label", label, "--"]

    def stop(self):
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def simulated(dist, folder, mode="timeslice"):
    """The environment in which programs find the simulated GPU, with and without heddle."""
    driver = dist / "lib/heddle/sim"
    return {"HEDDLE_REAL_LIBCUDA": str(driver / "libcuda.so.1"), "LD_LIBRARY_PATH": str(driver),
            "HEDDLE_SIM_MODE": mode, "HEDDLE_SIM_SOCKET": str(folder / "gpu")}


class Setting:
    """A daemon under a policy, with an MPS server of our own or time-sliced, as the options of
    session.origin_parser() say."""

    def __init__(self, options, folder, policy, mps=True, env=None, place=None):
        self.options, self.folder = options, folder
        self.server = (Mps if mps and not options.sim else NoMps)(folder / "mps")
        self.env = self.server.env | (env or {})
        if options.sim:
            self.env |= simulated(options.dist, folder, "mps" if mps else "timeslice")
        self.daemon = Daemon(options.dist, folder / "d", mps, self.env, [], policy, place)

    @contextmanager
    def running(self):
        self.server.start()
        try:
            self.daemon.start()
            self.env["HEDDLE_SOCKET"] = str(self.daemon.socket)
            yield
        finally:
            self.daemon.stop()
            self.server.stop()


class Job:
    """One process that speaks workloads/protocol.py; starting it does not wait for it."""

    def __init__(self, name, side, command, env, log):
        self.name, self.log = name, log
        with open(log, "wb") as errors:
            self.process = subprocess.Popen(
                pinned(side) + command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=errors, text=True, bufsize=1, env=os.environ | env, start_new_session=True)
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self.about = None

    def running(self):
        return self.process.poll() is None

    def give_up(self):
        if self.running():
            os.killpg(self.process.pid, signal.SIGKILL)

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def wait_ready(self, timeout_s=READY_TIMEOUT_S):
        self.about = self.answer(timeout_s)

    def send(self, *words):
        try:
            print(*words, file=self.process.stdin)
        except OSError as error:
            raise HostError(f"{self.name} is gone: {tail(self.log)}") from error

    def answer(self, timeout_s=REPLY_TIMEOUT_S):
        """The next JSON line; anything else on stdout is skipped (`heddle run` may greet)."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                line = self.lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise HostError(f"{self.name} is silent: {tail(self.log)}") from None
            if line is None:
                raise HostError(f"{self.name} ended: {tail(self.log)}")
            if line.startswith("{"):
                return json.loads(line)

    def stop(self):
        try:
            self.send("quit")
            self.process.wait(10)
        except (HostError, subprocess.TimeoutExpired):
            self.give_up()
            self.process.wait()
