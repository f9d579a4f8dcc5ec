"""Takes device memory one way when told to, for tests/gpu/memory.py: memory_steps.py WAY

WAY: driver (cuMemAlloc), vmm (cuMemCreate), torch, cupy, jax, graph (a PyTorch graph's own pool).
Commands on stdin, answered by a JSON line each: `hold MIB` (takes so much more, keeps it), `free`
(all of it), `fill MIB` (pieces of so much until it is refused; says how much came and the error),
`time COUNT KIB` (driver alone: so many times, takes and frees it; the median ns of each),
`turn SECONDS MIB` (for so long: takes it, sets it, frees it; refused turns, the others' µs),
`quit`. A step that fails answers {"error": TEXT}.
"""

import ctypes
import json
import os
import statistics
import sys
import time

REPLIES = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)
MIB = 1 << 20
OUT_OF_MEMORY = 2


class Refused(MemoryError):
    pass


class Driver:
    """cuMemAlloc, by ctypes."""

    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.held = []
        context = ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxSetCurrent", context)

    def call(self, name, *arguments):
        status = getattr(self.cuda, name)(*arguments)
        if status == OUT_OF_MEMORY:
            raise Refused(f"{name}: CUDA_ERROR_OUT_OF_MEMORY")
        if status != 0:
            sys.exit(f"{name}: {status}")

    def hold(self, size):
        at = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(size))
        self.held.append(at)

    def set(self, size):
        self.call("cuMemsetD8_v2", self.held[-1], 1, ctypes.c_size_t(size))
        self.call("cuCtxSynchronize")

    def free(self):
        for at in self.held:
            self.call("cuMemFree_v2", at)
        self.held = []


class Vmm(Driver):
    """cuMemCreate, mapped; sizes in whole granules."""

    class Properties(ctypes.Structure):
        _fields_ = [("type", ctypes.c_int), ("handle_types", ctypes.c_int),
                    ("location_type", ctypes.c_int), ("location_id", ctypes.c_int),
                    ("windows", ctypes.c_void_p), ("flags", ctypes.c_ubyte * 8)]

    def hold(self, size):
        what = self.Properties(type=1, location_type=1)  # pinned, on the device
        handle, at = ctypes.c_uint64(), ctypes.c_uint64()
        self.call("cuMemCreate", ctypes.byref(handle), ctypes.c_size_t(size), ctypes.byref(what),
                  ctypes.c_uint64(0))
        self.call("cuMemAddressReserve", ctypes.byref(at), ctypes.c_size_t(size),
                  ctypes.c_size_t(0), ctypes.c_uint64(0), ctypes.c_uint64(0))
        self.call("cuMemMap", at, ctypes.c_size_t(size), ctypes.c_size_t(0), handle,
                  ctypes.c_uint64(0))
        self.call("cuMemRelease", handle)  # the mapping keeps it
        self.held.append((at, size))

    def free(self):
        for at, size in self.held:
            self.call("cuMemUnmap", at, ctypes.c_size_t(size))
        self.held = []


class Torch:
    def __init__(self):
        import torch
        self.torch, self.held = torch, []
        torch.ones(1, device="cuda").sum().item()

    def hold(self, size):
        try:
            self.held.append(self.torch.ones(size, dtype=self.torch.uint8, device="cuda"))
        except self.torch.cuda.OutOfMemoryError as error:
            raise Refused(str(error)[:200]) from error
        self.torch.cuda.synchronize()

    def free(self):
        self.held = []
        self.torch.cuda.empty_cache()
        self.torch.cuda.synchronize()


class Graph(Torch):
    """Memory that only a captured graph holds."""

    def hold(self, size):
        graph = self.torch.cuda.CUDAGraph()
        try:
            with self.torch.cuda.graph(graph):
                kept = self.torch.ones(size, dtype=self.torch.uint8, device="cuda")
        except self.torch.cuda.OutOfMemoryError as error:
            raise Refused(str(error)[:200]) from error
        graph.replay()
        self.torch.cuda.synchronize()
        self.held.append((graph, kept))


class Cupy:
    def __init__(self):
        import cupy
        self.cupy, self.held = cupy, []
        cupy.ones(1).sum().get()

    def hold(self, size):
        try:
            self.held.append(self.cupy.ones(size, dtype=self.cupy.uint8))
        except self.cupy.cuda.memory.OutOfMemoryError as error:
            raise Refused(str(error)[:200]) from error
        self.cupy.cuda.Device().synchronize()

    def free(self):
        self.held = []
        self.cupy.get_default_memory_pool().free_all_blocks()


class Jax:
    """With XLA_PYTHON_CLIENT_ALLOCATOR=platform, so that what is freed goes back."""

    def __init__(self):
        os.environ |= {"XLA_PYTHON_CLIENT_PREALLOCATE": "false",
                       "XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}
        import jax
        self.numpy, self.held = jax.numpy, []
        self.numpy.ones(1).sum().block_until_ready()

    def hold(self, size):
        try:
            self.held.append(self.numpy.ones(size, dtype="uint8").block_until_ready())
        except Exception as error:  # jaxlib's own type, which moves between versions
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            raise Refused(str(error)[:200]) from error

    def free(self):
        self.held = []


def fill(way, size):
    count = 0
    try:
        while True:
            way.hold(size)
            count += 1
    except Refused as error:
        return {"mib": count * size // MIB, "refused": str(error)}


def timed(way, count, size):
    """Where the shim counts, within a chunk; the first few go out for one."""
    taken, freed = [], []
    for _ in range(count):
        begin = time.perf_counter_ns()
        way.hold(size)
        middle = time.perf_counter_ns()
        way.free()
        taken.append(middle - begin)
        freed.append(time.perf_counter_ns() - middle)
    return {"hold_ns": round(statistics.median(taken)), "free_ns": round(statistics.median(freed))}


def turns(way, seconds, size):
    refused, us = 0, []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        begin = time.perf_counter_ns()
        try:
            way.hold(size)
            way.set(size)
        except Refused:
            refused += 1
            continue
        way.free()
        us.append(round((time.perf_counter_ns() - begin) / 1e3))
    return {"refused": refused, "us": us}


def obey(way, words):
    if words[0] == "time":
        return timed(way, int(words[1]), int(words[2]) << 10)
    if words[0] == "turn":
        return turns(way, float(words[1]), int(words[2]) * MIB)
    if words[0] == "hold":
        way.hold(int(words[1]) * MIB)
        return {}
    if words[0] == "free":
        way.free()
        return {}
    return fill(way, int(words[1]) * MIB)


def main():
    ways = {"driver": Driver, "vmm": Vmm, "torch": Torch, "torch_expandable": Torch,
            "graph": Graph, "cupy": Cupy, "jax": Jax}
    if sys.argv[1] == "torch_expandable":
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    try:
        way = ways[sys.argv[1]]()
    except ImportError as error:
        print(json.dumps({"error": f"not installed: {error.name}"}), file=REPLIES)
        return
    print(json.dumps({}), file=REPLIES)
    for line in sys.stdin:
        words = line.split()
        if words[0] == "quit":
            break
        try:
            answer = obey(way, words)
        except Refused as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), file=REPLIES)


main()
