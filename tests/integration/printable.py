#!/usr/bin/env python3
"""Files and their names with control bytes: no command lets one reach a terminal. Into a pipe
`policy show` and JSON go as they are; tests/unit has the rule for each byte."""

import json
import os
import pathlib
import pty
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples/quickstart"))
import stage  # noqa: E402  (the folder is known only now)

HEDDLE, HEDDLED, BENCH = (stage.DIST / "bin" / name
                          for name in ("heddle", "heddled", "heddle-bench"))
EVIL = "\x1b]0;mine\x07\x9b2J\r\x7f"
FILES = {
    "evil.lua": f'error("{EVIL}")',
    "evil_test.lua": f'test("{EVIL}", function() print("{EVIL}") error("{EVIL}") end)',
    f"{EVIL}.lua": "return 1",
    "evil.toml": "[{0}]\nx = {0}\n".format(json.dumps(EVIL)),
    "state.json": json.dumps({"id": EVIL}),
}
COMMANDS = {
    "check": [HEDDLE, "policy", "check", "."],
    "test": [HEDDLE, "policy", "test", "evil_test.lua"],
    "load": [HEDDLE, "policy", "load", f"{EVIL}.lua"],
    "shadow": [HEDDLE, "policy", "shadow", f"{EVIL}.lua"],
    "replay": [HEDDLE, "replay", "--trace", f"{EVIL}.lua", "evil.lua"],
    "plan": [HEDDLE, "plan", "jobs", "evil.toml", "--data", EVIL],
    "cdi-hook": [HEDDLE, "cdi-hook"],
    "heddled": [HEDDLED, "--check", "--config", "evil.toml"],
    "bench run": [BENCH, "run", f"{EVIL}.lua"],
    "bench table": [BENCH, "table", f"{EVIL}.lua"],
}


def said(command, folder, env):
    """What a terminal gets that is its standard output and error."""
    terminal, end = pty.openpty()
    with open(pathlib.Path(folder, "state.json")) as state, \
            subprocess.Popen(command, cwd=folder, env=env, stdin=state, stdout=end, stderr=end):
        os.close(end)
        text = b""
        try:
            while more := os.read(terminal, 1 << 16):
                text += more
        except OSError:
            pass  # EIO: all ends are closed
    os.close(terminal)
    return text.replace(b"\r\n", b"\n").decode(errors="replace")


def check(folder, env):
    for name, text in FILES.items():
        pathlib.Path(folder, name).write_text(text)
    for name, command in COMMANDS.items():
        text = said(command, folder, env)
        print(f"-- {name}: {text[:300]}")
        found = re.findall(r"[^\n\t -~\xa0-\uffff]", text)
        assert not found, (name, found)
        assert "\\x1b" in text, f"{name} does not quote the file"


with tempfile.TemporaryDirectory() as folder:
    setting = stage.Stage(pathlib.Path(folder, "stage"), "mps")
    try:
        setting.start_daemon("gapfill")
        check(folder, setting.env)
    finally:
        setting.close()
