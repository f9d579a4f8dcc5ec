#!/usr/bin/env python3
"""heddle park and unpark: with a driver that stands in for the real one, who is meant, what is
said, and that a program whose parking fails goes on; on the simulated GPU, that nothing is lost
and nobody hangs.

Usage: park.py LIBFAKE_CHECKPOINT.so
"""

import json
import pathlib
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/fault"))
import setting  # noqa: E402  (the folder is known only now)
import stage  # noqa: E402


def check(where, fake):
    states = where.folder / "states"
    shutil.rmtree(states, ignore_errors=True)
    states.mkdir()

    def heddle(*arguments, code=0, **more):
        env = where.env | {"HEDDLE_REAL_LIBCUDA": fake, "FAKE_CHECKPOINT": str(states)} | more
        return run_heddle(env, arguments, code)

    def launches():
        clients = where.heddle("ps")["clients"]
        return next(c["counters"]["launches"] for c in clients if c["label"] == "batch")

    def goes_on():
        before = launches()
        return stage.wait_until(lambda: launches() > before + 20, 10, "it launches again")

    assert "no daemon" in heddle("park", "batch", code=1)
    where.start_daemon("priority")
    demo = where.start_demo("batch", "demo", 1, 12, 0, managed=True)
    stage.wait_until(lambda: where.heddle("ps")["clients"], 20, "it attached")
    goes_on()
    pid = where.heddle("ps")["clients"][0]["pid"]
    assert "'nobody' is neither the label of a client nor a PID" in heddle("park", "nobody", code=1)
    assert heddle("park") == f"batch, pid {pid}: on the GPU\n"
    assert "is not parked" in heddle("unpark", "batch", code=1)

    assert f"batch, pid {pid}: parked in 0.0 s" in heddle("park", "batch", "--force")
    before = launches()
    time.sleep(0.3)
    assert launches() <= before + 1, "its calls wait"
    assert heddle("park") == f"batch, pid {pid}: parked\n"
    assert "is parked already" in heddle("park", pid, code=1)
    said = heddle("unpark", "batch", code=1, FAKE_CHECKPOINT_FAILS="restore:2")
    assert "stays parked: CUDA_ERROR_FAKE; free memory of the GPU" in said, said
    found, = json.loads(heddle("--json", "unpark", "batch"))["programs"]
    assert found["pid"] == pid and found["state"] == "on the GPU" and found["seconds"] < 5, found
    goes_on()

    said = heddle("park", pid, "--force", code=1, FAKE_CHECKPOINT_FAILS="save:2")
    assert f"batch, pid {pid}: was not parked: CUDA_ERROR_FAKE; it goes on" in said, said
    goes_on()
    said = heddle("park", pid, "--force", code=1, FAKE_CHECKPOINT_FAILS="lock:909")
    assert "was not locked, and goes on" in said, said
    said = heddle("park", pid, code=1, FAKE_CHECKPOINT_FAILS="state:801")
    assert "under MPS it parks nobody" in said, said
    goes_on()

    # Without a daemon by its PID.
    where.stop_daemon()
    assert "is not known; --force" in heddle("park", pid, code=1)
    assert f"pid {pid}: parked" in heddle("park", pid, "--force")
    assert f"pid {pid}: back" in heddle("unpark", pid)
    demo.finish()
    assert "parking needs the driver" in heddle("park", 1, code=1,
                                                HEDDLE_REAL_LIBCUDA="/nowhere.so")


def run_heddle(env, arguments, code):
    done = subprocess.run([stage.HEDDLE, *map(str, arguments)], env=env, text=True,
                          capture_output=True, timeout=60)
    assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr


def simulated(where):
    return where.env | {"HEDDLE_REAL_LIBCUDA": str(stage.SIM / "libcuda.so.1")}


def refused_under_mps(where):
    where.start_daemon("priority")
    demo = where.start_demo("batch", "refused", 1, 2, 0, managed=True)
    stage.wait_until(lambda: where.heddle("ps")["clients"], 20, "it attached")
    said = run_heddle(simulated(where), ["park", "batch"], 1)
    assert "under MPS it parks nobody" in said, said
    demo.finish()


def parked_beside_a_service(where):
    """Parked while it is held, beside a service at work; while heddled dies; and killed."""
    def heddle(*arguments, code=0):
        return run_heddle(simulated(where), arguments, code)

    def launches():
        found = {c["label"]: c["counters"]["launches"] for c in where.heddle("ps")["clients"]}
        return found.get("latency", 0), found.get("batch", 0)

    def both_go_on():
        before = launches()
        stage.wait_until(lambda: all(now > then + 10 for now, then in zip(launches(), before)), 10,
                         "both launch")

    where.next_gpu("parked")
    where.start_daemon("priority")
    demos = [where.start_demo(role, "parked", 1, 8, 0, managed=True) for role in stage.CLASSES]
    stage.wait_until(lambda: min(launches()) > 0, 20, "both attached")
    both_go_on()
    pid = next(c["pid"] for c in where.heddle("ps")["clients"] if c["label"] == "batch")
    assert f"batch, pid {pid}: parked" in heddle("park", "batch")
    served, held = launches()
    time.sleep(0.5)
    now = launches()
    assert now[0] > served + 10 and now[1] <= held + 1, (served, held, now)
    heddle("unpark", "batch")
    both_go_on()

    heddle("park", pid)
    where.daemon.kill()
    where.daemon.wait()
    where.respawn_daemon()
    assert "is parked already" in heddle("park", pid, code=1)
    heddle("unpark", pid)
    stage.wait_until(lambda: min(launches()) > 0, 20, "both attached again")
    both_go_on()
    for demo in demos:
        demo.finish()  # with the right values

    demos = [where.start_demo(role, "killed", 2, 5, 0, managed=True) for role in stage.CLASSES]
    stage.wait_until(lambda: min(launches()) > 0, 20, "both attached")
    heddle("park", "batch")
    batch = demos[list(stage.CLASSES).index("batch")]
    pid = next(c["pid"] for c in where.heddle("ps")["clients"] if c["label"] == "batch")
    subprocess.run(["kill", "-9", str(pid)], check=True)
    batch.process.wait(20)
    stage.wait_until(lambda: "batch" not in heddle("park"), 10, "it has left")
    demos[list(stage.CLASSES).index("latency")].finish()


where = setting.fresh_stage("park", "timeslice")
setting.run(lambda: check(where, sys.argv[1]), where)
where = setting.fresh_stage("refused", "mps")
setting.run(lambda: refused_under_mps(where), where)
where = setting.fresh_stage("parked", "timeslice")
setting.run(lambda: parked_beside_a_service(where), where)
