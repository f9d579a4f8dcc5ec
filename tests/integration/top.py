#!/usr/bin/env python3
"""heddle top on the simulated GPU: once, as JSON, and on a terminal with its keys."""

import os
import pathlib
import pty
import re
import select
import subprocess
import sys
import termios
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/fault"))
import setting  # noqa: E402  (the folder is known only now)
import stage  # noqa: E402


def heddle(where, *arguments, code=0):
    done = subprocess.run([stage.HEDDLE, *map(str, arguments)], env=where.env,
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
    return done.stdout


def read_until(fd, pattern, seconds=20):
    text, deadline = "", time.monotonic() + seconds
    while not re.search(pattern, text, re.S):
        assert time.monotonic() < deadline, f"{pattern} not in {text!r}"
        if select.select([fd], [], [], 0.2)[0]:
            text += os.read(fd, 65536).decode()
    return text


def on_terminal(where):
    master, slave = pty.openpty()
    before = termios.tcgetattr(slave)
    top = subprocess.Popen([stage.HEDDLE, "top", "--interval", "0.3"], env=where.env, stdin=slave,
                           stdout=slave, stderr=slave)
    read_until(master, "LNCH/S.*latency.*q quit")
    rows = r"\x1b\[H(?:(?!\x1b\[H).)*?LABEL(?:(?!\x1b\[H).)*?%s(?:(?!\x1b\[H).)*?%s"
    os.write(master, b"p")
    read_until(master, rows % ("latency", "batch"))
    os.write(master, b"w")  # who asks, waits
    read_until(master, rows % ("batch", "latency"))
    os.write(master, b"q")
    assert top.wait(20) == 0
    assert "\x1b[?1049l" in read_until(master, r"1049l"), "the screen is as it was"
    assert termios.tcgetattr(slave)[:4] == before[:4], "and so is the terminal"


def check(where):
    heddle(where, "top", "--once", code=3)
    where.start_daemon("gapfill")
    demos = [where.start_demo(role, "demo", 1, 8, 0, managed=True) for role in stage.CLASSES]
    stage.wait_until(lambda: len(where.heddle("ps")["clients"]) == 2, 20, "both attached")
    top = stage.wait_until(
        lambda: [t for t in [where.heddle("top", "--interval", "0.5")]
                 if len(t["clients"]) == 2 and all(c["gpu_pct"] > 1 for c in t["clients"])],
        20, "both at work")[0]
    of = {c["label"]: c for c in top["clients"]}
    assert 0.4 < top["interval_s"] < 5, top
    assert abs(sum(c["share_pct"] for c in top["clients"]) - 100) < 0.1, top
    assert all(c["gpu_pct"] < 110 and c["launches_per_s"] > 10 for c in top["clients"]), top
    assert of["batch"]["wait_p99_us"] >= of["batch"]["wait_p50_us"] > 0, of["batch"]
    assert of["latency"]["wait_p99_us"] == 0 and of["latency"]["allowed"] == "lease", of
    text = heddle(where, "top", "--once", "--interval", "0.3", "--sort", "priority")
    lines = text.splitlines()
    assert all(len(line) <= 80 for line in lines), text
    assert lines[0].startswith("policy gapfill "), text
    assert "latency" in lines[-2] and "batch" in lines[-1], text
    on_terminal(where)
    for demo in demos:
        demo.finish()


where = setting.fresh_stage("top")
setting.run(lambda: check(where), where)
