#!/usr/bin/env python3
"""Containers of an old and a new distribution under heddle, as its CDI specification has them:
load.py DEPS NAMES [--roots FOLDER...]

The specification's hooks and mounts are carried out on a root filesystem; a CUDA program runs
inside, on the simulated GPU, with the driver in a forward-compatibility directory that only the
loader's cache knows. Outside are the daemon and the owner of the GPU. A root filesystem is a C
library and nothing else, or a copy of each FOLDER, a whole distribution of debootstrap's. Skipped
where mounts are not allowed or no mirror answers.
"""

import argparse
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys

import roots

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/fault"))
import setting  # noqa: E402  (the folder is known only now)
import stage  # noqa: E402
from setting import expect  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("files", nargs=2, type=pathlib.Path)
parser.add_argument("--roots", nargs="+", type=pathlib.Path, default=[])
options = parser.parse_args()
DEPS, NAMES = options.files


class Container:
    def __init__(self, where, release, whole=None):
        self.where, self.release, self.folder = where, release, where.folder / release
        self.root = self.folder / "rootfs"
        if whole is None:
            roots.fresh(DEPS, release, self.root)
        else:
            roots.copied(whole, self.root)
        shutil.copy(stage.SIM / "libcuda.so.1", self.root / "usr/local/cuda/compat")
        for program in (stage.DEMO, NAMES):
            shutil.copy(program, self.root / program.name)
        with open(self.root / "etc/ld.so.conf", "a") as places:
            places.write("/usr/local/cuda/compat\n")
        subprocess.run(["/sbin/ldconfig", "-r", self.root], check=True, capture_output=True)
        (self.folder / "config.json").write_text('{"root": {"path": "rootfs"}}')
        self.spec = json.loads(subprocess.run([stage.HEDDLE, "cdi"], env=where.env, check=True,
                                              capture_output=True, text=True).stdout)

    def apply_hooks(self):
        for hook in self.spec["containerEdits"]["hooks"]:
            done = subprocess.run([hook["path"], *hook["args"][1:]], text=True, capture_output=True,
                                  input=json.dumps({"bundle": str(self.folder)}))
            expect(done.returncode == 0, done)
            yield done.stderr

    def run(self, command, device=None, **environment):
        """Runs it inside; with a device of the specification, or without heddle."""
        mounts = []
        env = {"HEDDLE_SIM_SOCKET": f"/tmp/{self.where.gpus}"} | environment
        if device is not None:
            chosen = next(d for d in self.spec["devices"] if d["name"] == device)
            for edits in (self.spec["containerEdits"], chosen["containerEdits"]):
                env |= dict(entry.split("=", 1) for entry in edits["env"])
                mounts += [f"mount --bind {m['hostPath']} {self.root}{m['containerPath']} && "
                           f"mount -o remount,bind,ro,nosuid,nodev {self.root}{m['containerPath']}"
                           for m in edits.get("mounts", [])]
        words = roots.inside(self.root, self.where.sockets, command, mounts)
        return subprocess.run(words, env=env | {"PATH": os.environ["PATH"]}, capture_output=True,
                              text=True, timeout=60)

    def glibc(self):
        if not (self.root / "usr/bin/getconf").exists():
            return roots.RELEASES.get(self.release, "unknown")
        return self.run(["getconf", "GNU_LIBC_VERSION"]).stdout.split()[-1]


def launches(where):
    stats = [d["stats"] for d in where.heddle("status")["devices"]]
    return sum(s["posted"] + s["granted"] for s in stats)


def check_release(where, container):
    release = container.release
    demo = [f"/{stage.DEMO.name}", "batch", "--seconds", 0.3, "--kernel-ms", 1]
    bare = container.run(demo)
    expect(bare.returncode == 0, f"{release}, bare: {bare.stderr}")
    expect(launches(where) == 0, "bare, and the daemon saw it")
    expect(list(container.apply_hooks()) == [""], "the hook complains")

    names = container.run([f"/{NAMES.name}"], "default")
    expect(names.returncode == 0 and not names.stderr, f"{release}, names: {names.stderr}")
    done = container.run(demo, "batch")
    expect(done.returncode == 0 and not done.stderr, f"{release}: {done.stderr}")
    result = json.loads(done.stdout.splitlines()[-1])
    expect(result["checksum_ok"], result)
    seen = launches(where)
    expect(seen >= result["launches"] - 64, f"{seen} of {result['launches']} launches seen")
    print(f"{release}, glibc {container.glibc()}: {result['launches']} launches, {seen} seen")


def check_musl(where):
    """Nothing is preloaded where it would break programs, and heddle run says so."""
    program = where.folder / "musl"
    glibc, musl = b"/lib64/ld-linux-x86-64.so.2", b"/lib/ld-musl-x86_64.so.1"
    program.write_bytes(pathlib.Path("/bin/true").read_bytes().replace(
        glibc, musl.ljust(len(glibc), b"\0"), 1))
    program.chmod(0o755)
    done = subprocess.run([stage.HEDDLE, "run", "--", program], capture_output=True, text=True)
    expect(done.returncode == 5 and musl.decode() in done.stderr, done)
    rootfs = where.folder / "alpine/rootfs"
    (rootfs / "lib").mkdir(parents=True, exist_ok=True)
    (rootfs / "etc").mkdir(exist_ok=True)
    shutil.copy(program, rootfs / "lib/ld-musl-x86_64.so.1")
    (rootfs.parent / "config.json").write_text('{"root": {"path": "rootfs"}}')
    # A runtime throws away what a hook prints. The system's log is a socket of our own.
    log = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    log.bind(str(where.sockets / "log"))
    done = subprocess.run([*roots.UNSHARE, "sh", "-ec", f"mount --bind {where.sockets} /dev\n"
                           f"exec {stage.HEDDLE} cdi-hook"], text=True, capture_output=True,
                          input=json.dumps({"id": "c1", "bundle": str(rootfs.parent)}))
    said = "heddle: container c1 runs without heddle: it has no glibc"
    expect(done.returncode == 0 and said in done.stderr, done)
    expect(said in log.recv(4096).decode(), "the system's log hears nothing")
    log.close()
    expect(not (rootfs / "etc/ld.so.preload").exists(), "preloaded all the same")


def main():
    if subprocess.run([*roots.UNSHARE, "true"], capture_output=True).returncode:
        print("skipped: no mounts without root here")
        sys.exit(77)
    where = setting.fresh_stage("container")
    # heddle cdi mounts only a directory that holds nothing else.
    where.socket = where.sockets / "run/heddled"
    where.socket.parent.mkdir()

    def body():
        check_musl(where)
        whole = {folder.resolve().name: folder for folder in options.roots}
        for release in whole or roots.RELEASES:
            where.next_gpu(release)
            container = Container(where, release, whole.get(release))
            # It leaves when nobody uses it for 3 s.
            owner = subprocess.Popen([stage.SIM / "heddle-sim-gpu"], env=where.env)
            try:
                where.start_daemon("priority")
                check_release(where, container)
                where.stop_daemon()
                owner.wait(20)
            finally:
                owner.kill()

    try:
        setting.run(body, where)
    except roots.NoRoot as error:
        print(f"skipped: {error}")
        sys.exit(77)


if __name__ == "__main__":
    main()
