"""Starts what the quick start and the fault tests need: the simulated GPU (by its first client), a
heddled with a configuration of its own, and the demo programs with or without heddle."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
DIST = pathlib.Path(os.environ.get("HEDDLE_DIST", ROOT / "dist"))
SIM = DIST / "lib/heddle/sim"
DEMO = DIST / "libexec/heddle/heddle-demo"
HEDDLE = DIST / "bin/heddle"
POLICIES = DIST / "share/heddle/policies"

CLASSES = {"latency": "latency", "batch": "batch"}


class StageError(RuntimeError):
    """A program of ours did not do its part; the message ends with the last lines of its log."""


def tail(path, lines=8):
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return ""


def wait_until(condition, seconds, what):
    """Returns what `condition` yields once it is true; StageError after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise StageError(f"{what}: not within {seconds} s")
        time.sleep(0.01)


class Stage:
    """One simulated GPU and at most one daemon. `folder` keeps logs and results."""

    def __init__(self, folder, mode):
        self.folder, self.mode = folder, mode
        folder.mkdir(parents=True, exist_ok=True)
        # Socket paths must be short, whatever the folder is called.
        self.sockets = pathlib.Path(tempfile.mkdtemp(prefix="heddle-"))
        self.socket = self.sockets / "heddled"
        self.policies = folder / "policies"
        self.daemon = None
        self.gpus = 0
        self.next_gpu("gpu")

    def next_gpu(self, name):
        """A fresh simulated GPU with a log of its own; the one before leaves by itself."""
        self.gpus += 1
        self.sim_log = self.folder / f"{name}.jsonl"
        self.sim_log.unlink(missing_ok=True)
        self.env = os.environ | {
            "HEDDLE_SIM_MODE": self.mode, "HEDDLE_SIM_SOCKET": str(self.sockets / str(self.gpus)),
            "HEDDLE_SIM_LOG": str(self.sim_log), "HEDDLE_SOCKET": str(self.socket),
            "STATE_DIRECTORY": str(self.sockets)}

    def close(self):
        self.stop_daemon()
        shutil.rmtree(self.sockets, ignore_errors=True)

    # ---- heddled ----

    def start_daemon(self, policy, settings="", daemon="", gpu=""):
        """`policy` (a shipped one, or a path) is saved as active.lua, the file that is watched.
        `daemon`, `gpu`: more lines of that section; `settings`: more sections."""
        shutil.copytree(POLICIES, self.policies, dirs_exist_ok=True)
        self.save_policy(policy)
        config = self.folder / "heddled.toml"
        config.write_text(f'[daemon]\nsocket = "{self.socket}"\n{daemon}\n'
                          f'[gpu]\nmode = "{self.mode}"\n{gpu}\n'
                          '[profiles]\nkeep = false\n'
                          f'[policy]\nname = "active"\ndirectory = "{self.policies}"\n{settings}')
        self.respawn_daemon()

    def respawn_daemon(self):
        with open(self.folder / "heddled.log", "ab") as log:
            self.daemon = subprocess.Popen(
                [DIST / "bin/heddled", "--config", self.folder / "heddled.toml"],
                stdout=log, stderr=log, env=self.env)
        wait_until(self.daemon_answers, 10, "heddled")

    def daemon_answers(self):
        if self.daemon.poll() is not None:
            raise StageError(f"heddled ended: {tail(self.folder / 'heddled.log')}")
        return self.heddle("status", check=False) is not None

    def stop_daemon(self):
        if self.daemon and self.daemon.poll() is None:
            self.daemon.terminate()
            self.daemon.wait(10)

    def heddle(self, *arguments, check=True):
        """What `heddle ... --json` answers, or None if it failed and need not succeed."""
        done = subprocess.run([HEDDLE, *arguments, "--json"], env=self.env, text=True,
                              capture_output=True, timeout=20)
        if done.returncode == 0:
            return json.loads(done.stdout)
        if check:
            raise StageError(f"heddle {' '.join(arguments)}: {done.stderr.strip()}")
        return None

    def save_policy(self, policy):
        """A shipped policy by name, or any by path."""
        source = pathlib.Path(policy)
        if not source.is_absolute():
            source = next(POLICIES.rglob(f"{policy}.lua"))
        shutil.copyfile(source, self.policies / "active.lua")

    def switch_policy(self, policy, refused=False):
        """Saves another policy and waits until it is in force, or `refused` as expected."""
        before = self.heddle("status")["policy"]
        self.save_policy(policy)
        counted = "reload_errors" if refused else "reloads"
        after = wait_until(lambda: self.moved(before, ("reloads", "reload_errors")), 5,
                           f"{policy}: noticed after saving it")
        if after[counted] == before[counted]:
            raise StageError(f"{policy}: {after['error'] or 'was not refused'}")

    def moved(self, before, counters):
        after = self.heddle("status")["policy"]
        return after if any(after[name] != before[name] for name in counters) else None

    # ---- demo programs ----

    def start_demo(self, role, name, seed, seconds, start_ns, managed, arguments=()):
        result = self.folder / f"{name}.{role}.json"
        result.unlink(missing_ok=True)
        command = [DEMO, role, "--seed", seed, "--seconds", seconds, "--start-at", start_ns,
                   "--json", result, *arguments]
        env = self.env | {"HEDDLE_LABEL": role}
        if managed:
            command = [HEDDLE, "run", "--sim", "--class", CLASSES[role], "--label", role, "--",
                       *command]
        else:
            env["LD_LIBRARY_PATH"] = str(SIM)
        with open(self.folder / f"{name}.{role}.log", "wb") as log:
            process = subprocess.Popen([str(word) for word in command], env=env, stdout=log,
                                       stderr=log)
        return Demo(process, result, self.folder / f"{name}.{role}.log", seconds)

    def kernels(self, roles):
        """What the simulated GPU ran for each role since next_gpu, in order: {role: [kernel, ...]},
        without the demo's first launch, which only warms up. Waits until they have left the GPU."""
        def entries():
            lines = self.sim_log.read_text().splitlines()
            return [json.loads(line) for line in lines if line.endswith("}")]

        wait_until(lambda: {e["label"] for e in entries() if "exit_ns" in e} >= set(roles), 5,
                   f"{self.sim_log}: the programs left")
        for entry in entries():
            if entry.get("unsupported"):
                raise StageError(f"the simulated driver refused {entry['unsupported']}")
        return {role: [e for e in entries() if e["label"] == role and "start_ns" in e][1:]
                for role in roles}

    def check_answers(self, results):
        """Right results, and every launch ran exactly once. Returns kernels()."""
        ran = self.kernels(results)
        for role, result in results.items():
            if not result["checksum_ok"]:
                raise StageError(f"{role}: computed a wrong answer")
            if len(ran[role]) + 1 != result["launches"]:
                raise StageError(f"{role}: launched {result['launches']} kernels, "
                                 f"the GPU ran {len(ran[role]) + 1}")
        return ran


class Demo:
    def __init__(self, process, result, log, seconds):
        self.process, self.result, self.log, self.seconds = process, result, log, seconds

    def finish(self):
        """The demo's JSON; StageError if it failed or computed a wrong answer."""
        try:
            status = self.process.wait(self.seconds + 30)
        except subprocess.TimeoutExpired as error:
            self.process.kill()
            raise StageError(f"{self.log}: does not end") from error
        if status != 0:
            raise StageError(f"demo failed ({status}): {tail(self.log)}")
        return json.loads(self.result.read_text())
