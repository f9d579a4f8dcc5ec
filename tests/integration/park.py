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

sys.path.insert(0, str(ROOT / "bench"))
from harness.processes import HostError, Job  # noqa: E402


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


TENANT_MIB = 400
LIMIT = f"""
[[rule]]
label = "team*"
memory = "{2 * TENANT_MIB + 100}MiB"
park = true
"""


class Tenant:
    """A program that holds memory and works when it is asked (bench/harness: the job protocol)."""

    def __init__(self, where, label):
        words = [stage.HEDDLE, "run", "--quiet", "--sim", "--label", label, "--",
                 stage.DIST / "libexec/heddle/heddle-synthetic", "--kernels", 3, "--kernel-us",
                 "200:0", "--seed", 1, "--memory-mib", TENANT_MIB]
        self.label, self.where = label, where
        self.job = Job(label, "be", [str(word) for word in words], where.env,
                       where.folder / f"{label}.log")

    def begin(self, seconds):
        self.job.send("go", time.monotonic(), seconds, 0.1, 0)

    def work(self, seconds=0.2):
        self.begin(seconds)
        return self.end()

    def end(self):
        answer = self.job.answer(40)
        assert answer["us"], answer
        return self

    def at(self):
        found, = [c for c in self.where.heddle("ps")["clients"] if c["label"] == self.label]
        return found["memory_at"]


def more_tenants_than_memory(where):
    where.env |= simulated(where)
    where.start_daemon("priority", LIMIT)

    def tenant(name):
        one = Tenant(where, name)
        one.job.wait_ready(30)
        return one

    def places():
        return {one.at() for one in tenants}

    tenants = [tenant("team a"), tenant("team b")]
    for one in tenants:
        one.work()
    tenants.append(tenant("team c"))  # beyond the limit: who has been idle for longest makes room
    assert [one.at() for one in tenants] == ["parked", "resident", "resident"]
    said = run_heddle(where.env, ["unpark", "team a"], 1)
    assert "was parked by heddled, and comes back with its next call" in said, said
    for one in tenants * 2:  # its next call brings it back, and another one leaves
        one.work()
        assert one.at() == "resident" and "parked" in places(), places()

    # Who keeps it is killed: heddled brings it back, and nothing is lost.
    away = next(one for one in tenants if one.at() == "parked")
    keeper = subprocess.run(["pgrep", "-P", str(where.daemon.pid)], text=True, check=True,
                            capture_output=True).stdout.split()
    subprocess.run(["kill", "-9", *keeper], check=True)
    stage.wait_until(lambda: away.at() == "resident", 10, "the killed keeper's tenant is back")
    away.work()

    # heddled is killed: what it kept comes back by itself, and works on under the next one.
    tenants[1].job.stop()
    del tenants[1]
    tenants.append(tenant("team d").work())
    for one in tenants:
        one.work()
    assert "parked" in places(), places()
    where.daemon.kill()
    where.daemon.wait()
    where.respawn_daemon()
    for one in tenants:
        one.work()

    # A parked one is killed, another ends while it is parked.
    tenants.append(tenant("team e"))
    for _ in range(2):
        away = stage.wait_until(lambda: next((t for t in tenants if t.at() == "parked"), None), 10,
                                "one is parked")
        tenants.remove(away)
        away.job.give_up() if _ == 0 else away.job.stop()
        assert stage.wait_until(lambda: len(where.heddle("ps")["clients"]) == len(tenants), 10,
                                "it has left")
        tenants.append(tenant(f"team {_}"))
    for one in tenants:
        one.work()
        one.job.stop()


def one_at_work_leaves_at_last(where):
    """Nobody idles, and one waits for room: after ten seconds another's next calls wait instead."""
    where.env |= simulated(where)
    where.start_daemon("priority", LIMIT)
    tenants = [Tenant(where, f"team {name}") for name in "abc"]
    for one in tenants:
        one.job.wait_ready(30)
    waits = stage.wait_until(lambda: next((t for t in tenants if t.at() == "parked"), None), 10,
                             "one is parked")
    at_work = [one for one in tenants if one is not waits]
    for one in at_work:
        one.begin(14)
    begin = time.monotonic()
    waits.work()
    assert 9 < time.monotonic() - begin < 13.5, time.monotonic() - begin
    for one in at_work:
        one.end().job.stop()
    waits.job.stop()


