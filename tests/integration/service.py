#!/usr/bin/env python3
"""heddled under a service manager: it says when it is ready and when it stops, SIGTERM ends it
well, --check finds what is wrong, and the installed unit is one that systemd accepts."""

import fcntl
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
DIST = ROOT / "dist"
PROMISE = "[[rule]]\nuid = 0\nslowdown_max = 1.1\n"
TAIL = "[[rule]]\nuid = 0\nslowdown_p99_max = 1.2\n"
UNIT = DIST / "share/heddle/heddled.service"
TMPFILES = DIST / "share/heddle/heddle.conf"


def notified(listener):
    listener.settimeout(10)
    return listener.recv(256).decode()


def check_notifications(folder, name):
    """`name`: where the manager listens; @ stands for the abstract namespace."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.bind(name.replace("@", "\0", 1))
    path = folder / "s"
    daemon = subprocess.Popen([DIST / "bin/heddled", "--socket", path],
                              env=os.environ | {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "400000"},
                              stderr=subprocess.DEVNULL)
    try:
        assert notified(listener) == "READY=1"
        # Ready means that whoever was waiting for it may connect.
        subprocess.run([DIST / "bin/heddle", "--socket", path, "status"], check=True,
                       stdout=subprocess.DEVNULL)
        for _ in range(3):  # also while nothing happens
            assert notified(listener) == "WATCHDOG=1"
        daemon.send_signal(signal.SIGTERM)
        while (said := notified(listener)) == "WATCHDOG=1":
            pass
        assert said == "STOPPING=1"
        assert daemon.wait(10) == 0, "SIGTERM is a clean end"
        assert not path.exists(), "the socket stayed behind"
    finally:
        daemon.kill()
        daemon.wait()
        listener.close()


def check_unit(folder):
    """With the install tree where the unit expects it."""
    unit = folder / "heddled.service"
    unit.write_text(UNIT.read_text().replace("/opt/heddle", str(DIST)))
    if not shutil.which("systemd-analyze"):
        return print("no systemd-analyze here: the unit is not verified")
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
    assert done.returncode == 0 and str(unit.name) not in done.stderr, done.stderr


def check_runtime_directory(folder):
    """It outlives the daemon: containers have it mounted, and start while there is none."""
    unit = UNIT.read_text().splitlines()
    for line in ("RuntimeDirectory=heddle heddle-mps", "RuntimeDirectoryPreserve=yes"):
        assert line in unit, unit
    if not shutil.which("systemd-tmpfiles"):
        return print("no systemd-tmpfiles here: its line is not tried")
    (folder / "etc").mkdir()
    for name in ("passwd", "group"):
        (folder / "etc" / name).write_text("root:x:0:0::/root:/bin/sh\n")
    subprocess.run(["systemd-tmpfiles", "--create", f"--root={folder}", TMPFILES], check=True)
    for name in ("heddle", "heddle-mps"):
        assert (folder / "run" / name).stat().st_mode & 0o777 == 0o755


def check_state(folder):
    """A second heddled on a state directory says so, and keeps nothing there. Only it can: another
    user may open the directory, and lock it."""
    shared = folder / "shared"
    shared.mkdir()
    stranger = os.open(shared, os.O_RDONLY)
    fcntl.flock(stranger, fcntl.LOCK_EX)
    environment = os.environ | {"STATE_DIRECTORY": str(shared)}
    daemons = []
    try:
        for name in ("first", "second"):
            daemons.append(subprocess.Popen([DIST / "bin/heddled", "--socket", folder / name],
                                            env=environment, stderr=subprocess.PIPE, text=True))
            said = ""
            while "event=ready" not in said:
                line = daemons[-1].stderr.readline()
                assert line, f"heddled ended: {said}"
                said += line
        for name, wanted in (("first", ""), ("second", "another heddled keeps its state there")):
            said = subprocess.run([DIST / "bin/heddle", "--socket", folder / name, "--json",
                                   "status"], capture_output=True, text=True, check=True).stdout
            status = json.loads(said)
            error = status["state_error"]
            assert wanted in error and bool(error) == bool(wanted), (name, error)
            kept = "" if wanted else str(shared / "profiles")
            assert status["profiles"]["directory"] == kept, status["profiles"]
        assert (shared / "lock").stat().st_mode & 0o777 == 0o600
    finally:
        for daemon in daemons:
            daemon.kill()
            daemon.communicate()
        os.close(stranger)


def started(folder, config):
    """What `heddle status` and `heddle doctor` say of its policy, and what the log has."""
    (folder / "c.toml").write_text(config)
    with open(folder / "log", "w+") as log:
        daemon = subprocess.Popen(
            [DIST / "bin/heddled", "--config", folder / "c.toml", "--socket", folder / "s"],
            stderr=log, env=os.environ | {"STATE_DIRECTORY": str(folder / "state")})
        try:
            while not (folder / "s").exists():
                assert daemon.poll() is None, "heddled ended"
                time.sleep(0.01)
            ask = [DIST / "bin/heddle", "--socket", folder / "s", "--json"]
            status = json.loads(subprocess.run([*ask, "status"], capture_output=True,
                                               check=True).stdout)
            doctor = json.loads(subprocess.run([*ask, "doctor"], capture_output=True).stdout)
            found = [f for f in doctor["findings"] if f["topic"] == "policy"]
            return status["policy"], found[0], (folder / "log").read_text()
        finally:
            daemon.terminate()
            assert daemon.wait(10) == 0, "heddled did not end well"


def check_default(folder):
    """heddled runs auto where nothing names a policy, and starts without that file as well."""
    (folder / "state").mkdir(exist_ok=True)
    policy, found, log = started(folder, "")
    assert (policy["name"], policy["error"], found["level"]) == ("auto", "", "ok"), (policy, log)
    policy, found, log = started(folder, f'policy.directory = "{folder}/none"\n')
    missing = f"{folder}/none/auto.lua: no such policy"
    assert policy["name"] == "builtin" and missing in policy["error"], policy
    assert found["level"] == "warn" and missing in found["text"], found
    assert "install heddle's" in found["remedy"] and "SIGHUP" in found["remedy"], found
    assert "event=policy_not_loaded" in log and missing in log, log


def check_checks(folder):
    """What would leave the built-in to decide is found before a restart."""
    config = folder / "c.toml"
    for text, wrong in (('[policy]\nname = "gapfill"\n', ""),
                        ('[policy]\nname = "gapfil"\n', "no such policy"),
                        ('[policy]\nname = "fifo"\nparams = { dept = 1 }\n', "dept"),
                        ('[policy]\nnme = "fifo"\n', "unknown key"),
                        ('[policy]\nname = "combined"\n' + PROMISE, ""),
                        ('[policy]\nname = "auto"\n' + TAIL, ""),
                        ('[policy]\nname = "combined"\n' + TAIL,
                         'rule "rule 1" promises a p99 of 1.20, policy combined does not keep'),
                        ('[policy]\nname = "gapfill"\n' + PROMISE,
                         'rule "rule 1" promises 1.10, policy gapfill does not keep promises')):
        config.write_text(text)
        done = subprocess.run([DIST / "bin/heddled", "--config", config, "--check"],
                              env=os.environ | {"STATE_DIRECTORY": str(folder / "state")},
                              capture_output=True, text=True)
        assert done.returncode == (2 if wrong else 0) and wrong in done.stderr, (text, done)
        assert done.stderr.count("\n") == (1 if wrong else 0), done.stderr


def main():
    if not UNIT.exists():
        print("dist/ is not installed: cmake --install build/release")
        sys.exit(77)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="heddle-"))
    try:
        check_notifications(folder, str(folder / "notify"))
        check_notifications(folder, f"@heddle-test-{os.getpid()}")
        check_default(folder)
        check_checks(folder)
        check_state(folder)
        check_unit(folder)
        check_runtime_directory(folder)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
