"""CuPy: elementwise and reduction kernels, a raw kernel (NVRTC), cuBLAS, cuFFT, a stream."""

import program

try:
    import cupy
except ImportError:
    program.skip("not installed: cupy")

STEP = cupy.RawKernel(r"""
extern "C" __global__ void step(unsigned* data, unsigned count, unsigned salt) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) data[i] = (data[i] ^ salt) * 2654435761u + i;
}""", "step")


def main():
    count = 1 << 20
    data = cupy.zeros(count, dtype=cupy.uint32)
    x = cupy.arange(512 * 512, dtype=cupy.float32).reshape(512, 512) % 31 / 31
    total = cupy.zeros_like(x)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    for index in program.rounds():
        with stream:
            for part in range(8):
                STEP((count // 256,), (256,), (data, cupy.uint32(count),
                                               cupy.uint32(index * 8 + part)))
            product = x @ x.T / 512
            spectrum = cupy.abs(cupy.fft.fft2(product))
            total += cupy.sort(spectrum + cupy.sum(product, axis=0), axis=1)
            x = cupy.tanh(x + product * 0.01)
        stream.synchronize()
    program.finish({"data": program.digest(data.get()), "x": program.digest(x.get()),
                    "total": program.digest(total.get())})


main()
