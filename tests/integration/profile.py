#!/usr/bin/env python3
"""Profiles on the simulated GPU, from an installed tree: a new task is measured and then is not,
the next daemon knows it, a foreign or broken file is refused, heddle profile works on them."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
DIST = ROOT / "dist"
HEDDLE = DIST / "bin/heddle"
DEMO = DIST / "libexec/heddle/heddle-demo"


def heddle(*arguments, code=0):
    done = subprocess.run([HEDDLE, *map(str, arguments)], capture_output=True, text=True,
                          timeout=60)
    assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
    return done


def answer(*arguments, code=0):
    return json.loads(heddle(*arguments, "--json", code=code).stdout)


def wait_for(what, holds):
    deadline = time.monotonic() + 30
    while not (found := holds()):
        assert time.monotonic() < deadline, f"no {what}"
        time.sleep(0.02)
    return found


class Daemon:
    def __init__(self, folder):
        self.folder = folder

    def __enter__(self):
        self.process = subprocess.Popen([DIST / "bin/heddled", "--config", self.folder / "c.toml"],
                                        stderr=subprocess.DEVNULL)
        wait_for("daemon", lambda: os.path.exists(os.environ["HEDDLE_SOCKET"]))

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(20)


class Demo:
    """The latency-critical demo program, endless, as one task."""

    def __init__(self, label="lc"):
        self.label = ("--label", label) if label else ()

    def __enter__(self):
        self.process = subprocess.Popen(
            [HEDDLE, "run", "--sim", "-q", "--class", "latency", *self.label, "--", DEMO,
             "latency", "--seconds", "120", "--seed", "1"], stdout=subprocess.DEVNULL)

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait(20)


def device():
    clients = [c for c in answer("ps")["clients"] if c["label"] == "lc" and c["devices"]]
    return clients[0]["devices"][0] if clients else None


class Recording:
    def __init__(self, file):
        self.file = file

    def __enter__(self):
        self.process = subprocess.Popen([HEDDLE, "record", self.file], stdout=subprocess.DEVNULL)
        wait_for("recording", lambda: os.path.exists(self.file) and os.path.getsize(self.file))

    def __exit__(self, *_):
        self.process.terminate()
        assert self.process.wait(20) == 0

    def timed(self):
        """How many launches it saw, and how many of them were timed."""
        client = answer("trace", "show", self.file)["clients"][0]
        return client["launches"], (client["duration"] or {"count": 0})["count"]


def check(folder):
    kept = folder / "profiles"
    with Daemon(folder):
        with Demo():
            wait_for("client", device)
            with Recording(folder / "new.trace"):
                wait_for("end of the stage", lambda: (device() or {}).get("profiled"))
            assert re.search(r"\bmeasured\b(?! to)", heddle("ps", "-v").stdout)
            file = wait_for("profile", lambda: list(kept.glob("lc-*.toml")))[0]
            heddle("profile", "record", "lc", folder / "now.toml")
            assert "no such client" in heddle("profile", "record", "x", folder / "y", code=1).stderr
    first = answer("profile", "show", file)["profiles"][0]
    assert first["runs"] >= 10 and first["label"] == "lc" and "imulated" in first["gpu"], first
    for kernel in first["kernels"]:
        assert kernel["duration_us"]["count"] >= 5 and kernel["grid_blocks"] > 0, kernel
    assert any(k["gap_synchronized_us"] and k["gap_synchronized_us"]["mean"] > 1000
               for k in first["kernels"]), first
    assert answer("profile", "diff", file, folder / "now.toml")["differences"] == []
    heddle("profile", "record", "lc", folder / "trace.toml", "--trace", folder / "new.trace")
    traced = answer("profile", "show", folder / "trace.toml")["profiles"][0]
    assert traced["key"] == first["key"] and traced["gpu"] == first["gpu"], traced
    assert {k["id"] for k in traced["kernels"]} == {k["id"] for k in first["kernels"]}

    text = file.read_text()
    (kept / "foreign.toml").write_text(text.replace(first["gpu"], "NVIDIA A100"))
    (kept / "broken.toml").write_text(text[:len(text) // 2] + "\n?\n")
    with Daemon(folder):
        recording = Recording(folder / "known.trace")
        with recording, Demo():
            now = wait_for("client", device)
            assert now["profiled"] and now["runs"] == first["runs"], "the new daemon knows the task"
            wait_for("launches", lambda: device()["launches"] > 200)
        launches, timed = recording.timed()
        # One in 127, and the first few, until the daemon's hints are there; 32 of each to measure.
        assert launches > 200 and timed <= launches / 20, (launches, timed)
        replayed = answer("replay", "--trace", recording.file)
        assert replayed["complete"] and replayed["differing"] == 0, replayed
        profiles = answer("status")["profiles"]
        assert profiles["tasks"] == 1, profiles
        errors = " ".join(profiles["errors"])
        assert "foreign.toml:3: measured on NVIDIA A100" in errors, errors
        assert "broken.toml:" in errors and len(profiles["errors"]) == 2, errors
        assert "  problem: " in heddle("status").stdout
    # Which kernel follows which may have been seen more often: that is no measurement.
    again = answer("profile", "show", file)["profiles"][0]
    for before, after in zip(first["kernels"], again["kernels"], strict=True):
        same = (before["id"], before["duration_us"]) == (after["id"], after["duration_us"])
        assert same, f"what is known is not measured again: {before}, {after}"
    heddle("profile", "show", code=3)  # whose directory? No daemon says

    (kept / "foreign.toml").unlink()
    (kept / "broken.toml").unlink()
    heddle("profile", "prune", kept, "--samples", "4000000")
    with Daemon(folder), Demo():
        wait_for("client", device)
        assert device()["runs"] < 10 or not device()["profiled"], "pruned, it is measured anew"
        wait_for("profile", lambda: list(kept.glob("lc-*.toml")))

    heddle("profile", "prune", kept, "--samples", "4000000")
    with Daemon(folder), Demo(label=""):
        wait_for("unlabelled profile", lambda: list(kept.glob("heddle-demo-*.toml")))
    with Daemon(folder), Demo():
        wait_for("client", device)
        assert device()["profiled"], "what was measured without a label serves one"


def main():
    if not (DIST / "bin/heddled").exists():
        print("dist/ is not installed")
        return 77
    with tempfile.TemporaryDirectory(prefix="heddle-pro-") as name:
        folder = pathlib.Path(name)
        os.environ["HEDDLE_SOCKET"] = f"{folder}/s"
        os.environ["HEDDLE_SIM_SOCKET"] = f"{folder}/gpu"
        (folder / "c.toml").write_text(f'[daemon]\nsocket = "{folder}/s"\n[profiles]\nruns = 10\n'
                                       f'directory = "{folder}/profiles"\n')
        check(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
