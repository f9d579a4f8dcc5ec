#!/usr/bin/env python3
"""examples/serving on the simulated GPU: a killed worker is replaced, a replica gives up its memory
and takes it again, and no request is lost. Its figures are labelled simulated; none is judged."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/fault"), str(ROOT / "examples/serving")]
import prefork  # noqa: E402  (the folders are known only now)
import setting  # noqa: E402
from decoder import MIB, Demo  # noqa: E402
from setting import expect, stage  # noqa: E402

WORKERS = 2


def main():
    dist = pathlib.Path(os.environ.get("HEDDLE_DIST", ROOT / "dist"))
    if not (dist / "bin/heddled").exists():
        print(f"{dist} is not installed: cmake --install build/release")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "result.json"
        process = subprocess.Popen([sys.executable, ROOT / "examples/serving/run.py", "--seconds",
                                    "0.6", "--dist", dist, "--json", path], text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            out, error = process.communicate(timeout=50)
        except subprocess.TimeoutExpired:
            process.terminate()  # it ends what it started
            out, error = process.communicate()
        expect(process.returncode == 0, out + error)
        result = json.loads(path.read_text())
    expect(result["mode"] == "simulated" and out.startswith("simulated"), out)
    phases = result["phases"]
    expect(len(phases) == 4, phases)
    for found in phases.values():
        expect(found["lost"] == 0 and found["requests"] > 0, phases)
    events = phases["killed, asleep, awake"]
    expect(events["workers_replaced"] == 1 and events["workers_of_a_request"] == 2, events)
    awake = WORKERS * (Demo.WEIGHTS + Demo.CACHE) // MIB
    memory = [events[f"memory_mib_{when}"] for when in ("awake", "asleep", "awake_again")]
    expect(memory == [awake, 0, awake], memory)


def check_worker_models(where):
    """heddle takes no way to make workers, and has each worker as a client of its own."""
    where.start_daemon("gapfill")
    for way, found in prefork.measure(stage, where):
        works = 0 if way == "CUDA, then fork" else prefork.WORKERS  # as CUDA has it
        expect([found[name] for name in ("bare", "managed", "attached")] == [works] * 3,
               (way, found))


main()
models = setting.fresh_stage("prefork")
setting.run(lambda: check_worker_models(models), models)
