#!/usr/bin/env python3
"""What `heddle run` announces is what the program gets, and asking for it is never in the way.
run.py ASAN_DEMO FAKE_NVML: the demo program with AddressSanitizer, which `heddle run` starts like
any other; a stand-in for NVML with one GPU.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/fault"))
import setting  # noqa: E402  (the folder is known only now)
import stage  # noqa: E402
from setting import expect  # noqa: E402

RULES = """
[[rule]]
name = "interpreter"
exe = "*/python3*"
priority = 2
[[rule]]
name = "space"
exe = "*/a b/prog"
priority = 3
[[rule]]
name = "environment"
label = "by environment"
claim = 1
"""


NO_DRIVER = "no CUDA driver here (no /dev/nvidiactl); heddle run --sim tries without"


def run(where, *words, **environment):
    return subprocess.run([stage.HEDDLE, *words], env=where.env | environment, text=True,
                          capture_output=True, timeout=30)


def announces(where, line, *words, **environment):
    done = run(where, *words, **environment)
    lines = [line] + ([] if os.path.exists("/dev/nvidiactl") else [NO_DRIVER])
    expect(done.returncode == 0 and done.stderr == "".join(f"heddle: {text}\n" for text in lines),
           (words, done))


def check(where):
    where.start_daemon("priority", RULES)
    script = where.folder / "script"
    script.write_text("#!/usr/bin/env python3\n")
    script.chmod(0o755)
    announces(where, "Q2, rule interpreter", "run", "--", script)
    program = where.folder / "a b/prog"
    program.parent.mkdir(exist_ok=True)
    shutil.copyfile("/bin/true", program)
    program.chmod(0o755)
    announces(where, "Q3, rule space", "run", "--", program)
    announces(where, "Q7, rule environment", "run", "--", "true", HEDDLE_PRIORITY="7",
              HEDDLE_LABEL="by environment")
    announces(where, "Q6, rule environment", "run", "--priority", "6", "--", "true",
              HEDDLE_PRIORITY="7", HEDDLE_LABEL="by environment")
    # Options of every command may stand before it.
    announces(where, "Q7, rule environment", "--socket", where.socket, "run", "--label",
              "by environment", "--priority", "7", "--", "sh", "-c", "true", "--", "run")

    where.daemon.send_signal(signal.SIGSTOP)
    try:
        begin = time.monotonic()
        done = run(where, "run", "-q", "--", "true")
        expect(done.returncode == 0 and done.stderr == "", done)
        expect(time.monotonic() - begin < 4, "-q waited for the answer that it does not print")
    finally:
        where.daemon.send_signal(signal.SIGCONT)


def check_memory(where):
    """--memory: MPS is told too where there is one, and standard error names who holds it."""
    mine = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
    pipes = where.folder / "mps"
    pipes.mkdir(exist_ok=True)
    (pipes / "control").touch()
    (pipes / "nvidia-cuda-mps-control.pid").write_text(str(os.getpid()))
    tell = ["run", "--memory", "20GiB", "--", "sh", "-c", f"echo ${mine}"]
    there = {"CUDA_MPS_PIPE_DIRECTORY": str(pipes), "HEDDLE_NVML": sys.argv[2]}

    def told(held, value, words=tell, **environment):
        done = run(where, *words, **environment)
        expect(done.returncode == 0 and done.stdout == value + "\n", (words, done))
        expect(f"held by {held}\n" in done.stderr + "\n", done.stderr)

    told("shim", "", CUDA_MPS_PIPE_DIRECTORY=str(where.folder / "none"))
    told(f"shim and mps: {mine}=0=22528M", "0=22528M", **there)
    told(f"shim and mps: {mine}=0=5G, which was set before", "0=5G", **there, **{mine: "0=5G"})
    quarter = [word.replace("20GiB", "25%") for word in tell]
    told(f"shim and mps: {mine}=0=22528M", "0=22528M", quarter, **there)
    quiet = run(where, "run", "-q", *tell[1:], **there)
    expect(quiet.stdout == "0=22528M\n" and quiet.stderr == "", quiet)
    where.stop_daemon()
    told(f"mps: {mine}=0=22528M", "0=22528M", **there)


def check_sanitized(where):
    """The shim is there, too: for the program itself, one that it starts, and a named runtime."""
    # Some releases of the sanitizer do not stand much randomness of addresses.
    still = ["setarch", "-R"]
    if subprocess.run([*still, "true"], capture_output=True).returncode:
        still = []
    itself, child = [], ["sh", "-c", 'ASAN_OPTIONS=detect_leaks=0 "$0" "$@"; exit $?']
    for preload, starter in ("", itself), ("", child), ("libasan.so.8", itself):
        where.start_daemon("priority")
        done = subprocess.run(
            [*still, "env", f"LD_PRELOAD={preload}", stage.HEDDLE, "run", "--sim", "--", *starter,
             sys.argv[1], "batch", "--seconds", "0.2", "--kernel-ms", "1"],
            text=True, capture_output=True, timeout=30,
            env=where.env | {"ASAN_OPTIONS": "detect_leaks=0"})
        expect(done.returncode == 0, done.stderr)
        result = json.loads(done.stdout.splitlines()[-1])
        expect(result["checksum_ok"] and "begun_ns" not in result, done.stdout)
        stats = where.heddle("status")["devices"][0]["stats"]
        expect(stats["posted"] + stats["granted"] >= result["launches"] - 64, stats)
        where.stop_daemon()


def main():
    for variable in ("LD_PRELOAD", "HEDDLE_PRIORITY", "HEDDLE_LABEL", "CUDA_VISIBLE_DEVICES",
                     "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"):
        os.environ.pop(variable, None)
    where = setting.fresh_stage("run", "timeslice")
    setting.run(lambda: (check(where), check_memory(where), check_sanitized(where)), where)


if __name__ == "__main__":
    main()
