#!/usr/bin/env python3
"""`heddle doctor` on the simulated driver with a stand-in for NVML, and with one of drivers from
615 on: doctor.py FAKE_NVML FAKE_NVML_615

A program without heddle is named, by NVML's word or /proc's, and so is its pod; an attached one is
not. What a newer driver has more is named. The exit code says whether anything is wrong.
"""

import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
CGROUPS = pathlib.Path("/sys/fs/cgroup")
sys.path.insert(0, str(ROOT / "tests/fault"))
import setting  # noqa: E402  (the folder is known only now)
import stage  # noqa: E402
from setting import expect  # noqa: E402


def doctor(where, *within, **environment):
    """Exit code, and what it found by topic: [(level, text), ...]. `within`: what starts it."""
    env = where.env | {"HEDDLE_NVML": sys.argv[1],
                       "HEDDLE_REAL_LIBCUDA": str(stage.SIM / "libcuda.so.1")} | environment
    done = subprocess.run([*within, stage.HEDDLE, "doctor", "--json"], env=env,
                          capture_output=True, text=True, timeout=60)
    found = {}
    for finding in json.loads(done.stdout)["findings"]:
        found.setdefault(finding["topic"], []).append((finding["level"], finding["text"]))
    return done.returncode, found


def everything_is_seen():
    """Whether this test may look at every process of the host."""
    if os.readlink("/proc/self/ns/pid") != "pid:[4026531836]":
        return False
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            for descriptor in (process / "fd").iterdir():
                descriptor.readlink()
        except PermissionError:
            return False
        except OSError:
            pass  # it ended
    return True


def start_holder():
    """A process with a GPU open, as /proc says; None if it can have no /dev of its own."""
    holder = subprocess.Popen(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c",
         "mount -t tmpfs none /dev && exec 3<>/dev/nvidia-uvm && echo ready && exec sleep 60"],
        stdout=subprocess.PIPE, text=True)
    if holder.stdout.readline() == "ready\n":
        return holder
    holder.wait()
    return None


def check_unlisted(where):
    """What NVML leaves out, and numbers that it has of another PID namespace."""
    pid = 1 << 30  # above all that Linux gives
    code, found = doctor(where, FAKE_NVML_PIDS=str(pid))
    level, text = found["bypassed"][0]
    expect(code == 0 and level == "warn" and text.startswith(f"not known: NVML lists pid {pid}"),
           found["bypassed"])
    holder = start_holder()
    if holder is None:
        print("no user and mount namespaces here: nobody has a GPU open")
        return
    try:
        code, found = doctor(where)
        named = [text for level, text in found["bypassed"] if f"pid {holder.pid} " in text]
        expect(code == 0 and len(named) == 1 and "has a GPU open" in named[0], found["bypassed"])
    finally:
        holder.kill()
        holder.wait()


def check_pod(where):
    """A process of a pod is named by the kubelet's link, and so is the remedy of a pod."""
    root = next((r for r in (CGROUPS / "unified", CGROUPS)
                 if os.access(r / "cgroup.procs", os.W_OK)), None)
    if os.geteuid() != 0 or root is None:
        print("no cgroups can be made here: no program is in a pod")
        return
    container = f"{os.getpid():064x}"
    group = root / f"cri-containerd-{container}.scope"
    group.mkdir()
    program = subprocess.Popen(["sleep", "60"])
    try:
        (group / "cgroup.procs").write_text(str(program.pid))
        link = f"/var/log/containers/api-5d9f_team-a_main-{container}.log"
        own_log = f'mount -t tmpfs none /var/log && install -D /dev/null {link} && exec "$@"'
        _, found = doctor(where, "unshare", "--mount", "sh", "-c", own_log, "sh",
                          FAKE_NVML_PIDS=str(program.pid))
        named = [text for _, text in found["bypassed"] if text.startswith(f"pid {program.pid} ")]
        expect(len(named) == 1 and "(pod team-a/api-5d9f, container main)" in named[0], found)
    finally:
        program.kill()
        program.wait()
        group.rmdir()


def check_host_limits(where):
    """What a newer driver and kernel hold memory with is named, and where it is not, nothing."""
    own = "present, heddle's own limit is in force"
    _, found = doctor(where, HEDDLE_CGROUP=str(where.folder / "none"))
    expect("memory" not in found, found)
    groups = where.folder / "cgroup"
    groups.mkdir(exist_ok=True)
    (groups / "cgroup.controllers").write_text("cpuset cpu io memory dmem pids\n")
    _, found = doctor(where, HEDDLE_NVML=sys.argv[2], HEDDLE_CGROUP=str(groups))
    expect(found["memory"] == [
        ("ok", f"NVML's limits by cgroup are {own}"),
        ("ok", f"the cgroup controller dmem of {groups} is {own}")], found)
    (groups / "cgroup.controllers").write_text("cpu dmemory\n")
    _, found = doctor(where, HEDDLE_CGROUP=str(groups))
    expect("memory" not in found, found)


