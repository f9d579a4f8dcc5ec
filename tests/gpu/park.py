#!/usr/bin/env python3
"""Does the driver's own checkpoint park a program? A PyTorch process with memory and CUDA graphs is
locked, checkpointed, restored and unlocked twice, by its pid; its values are compared bit by bit.

    park.py --gib 16 [--replaying] [--out FILE] [-- PREFIX...]    such as: -- dist/bin/heddle run --
"""

import argparse
import ctypes
import hashlib
import json
import subprocess
import sys
import time

LOCK_MS = 20_000
LOOP_S = 3


class LockArgs(ctypes.Structure):
    _fields_ = [("timeout_ms", ctypes.c_uint), ("none", ctypes.c_uint),
                ("reserved", ctypes.c_uint64 * 7)]


def tenant(gib):
    """The program: answers each line of its input with one of its output."""
    import torch  # pylint: disable=import-outside-toplevel

    torch.manual_seed(1)
    big = torch.empty(int(gib * 2**28), dtype=torch.float32, device="cuda").uniform_()
    a, x = (torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    torch.cuda.synchronize()
    x @ a  # the library's handles are made outside of the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x
        for _ in range(20):
            y = torch.nn.functional.gelu(y @ a) * 0.01

    def digest():
        graph.replay()
        torch.cuda.synchronize()
        seen = hashlib.sha256(y.float().cpu().numpy().tobytes())
        seen.update(big[::4097].cpu().numpy().tobytes())
        return seen.hexdigest()

    print(digest(), flush=True)
    for line in sys.stdin:
        end = time.monotonic() + LOOP_S
        while line == "loop\n" and time.monotonic() < end:
            for _ in range(20):
                graph.replay()
            torch.cuda.synchronize()
        print(digest(), flush=True)


def used_mib():
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return int(subprocess.run(query, check=True, text=True, stdout=subprocess.PIPE).stdout)


def park(options):
    driver = ctypes.CDLL("libcuda.so.1")
    driver.cuInit(0)
    program = subprocess.Popen(
        [*options.prefix, sys.executable, __file__, "--tenant", "--gib", str(options.gib)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    first = program.stdout.readline()
    calls, equal = [], True

    def call(what, args=None):
        begin = time.monotonic()
        error = getattr(driver, f"cuCheckpointProcess{what}")(program.pid, args)
        calls.append({"call": what, "rc": error, "s": round(time.monotonic() - begin, 3),
                      "used_mib": used_mib()})
        print(calls[-1], flush=True)
        return error == 0

    for _ in range(2):
        program.stdin.write("loop\n" if options.replaying else "\n")
        program.stdin.flush()
        time.sleep(0.5)
        if call("Lock", ctypes.byref(LockArgs(LOCK_MS))):
            if call("Checkpoint"):
                call("Restore")
            call("Unlock")
        equal = equal and program.stdout.readline() == first
    program.stdin.close()
    program.wait(60)
    return {"gib": options.gib, "replaying": options.replaying, "calls": calls, "equal": equal}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gib", type=float, default=16)
    parser.add_argument("--replaying", action="store_true", help="graphs run meanwhile")
    parser.add_argument("--out")
    parser.add_argument("--tenant", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("prefix", nargs="*")
    options = parser.parse_args()
    if options.tenant:
        return tenant(options.gib)
    found = park(options)
    if options.out:
        with open(options.out, "w") as file:
            json.dump(found, file, indent=1)
    return 0 if found["equal"] else 1


if __name__ == "__main__":
    sys.exit(main())
