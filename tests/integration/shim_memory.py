#!/usr/bin/env python3
"""What the shim costs a process in host memory: shim_memory.py PROGRAM.

One process with 64 launching threads, as many as have a ring each, on the simulated driver with and
without the shim; what it has more once every ring has gone round."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/fault"))
import setting  # noqa: E402
import stage  # noqa: E402

PROGRAM = pathlib.Path(sys.argv[1])
THREADS, LAUNCHES = 64, 1100  # a ring holds 1024 records
MIB_MAX = 8


def resident_kib(pid):
    rollup = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(rollup.split("Rss:")[1].split()[0])


def measure(where, name, managed):
    """Resident memory of the process once every thread has launched enough."""
    where.next_gpu(name)
    command = [PROGRAM, "--ranks", THREADS, "--count", THREADS, "--iterations", 1_000_000,
               "--block-ns", 1000]
    env = where.env | {"HEDDLE_PRIORITY": "0", "LD_LIBRARY_PATH": str(stage.SIM)}
    if managed:
        env |= {"LD_LIBRARY_PATH": str(stage.DIST / "lib/heddle"),
                "HEDDLE_REAL_LIBCUDA": str(stage.SIM / "libcuda.so.1")}
    process = subprocess.Popen([str(word) for word in command], env=env, stdout=subprocess.DEVNULL)
    try:
        # The kernels that the GPU has run: flushed when the program leaves, in lots before.
        stage.wait_until(lambda: where.sim_log.exists() and
                         where.sim_log.read_text().count("\n") > THREADS * LAUNCHES, 60,
                         f"{name}: {LAUNCHES} launches a thread")
        return resident_kib(process.pid)
    finally:
        process.kill()
        process.wait()


def main():
    where = setting.fresh_stage("memory")

    def body():
        where.start_daemon("priority")
        bare = measure(where, "bare", managed=False)
        shimmed = measure(where, "shimmed", managed=True)
        mib = (shimmed - bare) / 1024
        print(f"resident: {bare} KiB bare, {shimmed} KiB under the shim: {mib:.1f} MiB more "
              f"with {THREADS} threads")
        if mib > MIB_MAX:
            raise stage.StageError(f"more than {MIB_MAX} MiB")

    setting.run(body, where)


if __name__ == "__main__":
    main()
