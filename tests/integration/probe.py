#!/usr/bin/env python3
"""`heddle profile probe` on the simulated GPU, with a stand-in for the microbenchmarks: the profile
says who slowed whom, a second probe keeps its kernels, and each thing that is missing is named.
"""

import json
import os
import pathlib
import subprocess
import sys
import time
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/fault"))
import setting  # noqa: E402  (the folder is known only now)
import stage  # noqa: E402
from setting import expect  # noqa: E402

FAKE = ROOT / "tests/integration/fake_interference.py"
SYNTHETIC = stage.DIST / "libexec/heddle/heddle-synthetic"
PROGRAM = 'echo $$ > "$FAKE_VICTIM"; exec "$0" --kernels 5 --kernel-us 200 < "$1"'


def probe(where, *words, seconds=60, **environment):
    """The probed program launches without a pause for so long."""
    orders = where.folder / "orders"
    orders.write_text(f"go {time.monotonic()} {seconds} 0 0\n")
    victim = where.folder / "victim"
    victim.unlink(missing_ok=True)
    env = where.env | {"FAKE_VICTIM": str(victim),
                       "CUDA_MPS_PIPE_DIRECTORY": str(where.folder / "mps")} | environment
    words = [str(word) for word in words]
    return subprocess.run(
        [stage.HEDDLE, "profile", "probe", "--sim", "--seconds", "0.4", "--output", where.folder,
         "--json", *words, "--", "sh", "-c", PROGRAM, SYNTHETIC, orders],
        env=env, text=True, capture_output=True, timeout=120)


def refused(where, part, *words, **environment):
    done = probe(where, *words, **environment)
    expect(done.returncode != 0 and part in done.stderr, (part, done))


def check(where):
    mps = where.folder / "mps"
    mps.mkdir(exist_ok=True)
    (mps / "control").touch()
    for old in where.folder.glob("*.toml"):
        old.unlink()
    fake = ["--channels", "issue,dram", "--program", FAKE]
    done = probe(where, *fake)
    expect(done.returncode == 0, done)
    answer = json.loads(done.stdout)
    file = pathlib.Path(answer["file"])
    kept = tomllib.loads(file.read_text())
    beside = {n["spec"]: n for n in kept["probe"]["beside"]}
    expect(list(beside) == ["issue,ilp=2", "issue,ilp=4", "dram,blocks=66", "dram,blocks=132"],
           beside)
    pressed, others = beside.pop("dram,blocks=132"), beside.values()
    expect(pressed["stretched"] == 2 and pressed["use"] == 1, pressed)
    expect(pressed["slowdown"] > 1.25 * max(n["slowdown"] for n in others), kept["probe"])
    expect(all(n["stretched"] == 1 for n in others), beside)
    # The other half of DRAM is the program's.
    expect(kept["probe"]["metrics"]["dram_pct"] > 20, kept["probe"])
    expect(kept["probe"]["metrics"]["ipc"] < 0.1, kept["probe"])
    expect(0 < kept["probe"]["busy"] <= 1 and kept["kernel"], kept)

    # What a profiler measured stays in a profile that is there.
    text = file.read_text()
    file.write_text(text.rstrip("\n") + "\nmetrics = { l2_pct = 12.00 }\n")
    done = probe(where, "--channels", "issue", "--program", FAKE)
    expect(done.returncode == 0 and json.loads(done.stdout)["file"] == str(file), done)
    again = tomllib.loads(file.read_text())
    expect(len(again["probe"]["beside"]) == 2, again["probe"])
    expect(again["kernel"][-1]["metrics"] == {"l2_pct": 12}, again["kernel"][-1])

    refused(where, "build it: nvcc", "--channels", "issue")
    refused(where, "no channel smoke", "--channels", "issue,smoke", "--program", FAKE)
    refused(where, "microbenchmark issue,ilp=2: out of luck; left out", *fake,
            FAKE_BROKEN="issue dram")
    done = probe(where, *fake, FAKE_BROKEN="dram")
    expect(done.returncode == 0 and "dram,blocks=66: out of luck; left out" in done.stderr, done)
    expect({n["channel"] for n in json.loads(done.stdout)["probe"]["beside"]} == {"issue"}, done)
    refused(where, "the program ended too early", *fake, seconds=3)
    where.next_gpu("turns")
    refused(where, "start MPS", *fake, HEDDLE_SIM_MODE="timeslice")


def main():
    os.environ.pop("LD_PRELOAD", None)
    where = setting.fresh_stage("probe")
    setting.run(lambda: check(where), where)


if __name__ == "__main__":
    main()
