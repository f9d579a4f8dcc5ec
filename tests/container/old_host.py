#!/usr/bin/env python3
"""dist/ on the oldest host it is for: old_host.py DEPS

heddled, heddle, heddle-bench, the simulated GPU and a program under the shim run in a root
filesystem that is bullseye's C library, an account that only it knows, and dist/. Skipped where
mounts are not allowed.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import roots

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/fault"))
import setting  # noqa: E402  (the folder is known only now)
import stage  # noqa: E402
from setting import expect  # noqa: E402

DEPS = pathlib.Path(sys.argv[1])
BIN, LIBEXEC = "/opt/heddle/bin", "/opt/heddle/libexec/heddle"
CONFIG = """
[daemon]
socket = "/tmp/heddled"
[gpu]
mode = "mps"
[[rule]]
name = "by account"
uid = "keeper"
priority = 2
"""
SCENARIO = """
block_s = 0.3
repetitions = 2
policies = ["fifo"]
[[job]]
name = "service"
role = "latency"
[job.sim]
kernels = 2
kernel_us = 425
pause_us = 3000
[[job]]
name = "filler"
[job.sim]
kernels = 4
kernel_us = 1200
"""


class Host:
    def __init__(self, where):
        self.where, self.root = where, where.folder / "rootfs"
        roots.fresh(DEPS, "bullseye", self.root)
        (self.root / "opt").mkdir()
        shutil.copytree(stage.DIST, self.root / "opt/heddle", symlinks=True)
        # The names of users come from plugins of the C library: this root's own.
        (self.root / "etc/passwd").write_text("keeper:x:0:0::/:/bin/false\n")
        (self.root / "etc/nsswitch.conf").write_text("passwd: files\n")
        (self.root / "etc/heddled.toml").write_text(CONFIG)
        (self.root / "etc/scenario.toml").write_text(SCENARIO)
        self.env = {"PATH": os.environ["PATH"], "HEDDLE_SOCKET": "/tmp/heddled",
                    "HEDDLE_SIM_SOCKET": "/tmp/gpu", "STATE_DIRECTORY": "/tmp"}

    def words(self, *command):
        return roots.inside(self.root, self.where.sockets, command)

    def run(self, *command):
        done = subprocess.run(self.words(*command), env=self.env, text=True, capture_output=True,
                              timeout=60)
        expect(done.returncode == 0, f"{command}: {done.stdout}{done.stderr}")
        return done

    def start_daemon(self):
        with open(self.where.folder / "heddled.log", "wb") as log:
            return subprocess.Popen(self.words(f"{BIN}/heddled", "--config", "/etc/heddled.toml"),
                                    env=self.env, stdout=log, stderr=log)


def check(host):
    host.run(f"{BIN}/heddle", "policy", "test",
             "/opt/heddle/share/heddle/policies/papers/fifo_test.lua")
    host.run(f"{BIN}/heddle-bench", "virtual", "/etc/scenario.toml")
    daemon = host.start_daemon()
    try:
        stage.wait_until((host.where.sockets / "heddled").exists, 10, "heddled's socket")
        done = host.run(f"{BIN}/heddle", "run", "--sim", "--label", "demo", "--",
                        f"{LIBEXEC}/heddle-demo", "batch", "--seconds", 0.3, "--kernel-ms", 1)
        expect("Q2, rule by account" in done.stderr, done.stderr)
        result = json.loads(done.stdout.splitlines()[-1])
        expect(result["checksum_ok"], result)
        status = json.loads(host.run(f"{BIN}/heddle", "status", "--json").stdout)
        seen = sum(d["stats"]["posted"] + d["stats"]["granted"] for d in status["devices"])
        expect(seen >= result["launches"] - 64, f"{seen} of {result['launches']} launches seen")
    finally:
        daemon.terminate()
        daemon.wait(10)
    expect(daemon.returncode == 0, stage.tail(host.where.folder / "heddled.log"))


def main():
    if subprocess.run([*roots.UNSHARE, "true"], capture_output=True).returncode:
        print("skipped: no mounts without root here")
        sys.exit(77)
    where = setting.fresh_stage("old_host")
    setting.run(lambda: check(Host(where)), where)


if __name__ == "__main__":
    main()