# Holds memory; each line has it make an event, a call that the shim does not wrap.
QUIET = f"""
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, at, make, event = (ctypes.c_void_p() for _ in range(4))
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t({TENANT_MIB} << 20)) == 0
assert cuda.cuGetProcAddress(b"cuEventCreate", ctypes.byref(make), 12000, ctypes.c_uint64(0)) == 0
for line in sys.stdin:
    call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_uint)(make.value)
    print(call(ctypes.addressof(event), 0), flush=True)
"""


def any_call_brings_it_back(where):
    where.env |= simulated(where)
    where.start_daemon("priority", LIMIT)
    quiet = subprocess.Popen(
        [stage.HEDDLE, "run", "--quiet", "--sim", "--label", "team q", "--", sys.executable, "-c",
         QUIET], env=where.env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def call():
        print("", file=quiet.stdin, flush=True)
        return quiet.stdout.readline()

    assert call() == "0\n"
    tenants = [Tenant(where, "team a"), Tenant(where, "team b")]
    for one in tenants:
        one.job.wait_ready(30)
    assert where.heddle("ps")["clients"][0]["memory_at"] == "parked"
    assert call() == "0\n"
    assert where.heddle("ps")["clients"][0]["memory_at"] == "resident"
    quiet.stdin.close()
    assert quiet.wait(20) == 0
    for one in tenants:
        one.work()
        one.job.stop()


# Who has no work leaves at once, whether others need the room or not.
TIDY = """
return policy {
  name = "tidy", api = 1, version = "1.0.0",
  hooks = {
    tick = function(g)
      for c in g:clients() do
        if c.label == "team b" and c.parked then
          c:unpark()
        elseif c.label == "team a" and not c.active and c.resident_bytes > 0 then
          c:park()
        end
      end
    end,
  },
}
"""


def by_policy(where):
    where.env |= simulated(where)
    path = where.folder / "tidy.lua"
    path.write_text(TIDY)
    where.start_daemon(path, LIMIT)
    tenants = [Tenant(where, "team a"), Tenant(where, "team b")]
    for one in tenants:
        one.job.wait_ready(30)
    tenants[0].work()

    def parked(whose, wanted):
        tenants[1].work()  # a policy is asked while somebody is at work
        return (whose.at() == "parked") == wanted

    stage.wait_until(lambda: parked(tenants[0], True), 20, "the policy parks who has no work")
    tenants[0].work()
    stage.wait_until(lambda: parked(tenants[0], True), 20, "and again")
    tenants.append(Tenant(where, "team c"))  # it has room beside who is parked
    tenants[2].job.wait_ready(30)
    for one in tenants:
        one.work()
        one.job.stop()


def nobody_allows_it(where):
    where.env |= simulated(where)
    where.start_daemon("priority", LIMIT.replace("park = true", ""))
    tenants = [Tenant(where, "team a"), Tenant(where, "team b")]
    for one in tenants:
        one.job.wait_ready(30)
        one.work()
    third = Tenant(where, "team c")
    try:
        third.job.wait_ready(30)
        raise stage.StageError("a third tenant had room")
    except HostError:
        pass  # out of memory
    for one in tenants:
        one.job.stop()


for name, mode, body in (
        ("park", "timeslice", lambda where: check(where, sys.argv[1])),
        ("refused", "mps", refused_under_mps),
        ("parked", "timeslice", parked_beside_a_service),
        ("tenants", "timeslice", more_tenants_than_memory),
        ("any call", "timeslice", any_call_brings_it_back),
        ("at work", "timeslice", one_at_work_leaves_at_last),
        ("policy", "timeslice", by_policy),
        ("not allowed", "timeslice", nobody_allows_it)):
    stage_of_it = setting.fresh_stage(name, mode)
    setting.run(lambda body=body, where=stage_of_it: body(where), stage_of_it)
