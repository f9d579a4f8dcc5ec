#!/usr/bin/env python3
"""Installing over a tree that is in use: install.py BUILD

Programs that run keep the old files, and programs that start find one at every moment, with
heddle-install and with `cmake --install`.
"""

import ctypes
import os
import pathlib
import shutil
import struct
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/fault"))
import setting  # noqa: E402  (the folder is known only now)
import stage  # noqa: E402
from setting import expect  # noqa: E402

BUILD = sys.argv[1]
IN_MODIFY, IN_DELETE = 0x2, 0x200
ROUNDS = 2


class Watch:
    """What happens to the names in a tree's folders, as inotify tells it."""

    def __init__(self, tree):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self.libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        for folder in [tree, *(path for path in tree.rglob("*") if path.is_dir())]:
            added = self.libc.inotify_add_watch(self.fd, bytes(folder), IN_MODIFY | IN_DELETE)
            expect(added >= 0, f"{folder}: {os.strerror(ctypes.get_errno())}")

    def events(self):
        """Names that were removed or written to in their place."""
        try:
            data = os.read(self.fd, 1 << 20)
        except BlockingIOError:
            return
        while data:
            _, mask, _, length = struct.unpack_from("iIII", data)
            name = data[16:16 + length].rstrip(b"\0").decode()
            data = data[16 + length:]
            if not name.startswith(".new."):
                yield f"{name} {'removed' if mask & IN_DELETE else 'written to'}"


def files(tree):
    return {str(path.relative_to(tree)): path for path in tree.rglob("*") if not path.is_dir()}


def check_same(tree, like):
    there, models = files(tree), files(like)
    expect(there.keys() == models.keys(), f"other files: {there.keys() ^ models.keys()}")
    for name, path in there.items():
        model = models[name]
        expect(path.lstat().st_mode == model.lstat().st_mode, f"{name}: other permissions")
        if path.is_symlink():
            expect(os.readlink(path) == os.readlink(model), f"{name}: another link")
        else:
            expect(path.read_bytes() == model.read_bytes(), f"{name}: other contents")


def check(where):
    tree = where.folder / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    install = [stage.DIST / "bin/heddle-install", tree]
    by_cmake = ["cmake", "--install", BUILD, "--prefix", tree]

    def run(command):
        done = subprocess.run(command, env=where.env, text=True, capture_output=True)
        expect(done.returncode == 0, f"{command}: {done.stdout}{done.stderr}")
        return done

    run(install)
    check_same(tree, stage.DIST)
    shim = tree / "lib/heddle/libcuda.so.1"
    demo = subprocess.Popen(
        [tree / "bin/heddle", "run", "-q", "--sim", "--", tree / "libexec/heddle/heddle-demo",
         "batch", "--seconds", "600"], env=where.env, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT)
    try:
        expect(demo.stdout.readline() == b"ready\n", "the demo does not begin")
        watch = Watch(tree)
        for command in [install, by_cmake] * ROUNDS:
            before = shim.stat().st_ino
            run(command)
            expect(shim.stat().st_ino != before, f"{command[0]}: the shim's file is the old one")
            events = sorted(set(watch.events()))
            expect(not events, f"{command[0]}: {events}")
            # The shim of this one is new, and it runs beside those of the demo.
            done = run([tree / "bin/heddle", "run", "-q", "--", "true"])
            expect(not done.stderr, done.stderr)
            expect(demo.poll() is None, f"{command[0]}: the demo ended: {demo.returncode}")
    finally:
        demo.kill()
        demo.wait()
    check_same(tree, stage.DIST)


def main():
    where = setting.fresh_stage("install")
    setting.run(lambda: check(where), where)


if __name__ == "__main__":
    main()
