"""The driver API by ctypes, on the simulated GPU: each launch steps a word in stream order, so that
a lost, doubled or reordered launch is another result. HEDDLE_SIM_COOPERATIVE: cooperative ones."""

import ctypes
import os
import sys
from pathlib import Path

import program

PTX = Path(__file__).resolve().parents[3] / "bench/workloads/demo.ptx"
NON_BLOCKING = 1
LAUNCHES = 4  # a round
LAUNCH, EXTRA = ("cuLaunchKernel", (None,))
if "HEDDLE_SIM_COOPERATIVE" in os.environ:
    LAUNCH, EXTRA = ("cuLaunchCooperativeKernel", ())


def main():
    driver = ctypes.CDLL("libcuda.so.1")

    def call(name, *arguments):
        status = getattr(driver, name)(*arguments)
        if status != 0:
            sys.exit(f"{name}: {status}")

    context, module, spin, stream = (ctypes.c_void_p() for _ in range(4))
    state, result = ctypes.c_uint64(), ctypes.c_uint64()
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)
    call("cuModuleLoadData", ctypes.byref(module), PTX.read_bytes() + b"\0")
    call("cuModuleGetFunction", ctypes.byref(spin), module, b"heddle_spin")
    call("cuMemAlloc_v2", ctypes.byref(state), ctypes.c_size_t(8))
    call("cuMemsetD8_v2", state, 0, ctypes.c_size_t(8))
    call("cuStreamCreate", ctypes.byref(stream), NON_BLOCKING)
    launches = 0
    for index in program.rounds():
        for part in range(LAUNCHES):
            launches += 1
            values = (state, ctypes.c_uint32(200_000), ctypes.c_uint64(index * 7 + part))
            parameters = (ctypes.c_void_p * 3)(*(ctypes.addressof(value) for value in values))
            call(LAUNCH, spin, 132, 1, 1, 1024, 1, 1, 0, stream, parameters, *EXTRA)
        call("cuStreamSynchronize", stream)
    call("cuMemcpyDtoH_v2", ctypes.byref(result), state, ctypes.c_size_t(8))
    program.finish({"state": f"{result.value:016x}"}, launches)


main()
