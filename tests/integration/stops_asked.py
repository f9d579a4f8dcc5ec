#!/usr/bin/env python3
"""Whether a GPU can stop kernels is asked of it, kept, and believed: stops_asked.py FAKE_NVML

On the simulated GPU: `heddle doctor --stop` gets a yes, or a no of a driver that refuses. heddled
reads what is kept, `[gpu] stops` wins, and a file that is none is told.
"""

import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/fault"))
import setting  # noqa: E402  (the folder is known only now)
import stage  # noqa: E402
from setting import expect  # noqa: E402

GPU = "GPU-68656464-6c65-2d73-696d-2d6770752d30"  # the simulated one


def ask(where, *options, **environment):
    """Exit code and answer of `heddle doctor --stop --sim`."""
    done = subprocess.run([stage.HEDDLE, "--json", "doctor", "--stop", "--sim", *options],
                          env=where.env | environment, capture_output=True, text=True, timeout=60)
    return done.returncode, json.loads(done.stdout)


def stops(where):
    return where.heddle("status")["stops"]


def can_stop(where):
    """heddled's word on the GPU of a client that is there."""
    demo = where.start_demo("latency", "stops", 1, 1, 0, managed=True)
    try:
        stage.wait_until(lambda: where.heddle("status")["devices"], 10, "a client")
        device, = where.heddle("status")["devices"]
        page = subprocess.run([stage.HEDDLE, "metrics"], env=where.env, capture_output=True,
                              text=True, timeout=20).stdout
        told = [line for line in page.splitlines() if line.startswith("heddle_gpu_can_stop{")]
        expect(told == [f'heddle_gpu_can_stop{{gpu_uuid="{GPU}"}} {int(device["can_stop"])}'], told)
        return device["can_stop"]
    finally:
        demo.finish()


def restart(where, gpu=""):
    where.stop_daemon()
    where.start_daemon("priority", gpu=gpu)


def check_yes(where, file):
    code, said = ask(where)
    expect(code == 0 and said["error"] == "" and said["file"] == str(file), said)
    answer, = said["answers"]
    expect(answer["answer"] == "yes" and answer["gpu"] == GPU and answer["why"] == "", answer)
    expect(2.2 <= answer["slice_ratio"] <= 3.8, answer)
    expect(0 < answer["stop_us"] and 0 < answer["go_us"], answer)
    expect(json.loads(file.read_text()) == [answer], file.read_text())
    stage.wait_until(lambda: stops(where)["answers"] == [answer], 10, "heddled reads it")
    return answer


def check_no(where, file):
    code, said = ask(where, HEDDLE_SIM_STOPS="0")
    answer, = said["answers"]
    expect(code == 0 and answer["answer"] == "no", said)
    expect(answer["why"] == "the driver refuses (status 0x56)", answer)
    stage.wait_until(lambda: stops(where)["answers"] == [answer], 10, "heddled reads it")
    expect(can_stop(where) is False, "a no is believed")
    restart(where)
    expect(stops(where)["answers"] == [answer], "it was kept")
    text = subprocess.run([stage.HEDDLE, "status"], env=where.env, capture_output=True, text=True,
                          timeout=20).stdout
    expect("stops     no: the driver refuses (status 0x56), asked 20" in text, text)


# A host with NVIDIA's driver, as far as heddled can see: its GPU is the simulated one.
HOST = f"""
set -e
dev=$(mktemp -d)
mount -t tmpfs none $dev
mkdir $dev/shm
touch $dev/null $dev/nvidiactl
mount --bind /dev/null $dev/null
mount --bind /dev/shm $dev/shm
mount --rbind $dev /dev
mount -t tmpfs none /proc/driver
mkdir -p /proc/driver/nvidia/gpus/0
printf 'Model: \\t Simulated\\nGPU UUID: \\t {GPU}\\n' >/proc/driver/nvidia/gpus/0/information
exec "$@"
"""


