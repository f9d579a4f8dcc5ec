"""A graph that is launched again and again on the simulated GPU, and the word of its nodes."""

import ctypes

import program
from sim_order import NON_BLOCKING, Gpu

NODES, LAUNCHES = 4, 8  # a round


def main():
    gpu = Gpu()
    word, stream = gpu.word(), gpu.made("cuStreamCreate", NON_BLOCKING)
    gpu.step(word, 0, stream)
    graph = ctypes.c_void_p()
    gpu("cuStreamBeginCapture_v2", stream, 0)
    for value in range(NODES):
        gpu.step(word, value, stream)
    gpu("cuStreamEndCapture", stream, ctypes.byref(graph))
    executable = gpu.made("cuGraphInstantiateWithFlags", graph, ctypes.c_uint64(0))
    for _ in program.rounds():
        for _ in range(LAUNCHES):
            gpu("cuGraphLaunch", executable, stream)
        gpu("cuStreamSynchronize", stream)
    program.finish({"word": gpu.read(word)}, program.ROUNDS * LAUNCHES)


main()
