#!/usr/bin/env python3
"""What runs of a program is stopped in its middle on the simulated GPU, and goes on, whatever ends
meanwhile: the program above, heddled, or the program itself. Each launch runs once."""

import json
import os
import pathlib
import signal
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples/quickstart"))
import stage  # noqa: E402  (the folder is known only now)

LONG = ("--kernel-ms", 30)
DENSE = ("--kernel-ms", 400)  # who is below stands until the starvation bound


def client(run, label):
    """What `heddle ps` says of it on its GPU, {} before it is there."""
    clients = (run.heddle("ps", check=False) or {"clients": []})["clients"]
    found = [c["devices"][0] for c in clients if c["label"] == label and c["devices"]]
    return found[0] if found else {}


def stopped(run, more_than=0):
    return client(run, "batch").get("stops", 0) > more_than


def done(run, label):
    """Kernels of it that the simulated GPU has run."""
    lines = run.sim_log.read_text().splitlines()
    entries = [json.loads(line) for line in lines if line.endswith("}")]
    return sum(1 for e in entries if e["label"] == label and "start_ns" in e)


def beside_a_service(run):
    """Both compute what they should, and the longer one was stopped."""
    run.next_gpu("service")
    batch = run.start_demo("batch", "service", 1, 4, time.monotonic_ns(), True, LONG)
    service = run.start_demo("latency", "service", 2, 3, time.monotonic_ns(), True)
    stage.wait_until(lambda: stopped(run, 5), 20, "six stops")
    assert client(run, "batch")["stopped_us"] > 0
    results = {"batch": batch.finish(), "latency": service.finish()}
    run.check_answers(results)


def dense_above(run, name, seconds):
    """One that stands below a program without pauses."""
    run.next_gpu(name)
    batch = run.start_demo("batch", name, 1, seconds, time.monotonic_ns(), True, LONG)
    stage.wait_until(lambda: client(run, "batch").get("launches", 0) > 2, 20, "batch")
    above = run.start_demo("latency", name, 2, seconds + 20, time.monotonic_ns(), True, DENSE)
    stage.wait_until(lambda: stopped(run), 20, f"{name}: a stop")
    return batch, above


def ended(demo):
    if demo.process.poll() is None:
        demo.process.kill()
    demo.process.wait(20)


def the_program_ends(run):
    batch, above = dense_above(run, "ends", 3)
    result = batch.finish()  # it waits for its kernels, which go on by the starvation bound
    assert result["checksum_ok"], result
    ended(above)


def the_program_is_killed(run):
    batch, above = dense_above(run, "killed", 30)
    begin = time.monotonic()
    batch.process.kill()
    batch.process.wait(20)
    assert time.monotonic() - begin < 10
    before = done(run, "latency")
    stage.wait_until(lambda: done(run, "latency") > before, 20, "the other goes on")
    ended(above)


def heddled_stands_still(run):
    batch, above = dense_above(run, "still", 40)
    os.kill(run.daemon.pid, signal.SIGSTOP)
    try:
        before = done(run, "batch")
        stage.wait_until(lambda: done(run, "batch") > before + 3, 20, "it goes on by itself")
    finally:
        os.kill(run.daemon.pid, signal.SIGCONT)
    ended(batch)
    ended(above)


def heddled_is_killed(run):
    batch, above = dense_above(run, "gone", 40)
    run.daemon.kill()
    run.daemon.wait(10)
    before = done(run, "batch")
    stage.wait_until(lambda: done(run, "batch") > before + 3, 20, "it goes on by itself")
    ended(batch)
    ended(above)
    run.respawn_daemon()


def who_says_no(run):
    """HEDDLE_STOPS=0: never, and ps says why."""
    run.next_gpu("no")
    run.env["HEDDLE_STOPS"] = "0"
    batch = run.start_demo("batch", "no", 1, 3, time.monotonic_ns(), True, LONG)
    service = run.start_demo("latency", "no", 2, 2, time.monotonic_ns(), True)
    stage.wait_until(lambda: client(run, "latency").get("launches", 0) > 20, 20, "a service")
    row = client(run, "batch")
    assert row["stops"] == 0 and "HEDDLE_STOPS" in row["stops_not_because"], row
    run.check_answers({"batch": batch.finish(), "latency": service.finish()})
    del run.env["HEDDLE_STOPS"]


def main():
    with tempfile.TemporaryDirectory() as folder:
        run = stage.Stage(pathlib.Path(folder), "timeslice")
        try:
            run.start_daemon("priority")
            for test in (beside_a_service, the_program_ends, the_program_is_killed,
                         heddled_stands_still, heddled_is_killed, who_says_no):
                print(test.__name__, flush=True)
                test(run)
        finally:
            run.close()


main()
