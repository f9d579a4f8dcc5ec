"""One cell of the framework matrix: one program run once under one condition.

A program speaks programs/program.h: "half" when half of its rounds are done, one JSON line with the
digests of its outputs at the end, then it waits for its standard input to close, so that the daemon
can be asked about it while it is still attached.
"""

import json
import os
import queue
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import catalog

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
from harness.processes import Daemon, HostError, tail  # noqa: E402

RESTART_S = 0.3
BUSY_READY_S = 40
LOG_LINES = 40
SKIPPED = 77


class Running:
    """A started program. Its lines come through a queue, so that every wait has a bound."""

    def __init__(self, command, env, log):
        self.log = log
        with open(log, "wb") as errors:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
                env=env, start_new_session=True)
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        with self.process.stdout:
            for line in self.process.stdout:
                self.lines.put(line.strip())
        self.lines.put(None)

    def next_line(self, deadline):
        """The next line; None at the end of the output, or a second after the program ended, whose
        children may hold its output open; TimeoutError past the deadline."""
        while True:
            ended = self.process.poll() is not None
            try:
                return self.lines.get(timeout=max(0.0, min(1.0, deadline - time.monotonic())))
            except queue.Empty:
                if ended:
                    return None
                if time.monotonic() >= deadline:
                    raise TimeoutError from None

    def dismiss(self):
        """Closes standard input: a program that has printed its result ends, the busy one too."""
        try:
            self.process.stdin.close()
        except OSError:
            pass

    def end(self, deadline):
        """The exit status; TimeoutError if it does not end."""
        self.dismiss()
        try:
            return self.process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise TimeoutError from None

    def interrupt(self):
        """Asks a program that hangs where it is: Python prints all its threads' stacks."""
        self.process.send_signal(signal.SIGABRT)
        try:
            self.process.wait(2)
        except subprocess.TimeoutExpired:
            pass

    def kill(self):
        """Ends the whole process group, also what the program has left behind."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.dismiss()


class Cell:
    """Runs `program` under `condition` in a folder of its own, which stays for its logs."""

    def __init__(self, program, condition, folder, host, timeout_s):
        self.program, self.condition, self.folder, self.host = program, condition, folder, host
        self.timeout_s = timeout_s
        folder.mkdir(parents=True)
        self.env = os.environ | catalog.PINNED | host.env | program.env
        self.env["HEDDLE_MATRIX_PACE_MS"] = str(condition.pace_ms)
        self.env["HEDDLE_LOG"] = str(folder / "shim.log")
        self.daemon = self.busy = None
        self.found = {"program": program.name, "condition": condition.name}

    def run(self):
        """The cell's row of the result: "outcome" is ok, skipped, failed, hung, or not run: what
        surrounds the program could not be had."""
        running = None
        begin = time.monotonic()
        try:
            self.prepare()
            running = Running(self.command(), self.env, self.folder / "program.log")
            self.follow(running, time.monotonic() + self.timeout_s)
        except (HostError, OSError, subprocess.SubprocessError, ValueError) as error:
            self.found |= {"outcome": "failed" if running else "not run",
                           "error": str(error)[-2000:]}
        finally:
            for process in filter(None, (running, self.busy)):
                process.kill()
            if self.daemon:
                self.daemon.stop()
        self.found["wall_s"] = round(time.monotonic() - begin, 2)
        if self.found["outcome"] not in ("ok", "skipped"):
            self.found["log"] = self.logs()
        return self.found

    # ---- what surrounds the program ----

    def prepare(self):
        if self.condition.counted:
            self.env["CUDA_INJECTION64_PATH"] = str(self.host.binaries / catalog.COUNTER)
            self.env["HEDDLE_COUNT_FILE"] = str(self.folder / "count")
        if self.condition.daemon:
            self.env["HEDDLE_SOCKET"] = str(self.folder / "absent.sock")
        if self.condition.daemon in ("present", "killed"):
            # Others are on the GPU, so that it is not asked.
            lines = ['gpu.stops = "on"'] if self.condition.stopped else []
            self.daemon = Daemon(self.host.dist, self.folder / "d", self.host.mps, self.host.env,
                                 lines, self.host.policy, None)
            self.daemon.start()
            if self.condition.stopped:
                self.daemon.use(self.host.policy, {"stop": "always"})
            self.env["HEDDLE_SOCKET"] = str(self.daemon.socket)
        if self.condition.beside:
            self.start_busy()

    def start_busy(self):
        how = self.host.at_random if self.condition.stopped else []
        command = self.managed("latency", "busy") + self.host.busy + how
        env = self.env | {"HEDDLE_MATRIX_PACE_MS": "0"}
        env.pop("CUDA_INJECTION64_PATH", None)  # the program's launches are counted, not these
        self.busy = Running(command, env, self.folder / "busy.log")
        deadline = time.monotonic() + BUSY_READY_S
        try:
            while (line := self.busy.next_line(deadline)) != "ready":
                if line is None:
                    raise HostError(f"the busy neighbour ended:\n{tail(self.busy.log)}")
        except TimeoutError:
            raise HostError("the busy neighbour is silent") from None

    def managed(self, job_class, label, *more):
        return [str(self.host.dist / "bin/heddle"), "run", "--class", job_class, "--label", label,
                *more, "--"]

    def command(self):
        command = self.program.command(self.host.binaries)
        if self.condition.daemon:
            sms = ["--sms", self.condition.sms] if self.condition.sms else []
            command = self.managed(self.condition.job_class, "program", *sms) + command
        return command

    # ---- the program's life ----

    def follow(self, running, deadline):
        result, killer = None, None
        try:
            while (line := running.next_line(deadline)) is not None:
                self.found["half"] = self.found.get("half", False) or line == "half"
                if line == "half" and self.condition.daemon == "killed":
                    killer = threading.Thread(target=self.kill_and_restart)
                    killer.start()
                elif line.startswith("{"):
                    result = json.loads(line)
                    self.look(running)
                    break
            status = running.end(deadline)
        except TimeoutError:
            self.found |= {"outcome": "hung", "after_s": self.timeout_s,
                           "threads": threads_of(running.process.pid)}
            self.look(running)
            running.interrupt()
            return
        finally:
            if killer:
                killer.join()
        self.found["exit"] = status
        if status == SKIPPED and result:
            self.found |= {"outcome": "skipped", "reason": result.get("skip", "")}
        elif status == 0 and result:
            self.found |= {"outcome": "ok", **result}
            if self.condition.counted:
                self.found["counted"] = counted(self.folder)
        else:
            self.found["outcome"] = "failed"

    def kill_and_restart(self):
        """kill -9 of the daemon, and a fresh one on the same socket a little later."""
        self.daemon.process.kill()
        self.daemon.process.wait()
        time.sleep(RESTART_S)
        try:
            self.daemon.spawn()
            self.found["restarted"] = True
        except HostError as error:
            self.found["error"] = str(error)

    def look(self, running):
        """What the daemon knows of the program's processes; nothing where it cannot be asked."""
        if not self.daemon or "shim" in self.found:
            return
        try:
            clients = json.loads(self.daemon.command("ps", "--json"))["clients"]
        except (HostError, ValueError, KeyError) as error:
            self.found["shim"] = {"error": str(error)[-300:]}
            return
        mine = [client for client in clients if client.get("label") == "program"]
        self.found["shim"] = {
            "clients": len(mine),
            "granted": sum(d["granted"] for c in mine for d in c["devices"]),
            "launches": sum(d["launches"] for c in mine for d in c["devices"]),
            "partitioned": sum(c["counters"]["on_sm_set"] for c in mine),
            "stops": sum(d.get("stops", 0) for c in mine for d in c["devices"]),
            "counters": [client["counters"] for client in mine],
        }

    def logs(self):
        names = ("program.log", "shim.log", "d/heddled.log", "busy.log")
        found = {name: tail(self.folder / name, LOG_LINES) for name in names
                 if (self.folder / name).exists()}
        return {name: text[-4000:] for name, text in found.items() if text}


def threads_of(pid):
    """Name, state, and what the kernel has it wait for, of each thread of a process."""
    found = []
    for task in sorted(Path(f"/proc/{pid}/task").glob("*")):
        try:
            name, _, rest = (task / "stat").read_text().partition("(")[2].rpartition(")")
            found.append(f"{name} {rest.split()[0]} {(task / 'wchan').read_text()}")
        except (OSError, IndexError):
            pass  # gone meanwhile
    return found[:60]


def counted(folder):
    """What count_launches.cc counted, summed over the program's processes; None if nothing."""
    files = [path.read_bytes() for path in folder.glob("count.*")]
    pairs = [struct.unpack("QQ", data) for data in files if len(data) == 16]
    if not pairs:
        return None
    return {"kernels": sum(k for k, _ in pairs), "graphs": sum(g for _, g in pairs)}


def missing(program):
    """Why the program cannot run here, or None."""
    if program.wrap and not shutil.which(program.wrap[0]):
        return f"not installed: {program.wrap[0]}"
    return None