def check_mps(where):
    """An MPS that heddled did not start, and how it divides the SMs."""
    tools, pipes = where.folder / "tools", where.folder / "pipes"
    for folder in (tools, pipes):
        folder.mkdir(exist_ok=True)
    control = tools / "nvidia-cuda-mps-control"
    control.unlink(missing_ok=True)
    control.symlink_to(ROOT / "tests/integration/fake_mps.py")
    environment = {"PATH": f"{tools}:{os.environ['PATH']}", "CUDA_MPS_PIPE_DIRECTORY": str(pipes),
                   "CUDA_MPS_LOG_DIRECTORY": str(pipes), "FAKE_MPS_PERCENTAGE": "50"}
    subprocess.run([control, "-d", "-S"], env=where.env | environment, check=True)
    try:
        code, found = doctor(where, **environment)
        pid = (pipes / "nvidia-cuda-mps-control.pid").read_text()
        expect(code == 0 and f"(pid {pid})" in found["foreign MPS"][0][1], found)
        texts = [text for _, text in found["MPS SMs"]]
        expect(len(texts) == 2, texts)
        expect("50 % of the SMs" in texts[0] and "statically" in texts[1], texts)
    finally:
        subprocess.run([control], input="quit\n", text=True, env=where.env | environment,
                       check=True)


def check(where):
    code, found = doctor(where)
    expect(code == 1 and found["daemon"][0][0] == "error", ("no daemon is wrong", found))
    expect(found["stops"] == [("note", "not known: no heddled answers")], found)
    driver = stage.SIM / "libcuda.so.1"
    expect(found["driver"][0] == ("ok", f"{driver}, CUDA 13.0"), found["driver"])
    where.start_daemon("priority")
    code, found = doctor(where)
    expect("entry points" in found, found)
    level, text = found.pop("bypassed")[0]
    expect(level == ("ok" if everything_is_seen() else "warn"), (level, text))
    expect(level == "ok" or text.startswith("not known: "), text)
    expect(found.pop("stops") == [("note", "not asked yet; heddle doctor --stop")], found)
    expect(code == 0 and {f[0] for all in found.values() for f in all} == {"ok"}, found)
    check_unlisted(where)
    check_pod(where)
    check_host_limits(where)
    check_mps(where)

    where.env["CUDA_DEVICE_MAX_CONNECTIONS"] = "2"
    managed = where.start_demo("batch", "doctor", 1, 3, 0, managed=True)
    del where.env["CUDA_DEVICE_MAX_CONNECTIONS"]
    bare = where.start_demo("latency", "doctor", 1, 3, 0, managed=False)
    try:
        stage.wait_until(lambda: where.heddle("ps")["clients"], 10, "a client")
        pids = f"{managed.process.pid},{bare.process.pid}"
        code, found = doctor(where, FAKE_NVML_PIDS=pids)
        named = [text for _, text in found["bypassed"] if text.startswith("pid ")]
        expect(code == 0 and len(named) == 1 and f"pid {bare.process.pid} " in named[0], found)
        expect("heddle-demo" in named[0], named)
        queues = [text for _, text in found["queues"]]
        expect(len(queues) == 1 and f"pid {managed.process.pid}: " in queues[0], queues)
    finally:
        managed.finish()
        bare.finish()

    # A name that is no UTF-8, as programs may have.
    nowhere = subprocess.run([stage.HEDDLE, "--socket", b"/nowhere/\xff", "ps", "--json"],
                             capture_output=True, timeout=20)
    expect(nowhere.returncode == 3 and json.loads(nowhere.stdout)["exit_code"] == 3, nowhere)

    # A driver of tomorrow: one of its names is new.
    newer = where.folder / "libcuda.so.1"
    image = driver.read_bytes()
    expect(b"\0cuGraphLaunch_ptsz\0" in image, "the simulated driver exports it")
    newer.write_bytes(image.replace(b"\0cuGraphLaunch_ptsz\0", b"\0cuGraphLaunch_v999\0"))
    code, found = doctor(where, HEDDLE_REAL_LIBCUDA=str(newer))
    level, text = found["entry points"][0]
    expect(code == 0 and level == "warn" and text.endswith(": cuGraphLaunch_v999"), found)

    code, found = doctor(where, FAKE_NVML_MODE="3")
    expect(code == 1 and found["gpu"][0][0] == "error", found["gpu"])
    code, found = doctor(where, HEDDLE_REAL_LIBCUDA="/nowhere")
    expect(code == 1 and found["driver"][0][0] == "error", found["driver"])
    code, found = doctor(where, LD_PRELOAD="/gone.so")
    expect(code == 0 and found["preload"][0][0] == "warn", found["preload"])
    where.heddle("bypass", "on")
    code, found = doctor(where)
    expect(code == 0 and found["bypass"][0][0] == "warn", found)


def main():
    os.environ.pop("LD_PRELOAD", None)
    where = setting.fresh_stage("doctor", "timeslice")
    setting.run(lambda: check(where), where)


if __name__ == "__main__":
    main()
