#!/usr/bin/env python3
"""heddle record on the simulated GPU, from an installed tree: what it writes is shown, drawn, and
decides the same when it is replayed; who may not, and what cannot be, is told in one line."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
DIST = ROOT / "dist"
HEDDLE = DIST / "bin/heddle"
DEMO = DIST / "libexec/heddle/heddle-demo"


def heddle(*arguments, code=0):
    done = subprocess.run([HEDDLE, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
    return done


def main():
    if not (DIST / "bin/heddled").exists():
        print("dist/ is not installed")
        return 77
    with tempfile.TemporaryDirectory(prefix="heddle-rec-") as folder:
        os.environ["HEDDLE_SOCKET"] = f"{folder}/s"
        os.environ["HEDDLE_SIM_SOCKET"] = f"{folder}/gpu"
        trace = f"{folder}/t.trace"
        refused = heddle("record", trace, code=3)
        assert refused.stderr.count("\n") == 1 and "no daemon" in refused.stderr, refused.stderr
        assert not os.path.exists(trace), "what was there would be lost"
        daemon = subprocess.Popen([DIST / "bin/heddled", "--socket", f"{folder}/s", "--policy",
                                   "gapfill"], stderr=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + 20
            while not os.path.exists(f"{folder}/s"):
                assert time.monotonic() < deadline, "heddled does not start"
                time.sleep(0.01)
            check(folder, trace)
        finally:
            daemon.terminate()
            daemon.wait(20)
    return 0


def check(folder, trace):
    recorder = subprocess.Popen([HEDDLE, "record", trace], stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 20
    while not os.path.exists(trace) or os.path.getsize(trace) == 0:  # its header: it records
        assert time.monotonic() < deadline, "heddle record does not start"
        time.sleep(0.01)
    second = heddle("record", f"{folder}/other", code=1)
    assert "another heddle record runs" in second.stderr, second.stderr
    demos = [subprocess.Popen([HEDDLE, "run", "--sim", "-q", "--class", role, "--", DEMO, role,
                               "--seconds", "1", "--seed", "1"], stdout=subprocess.DEVNULL)
             for role in ("batch", "latency")]
    for demo in demos:
        assert demo.wait(60) == 0
    recorder.terminate()  # as Ctrl-C
    said, _ = recorder.communicate(timeout=20)
    assert recorder.returncode == 0 and " records" in said, said

    shown = json.loads(heddle("trace", "show", trace, "--json").stdout)
    assert shown["lost"] == 0 and shown["policies"][0]["name"] == "gapfill", shown
    assert {c["priority"] for c in shown["clients"]} == {0, 9}, shown["clients"]
    for client in shown["clients"]:
        assert client["launches"] > 50 and client["duration"]["p50_us"] > 100, client
    replayed = json.loads(heddle("trace", "replay", trace, "--json").stdout)
    assert replayed["complete"] and replayed["differing"] == 0, replayed
    assert replayed["decisions"] > 50, replayed

    heddle("trace", "export", trace, "--perfetto", f"{folder}/p.json")
    events = json.loads(pathlib.Path(folder, "p.json").read_text())["traceEvents"]
    kinds = {event["ph"] for event in events}
    assert {"X", "M", "i", "C"} <= kinds, kinds
    assert all(event["dur"] >= 0 and event["ts"] >= 0 for event in events if event["ph"] == "X")

    whole = pathlib.Path(trace).read_bytes()
    cut = pathlib.Path(folder, "cut.trace")
    cut.write_bytes(whole[:len(whole) // 2])
    told = heddle("trace", "show", str(cut), code=1).stderr
    assert told.count("\n") == 1 and "cut.trace: byte " in told and "truncated" in told, told


if __name__ == "__main__":
    sys.exit(main())
