"""cuda-python: the driver API through cuda.bindings, a kernel compiled by NVRTC."""

import ctypes

import program

try:
    import numpy as np
    from cuda.bindings import driver, nvrtc
except ImportError:
    program.skip("not installed: cuda-python")

COUNT = 1 << 20
SOURCE = b"""
extern "C" __global__ void step(unsigned* data, unsigned count, unsigned salt) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) data[i] = (data[i] ^ salt) * 2654435761u + i;
}"""


def done(answer):
    """The results of a call, without its status; one alone as it is."""
    status, *results = answer
    if int(status) != 0:
        raise RuntimeError(f"{status}")
    return results[0] if len(results) == 1 else results


def compiled():
    source = done(nvrtc.nvrtcCreateProgram(SOURCE, b"step.cu", 0, [], []))
    done(nvrtc.nvrtcCompileProgram(source, 1, [b"--gpu-architecture=compute_80"]))
    ptx = b" " * done(nvrtc.nvrtcGetPTXSize(source))
    done(nvrtc.nvrtcGetPTX(source, ptx))
    return ptx


def main():
    done(driver.cuInit(0))
    context = done(driver.cuDevicePrimaryCtxRetain(done(driver.cuDeviceGet(0))))
    done(driver.cuCtxSetCurrent(context))
    ptx = compiled()
    image = np.frombuffer(ptx, dtype=np.uint8)
    module = done(driver.cuModuleLoadData(image.ctypes.data))
    step = done(driver.cuModuleGetFunction(module, b"step"))
    data = done(driver.cuMemAlloc(COUNT * 4))
    done(driver.cuMemsetD32(data, 0, COUNT))
    done(driver.cuCtxSynchronize())  # the stream below waits for nobody's default stream
    stream = done(driver.cuStreamCreate(1))
    launches = 0
    for index in program.rounds():
        for part in range(10):
            arguments = ((int(data), COUNT, index * 10 + part),
                         (ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint))
            done(driver.cuLaunchKernel(step, COUNT // 256, 1, 1, 256, 1, 1, 0, stream,
                                       arguments, 0))
            launches += 1
        done(driver.cuStreamSynchronize(stream))
    host = np.empty(COUNT, dtype=np.uint32)
    done(driver.cuMemcpyDtoH(host.ctypes.data, data, host.nbytes))
    program.finish({"data": program.digest(host)}, launches)


main()
