"""Numba: kernels compiled from Python, shared memory and a barrier, a stream, copies."""

import program

try:
    import numpy as np
    np.row_stack = getattr(np, "row_stack", np.vstack)  # gone in NumPy 2.5; numba-cuda names it
    from numba import cuda, uint32
except ImportError as error:
    program.skip(f"not installed: numba ({error})")

COUNT = 1 << 20


@cuda.jit
def step(data, salt):
    i = cuda.grid(1)
    if i < data.size:
        data[i] = (data[i] ^ uint32(salt)) * uint32(2654435761) + uint32(i)


@cuda.jit
def rotate(data):
    tile = cuda.shared.array(256, uint32)
    i, lane = cuda.grid(1), cuda.threadIdx.x
    tile[lane] = data[i]
    cuda.syncthreads()
    data[i] = tile[(lane + 1) % 256]


def main():
    try:
        stream = cuda.stream()
    except Exception as error:  # Numba finds no toolkit in many ways
        program.skip(f"not installed: numba without CUDA ({type(error).__name__})")
    data = cuda.to_device(np.zeros(COUNT, dtype=np.uint32))
    launches = 0
    for index in program.rounds():
        for part in range(5):
            step[COUNT // 256, 256, stream](data, index * 5 + part)
            rotate[COUNT // 256, 256, stream](data)
            launches += 2
        stream.synchronize()
    program.finish({"data": program.digest(data.copy_to_host())}, launches)


main()
