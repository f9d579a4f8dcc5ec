"""stream_order.cu's computation on the simulated GPU: words that step in the order of the legacy
default stream, one that blocks with it and one that is tied by events, and copies in between."""

import ctypes
import sys
from pathlib import Path

import program

PTX = Path(__file__).resolve().parents[3] / "bench/workloads/demo.ptx"
NON_BLOCKING = 1
UNTIMED = 2
BLOCK_NS = 100_000


class Gpu:
    def __init__(self):
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.launches = 0
        context, module, self.spin = (ctypes.c_void_p() for _ in range(3))
        self("cuInit", 0)
        self("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self("cuCtxSetCurrent", context)
        self("cuModuleLoadData", ctypes.byref(module), PTX.read_bytes() + b"\0")
        self("cuModuleGetFunction", ctypes.byref(self.spin), module, b"heddle_spin")

    def __call__(self, name, *arguments):
        status = getattr(self.driver, name)(*arguments)
        if status != 0:
            sys.exit(f"{name}: {status}")

    def made(self, name, *arguments):
        handle = ctypes.c_void_p()
        self(name, ctypes.byref(handle), *arguments)
        return handle

    def word(self):
        address = ctypes.c_uint64()
        self("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(8))
        self("cuMemsetD8_v2", address, 0, ctypes.c_size_t(8))
        return address

    def step(self, word, value, stream):
        values = (word, ctypes.c_uint32(BLOCK_NS), ctypes.c_uint64(value))
        parameters = (ctypes.c_void_p * 3)(*(ctypes.addressof(one) for one in values))
        self("cuLaunchKernel", self.spin, 64, 1, 1, 1024, 1, 1, 0, stream, parameters, None)
        self.launches += 1

    def copy(self, to, source, stream):
        self("cuMemcpyDtoDAsync_v2", to, source, ctypes.c_size_t(8), stream)

    def read(self, word):
        result = ctypes.c_uint64()
        self("cuMemcpyDtoH_v2", ctypes.byref(result), word, ctypes.c_size_t(8))
        return f"{result.value:016x}"


def main():
    gpu = Gpu()
    data, copy, last = (gpu.word() for _ in range(3))
    legacy, blocking = None, gpu.made("cuStreamCreate", 0)
    free = gpu.made("cuStreamCreate", NON_BLOCKING)
    to_free, back = (gpu.made("cuEventCreate", UNTIMED) for _ in range(2))
    for index in program.rounds():
        for part in range(4):
            salt = index * 16 + part
            gpu.step(data, salt, legacy)
            gpu.step(data, salt + 1, blocking)
            gpu.copy(copy, data, blocking)
            gpu.step(copy, salt + 2, legacy)
            gpu("cuEventRecord", to_free, legacy)
            gpu("cuStreamWaitEvent", free, to_free, 0)
            gpu.step(copy, salt + 3, free)
            gpu.copy(last, copy, free)
            gpu.step(last, salt + 4, free)
            gpu("cuEventRecord", back, free)
            gpu("cuStreamWaitEvent", legacy, back, 0)
            gpu.copy(data, last, legacy)
        gpu("cuCtxSynchronize")
    program.finish({"data": gpu.read(data), "copy": gpu.read(copy), "last": gpu.read(last)},
                   gpu.launches)


if __name__ == "__main__":
    main()
