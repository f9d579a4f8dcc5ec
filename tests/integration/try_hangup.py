#!/usr/bin/env python3
"""A terminal that closes while `heddle try` or `heddle-bench run` measures, SIGTERM, and Ctrl-C:
the programs, their heddled, the simulated GPU and the folder end with it."""

import os
import pathlib
import pty
import signal
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples/quickstart"))
import stage  # noqa: E402  (the folder is known only now)

SCENARIO = """about = "Two."
repetitions = 1
block_s = 60
policies = ["gapfill"]
job = [{ name = "a", role = "latency", sim = { kernels = 4, kernel_us = 500 } },
       { name = "b", sim = { kernels = 4, kernel_us = 1000 } }]
"""
TRY = [stage.HEDDLE, "try", "--sim", *"--seconds 0.2 --warm-up 0.1 --settle 0.1".split(),
       "--repetitions", "999", "--",
       stage.DEMO, *"latency --seconds 300 --".split(), stage.DEMO, *"batch --seconds 300".split()]
RUN = [stage.DIST / "bin/heddle-bench", "run", "--device", "sim", "two.toml"]


def running(mark):
    """Number -> command line of the processes that have `mark` in their environment."""
    found = {}
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes():
                found[int(process.name)] = (
                    process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            pass  # it ended, or is somebody else's
    return found


def check(command, program, number, together=2):
    """`program`: the file that both of what is measured run; `together`: how many to wait for."""
    with tempfile.TemporaryDirectory() as folder:
        mark = f"HEDDLE_TRY_OF={os.getpid()}.{program.name}.{number.name}."
        name, _, value = mark.partition("=")
        scenario = pathlib.Path(folder, "two.toml")
        scenario.write_text(SCENARIO)
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(folder)
            os.execve(command[0], [*map(str, command)],
                      os.environ | {name: value, "TMPDIR": folder})
        ended = False
        try:
            stage.wait_until(lambda: sum(line.startswith(f"{program} ") for line in
                                         running(mark.encode()).values()) >= together, 60, "both")
            if number != signal.SIGHUP:
                os.kill(pid, number)
                os.kill(pid, number)  # a shell sends one besides the terminal's
            else:
                os.close(terminal)
            ended = stage.wait_until(lambda: os.waitpid(pid, os.WNOHANG)[0], 30, "its end")
            stage.wait_until(lambda: not running(mark.encode()), 20,
                             f"the end of all after {number.name}")
            left = {str(path.relative_to(folder)) for path in pathlib.Path(folder).rglob("*")}
            assert left <= {"two.toml", "two.json"}, left
        finally:
            for left in running(mark.encode()):
                os.kill(left, signal.SIGKILL)
            if not ended:
                os.waitpid(pid, 0)
            if number != signal.SIGHUP:
                os.close(terminal)


for ending in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
    print(ending.name, flush=True)
    check(TRY, stage.DEMO, ending)
# The order of the blocks is drawn: one program alone may well be the first for a minute.
check(RUN, stage.DIST / "libexec/heddle/heddle-synthetic", signal.SIGHUP, together=1)