def check_start(where, file):
    """heddled asks by itself what was not asked, keeps the answer, and does not ask again."""
    within = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", HOST, "sh"]
    if subprocess.run([*within, "true"], capture_output=True).returncode != 0:
        print("no user and mount namespaces here: heddled has no GPU to ask")
        return
    where.stop_daemon()
    file.unlink()
    command = [*within, stage.DIST / "bin/heddled", "--config", where.folder / "heddled.toml"]
    env = where.env | {"LD_LIBRARY_PATH": str(stage.SIM)}
    # As the unit does, behind heddled's start, outside of its sandbox.
    once = [*within, stage.HEDDLE, "doctor", "--stop", "--once"]
    for expected in ("yes", "yes", "not asked"):
        if expected == "not asked":
            file.unlink()
            env["LD_LIBRARY_PATH"] = "/nowhere"
        before = file.read_bytes() if file.exists() else None
        log = where.folder / "asks.log"
        with open(log, "wb") as out:
            where.daemon = subprocess.Popen(command, env=env, stdout=out, stderr=out)
        stage.wait_until(where.daemon_answers, 10, "heddled")
        stage.wait_until(lambda: stops(where)["answers"] or stops(where)["not_asked"], 20, "a word")
        told = stops(where)
        if expected == "yes":
            expect(told["answers"][0]["answer"] == "yes" and told["not_asked"] == "", told)
            stage.wait_until(file.exists, 10, "it is kept")
            expect(before in (None, file.read_bytes()), "who has answered is not asked again")
            done = subprocess.run(once, env=env, capture_output=True, text=True, timeout=60)
            expect(done.returncode == 0 and done.stdout == "", done)
        else:
            expect(told["answers"] == [] and told["not_asked"] == "no CUDA driver", told)
            expect("event=stops_not_asked" in log.read_text(), log.read_text())
            ask(where)
            stage.wait_until(lambda: stops(where)["not_asked"] == "", 10, "somebody else asked")
        where.stop_daemon()


def check_elsewhere(where):
    code, said = ask(where, STATE_DIRECTORY=str(where.folder))
    expect(code == 1 and said["error"].startswith("heddled reads "), said)


def check_busy(where):
    before = stops(where)["answers"]
    busy = {"HEDDLE_NVML": sys.argv[1], "FAKE_NVML_PIDS": "1"}
    code, said = ask(where, **busy)
    expect(code == 1 and said["error"].startswith(
        "not asked: somebody else is on the GPU; "), said)
    expect(stops(where)["answers"] == before, "nothing changed")
    code, said = ask(where, "--even-if-busy", **busy)
    expect(code == 0 and said["answers"][0]["answer"] == "yes", said)


def check_settings(where, file):
    restart(where, 'stops = "off"')
    expect(stops(where)["setting"] == "off" and can_stop(where) is False, "off wins over a yes")
    check_no_but_on(where)
    file.write_text("{ this is none")
    restart(where)
    problem = stops(where)
    expect(problem["error"].startswith(f"{file}: is no list of answers; "), problem)
    done = subprocess.run([stage.HEDDLE, "--json", "doctor"], env=where.env | {
        "HEDDLE_REAL_LIBCUDA": str(stage.SIM / "libcuda.so.1")}, capture_output=True, text=True,
        timeout=60)
    found = [f for f in json.loads(done.stdout)["findings"] if f["topic"] == "stops"]
    expect([f["level"] for f in found] == ["warn"] and "not asked: " in found[0]["text"], found)


def check_no_but_on(where):
    ask(where, HEDDLE_SIM_STOPS="0")
    restart(where, 'stops = "on"')
    expect(stops(where)["setting"] == "on" and can_stop(where) is True, "on wins over a no")


def check(where):
    file = pathlib.Path(where.env["STATE_DIRECTORY"]) / "stops.json"
    where.start_daemon("priority")
    expect(stops(where)["answers"] == [] and can_stop(where) is True, "it is its own answer")
    check_yes(where, file)
    expect(can_stop(where) is True, "a yes is believed")
    check_no(where, file)
    check_busy(where)
    check_elsewhere(where)
    check_start(where, file)
    check_settings(where, file)


def main():
    os.environ.pop("LD_PRELOAD", None)
    where = setting.fresh_stage("stops", "timeslice")
    setting.run(lambda: check(where), where)


if __name__ == "__main__":
    main()
