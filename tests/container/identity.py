#!/usr/bin/env python3
"""A daemon in namespaces of its own: what it cannot see of a client matches no rule, and is said.

The daemon runs in a user and a PID namespace that map root and contain nobody else; its client is
outside, once as root and once as another user. Then the daemon is outside, and root of a container
is nobody special. Skipped where namespaces or users cannot be had.
"""

import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/fault"))
import setting  # noqa: E402  (the folder is known only now)
import stage  # noqa: E402
from setting import expect  # noqa: E402

UNSHARE = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"]
# What Docker gives a container by default: no user namespace.
CONTAINER = ["unshare", "--pid", "--mount", "--net", "--ipc", "--uts", "--cgroup", "--fork"]
STRANGER = 65533

RULES = """
[[rule]]
name = "everybody's executable"
exe = "*"
priority = 0
[[rule]]
name = "everybody's cgroup"
cgroup = "/"
priority = 1
[[rule]]
name = "nobody"
uid = 65534
priority = 2
[[rule]]
name = "by label"
label = "seen"
claim = 3
"""


def start_daemon(where):
    config = where.folder / "heddled.toml"
    config.write_text(f'[daemon]\nsocket = "{where.socket}"\n{RULES}')
    with open(where.folder / "heddled.log", "wb") as log:
        where.daemon = subprocess.Popen([*UNSHARE, stage.DIST / "bin/heddled", "--config", config],
                                        stdout=log, stderr=log, env=where.env)
    stage.wait_until(where.daemon_answers, 10, "heddled")


def attached(where, uid, label):
    """What `heddle ps` says of a demo that runs as `uid`."""
    command = ["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups"]
    demo = subprocess.Popen(
        [*command, stage.HEDDLE, "run", "-q", "--sim", "--priority", "1", "--label", label, "--",
         stage.DEMO, "batch", "--seconds", "2"], env=where.env | {"HEDDLE_SIM_LOG": ""},
        stdout=subprocess.DEVNULL)
    try:
        client = stage.wait_until(lambda: where.heddle("ps")["clients"], 10, "a client")[0]
    finally:
        expect(demo.wait(30) == 0, "the demo failed")
    stage.wait_until(lambda: not where.heddle("ps")["clients"], 5, "the client's end seen")
    return client


def check(where):
    start_daemon(where)
    root = attached(where, 0, "seen")
    expect(root["pid"] == 0 and root["exe"] == "" and root["cgroup"] == "", root)
    expect("PID namespace" in root["unseen"] and "user" not in root["unseen"], root)
    expect(root["rule"] == "by label" and root["priority"] == 3, root)
    where.next_gpu("stranger")
    stranger = attached(where, STRANGER, "other")
    expect("user: not mapped" in stranger["unseen"], stranger)
    expect(stranger["rule"] == "default: others may claim Q5 at most", stranger)
    expect(stranger["priority"] == 5, stranger)
    print(root["unseen"], stranger["unseen"], sep="\n")


def check_container(where):
    where.start_daemon("priority")
    bypass = [stage.HEDDLE, "bypass", "on"]
    done = subprocess.run([*CONTAINER, *bypass], env=where.env, capture_output=True, text=True)
    expect(done.returncode == 4 and "container" in done.stderr, done)
    expect(where.heddle("status")["bypass"] is False, "a container switched the policy off")
    demo = subprocess.Popen(
        [*CONTAINER, stage.HEDDLE, "run", "-q", "--sim", "--priority", "0", "--", stage.DEMO,
         "batch", "--seconds", "2"], env=where.env, stdout=subprocess.DEVNULL)
    try:
        client = stage.wait_until(lambda: where.heddle("ps")["clients"], 10, "a client")[0]
        inside = subprocess.run([*CONTAINER, stage.HEDDLE, "ps", "--json"], env=where.env,
                                capture_output=True, text=True, check=True)
    finally:
        expect(demo.wait(30) == 0, "the demo failed")
    expect(client["uid"] == 0 and client["priority"] == 5, client)
    expect(client["exe"].endswith("heddle-demo") and client["command"], client)
    expect(json.loads(inside.stdout)["clients"][0]["command"] == "", inside.stdout)
    subprocess.run(bypass, env=where.env, check=True, stdout=subprocess.DEVNULL)


def main():
    if os.geteuid() != 0 or subprocess.run([*UNSHARE, "true"], capture_output=True).returncode:
        print("skipped: needs root, and user and PID namespaces")
        sys.exit(77)
    where = setting.fresh_stage("identity")
    where.sockets.chmod(0o777)

    def body():
        try:
            check(where)
        finally:
            where.daemon.kill()  # of unshare, which takes heddled with it, a moment later
            where.daemon.wait()
        stage.wait_until(lambda: where.heddle("status", check=False) is None, 5, "its end")
        where.next_gpu("container")
        check_container(where)

    setting.run(body, where)


if __name__ == "__main__":
    main()
