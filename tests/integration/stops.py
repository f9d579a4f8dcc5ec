#!/usr/bin/env python3
"""What runs of a program is stopped in its middle on the simulated GPU, and goes on, whatever ends
meanwhile: the program above, heddled, or the program itself. Each launch runs once."""

import ctypes
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples/quickstart"))
import stage  # noqa: E402  (the folder is known only now)

LONG = ("--kernel-ms", 30)
DENSE = ("--kernel-ms", 400)  # who is below stands until the starvation bound
PROGRAM = ROOT / "tests/integration/stopped_program.py"
PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH, WALL = 0x4206, 0x4207, 17, 0x40000000


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


def goes_on(run, label, launches=6):
    before = client(run, label)["launches"]
    stage.wait_until(lambda: client(run, label)["launches"] >= before + launches, 20,
                     f"{label} goes on")


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


def set_live(run):
    """A change of the policy's parameter holds for who is attached, also while it stands."""
    batch, above = dense_above(run, "set", 40)
    run.heddle("policy", "set", "active", "stop=never")
    goes_on(run, "batch")
    stops = client(run, "batch")["stops"]
    goes_on(run, "latency")
    assert client(run, "batch")["stops"] == stops
    run.heddle("policy", "set", "active", "stop=long")
    stage.wait_until(lambda: stopped(run, stops), 20, "another stop")
    ended(batch)
    ended(above)


def stopped_often(run, name):
    run.next_gpu(name)
    batch = run.start_demo("batch", name, 1, 40, time.monotonic_ns(), True, LONG)
    service = run.start_demo("latency", name, 2, 40, time.monotonic_ns(), True)
    stage.wait_until(lambda: stopped(run, 5), 20, "six stops")
    return batch, service


def the_program_stands_still(run):
    """SIGSTOP, and on: the other goes on meanwhile."""
    batch, service = stopped_often(run, "still")
    os.kill(batch.process.pid, signal.SIGSTOP)
    try:
        goes_on(run, "latency", 60)
    finally:
        os.kill(batch.process.pid, signal.SIGCONT)
    stops = client(run, "batch")["stops"]
    goes_on(run, "batch")
    stage.wait_until(lambda: stopped(run, stops + 5), 20, "six more stops")
    ended(batch)
    ended(service)


def ptrace(request, pid):
    libc = ctypes.CDLL(None, use_errno=True)
    done = libc.ptrace(request, pid, ctypes.c_void_p(), ctypes.c_void_p())
    assert done == 0, os.strerror(ctypes.get_errno())


def traced(run):
    """Not stopped meanwhile, and ps says why."""
    batch, service = stopped_often(run, "traced")
    pid = batch.process.pid
    ptrace(PTRACE_SEIZE, pid)
    why = stage.wait_until(lambda: client(run, "batch")["stops_not_because"], 20, "why")
    assert "debugger" in why, why
    stops = client(run, "batch")["stops"]
    goes_on(run, "latency", 60)
    goes_on(run, "batch")
    assert client(run, "batch")["stops"] == stops
    told = subprocess.run([stage.HEDDLE, "ps", "-v"], env=run.env, text=True, capture_output=True)
    assert why in told.stdout, told
    ptrace(PTRACE_INTERRUPT, pid)
    os.waitpid(pid, WALL)
    ptrace(PTRACE_DETACH, pid)
    stage.wait_until(lambda: stopped(run, stops), 20, "a stop")
    ended(batch)
    ended(service)


class Program:
    """stopped_program.py, its kernels under way."""

    def __init__(self, run, name):
        self.log = run.folder / f"{name}.program.log"
        command = [stage.HEDDLE, "run", "--sim", "--class", "batch", "--label", "batch", "--",
                   sys.executable, PROGRAM]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command, env=run.env | {"HEDDLE_LABEL": "batch"},
                                            stdin=subprocess.PIPE, stdout=log, stderr=log)
        self.says("launched")

    def says(self, word, times=1):
        stage.wait_until(lambda: self.log.read_text().split().count(word) >= times, 20,
                         f"{self.log}: {word}")

    def tell(self, word):
        self.process.stdin.write(word + b"\n")
        self.process.stdin.flush()

    def finish(self):
        self.process.stdin.close()
        status = self.process.wait(20)
        assert status == 0, (status, stage.tail(self.log))


def program_below(run, name):
    """It stands below a program with short pauses, beyond all that is waited for here."""
    run.stop_daemon()
    run.start_daemon("priority", gpu="starvation_ms = 120000")
    run.next_gpu(name)
    program = Program(run, name)
    above = run.start_demo("latency", name, 2, 60, time.monotonic_ns(), True, DENSE)
    stage.wait_until(lambda: stopped(run), 20, f"{name}: a stop")
    goes_on(run, "latency")
    return program, above


def another_program_takes_its_place(run):
    """exec: what the first had on the GPU is gone, and what comes is stopped as anybody is."""
    program, above = program_below(run, "exec")
    program.tell(b"exec")
    program.says("launched", 2)
    stage.wait_until(lambda: "exit_ns" in run.sim_log.read_text(), 20, "the first left the GPU")
    goes_on(run, "latency")
    ended(above)
    program.finish()
    assert len(run.kernels(["batch"])["batch"]) == 2


def a_context_ends_while_it_stands(run):
    """Of two: its end waits for its kernel, which goes on for that."""
    program, above = program_below(run, "contexts")
    told_ns = time.monotonic_ns()
    program.tell(b"destroy")
    program.says("destroyed")
    goes_on(run, "latency")
    ended(above)
    program.finish()
    ran = run.kernels(["batch"])["batch"]
    assert len(ran) == 2 and all(kernel["end_ns"] > told_ns for kernel in ran), ran


def main():
    with tempfile.TemporaryDirectory() as folder:
        run = stage.Stage(pathlib.Path(folder), "timeslice")
        try:
            run.start_daemon("priority")
            for test in (beside_a_service, the_program_ends, the_program_is_killed,
                         heddled_stands_still, heddled_is_killed, who_says_no, set_live,
                         the_program_stands_still, traced, another_program_takes_its_place,
                         a_context_ends_while_it_stands):
                print(test.__name__, flush=True)
                test(run)
        finally:
            run.close()


main()
