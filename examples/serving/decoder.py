"""What a worker serves, and the fine-tuning job beside it. Two models, alike to who uses them:

    Demo   the demo kernels by the driver API: they only take time, as a small decoder's do, and
           step a word that the tokens are made of. Needs no package, runs on the simulated GPU too
    Torch  bench/workloads/llm.py's smallest Llama with random weights: needs torch and transformers

`generate` yields tokens as they are there: the same for the same prompt, whoever makes them.
Neither touches CUDA before an object is made, so a process may import this and then fork.

    decoder.py MODEL    fine-tunes until it is stopped; a line for each step
"""

import ctypes
import os
import sys
from pathlib import Path

WORKLOADS = Path(__file__).resolve().parents[2] / "bench/workloads"
MIB = 1 << 20


class Demo:
    WEIGHTS, CACHE = 32 * MIB, 16 * MIB  # bytes; a sleeping worker keeps neither on the GPU
    WAVE = 264                           # blocks of 1 024 threads that fill 132 SMs
    PREFILL = [(WAVE, 1_000_000)] * 4    # blocks and ns of each kernel
    DECODE = [(WAVE // 4, 300_000)] * 4
    TRAIN = [(WAVE, 2_000_000)] * 8
    NON_BLOCKING = 1

    @staticmethod
    def load():
        return ctypes.CDLL("libcuda.so.1")

    def __init__(self):
        self.driver = self.load()
        context, module, self.spin, self.stream = (ctypes.c_void_p() for _ in range(4))
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxSetCurrent", context)
        ptx = (WORKLOADS / "demo.ptx").read_bytes() + b"\0"
        self.call("cuModuleLoadData", ctypes.byref(module), ptx)
        self.call("cuModuleGetFunction", ctypes.byref(self.spin), module, b"heddle_spin")
        self.call("cuStreamCreate", ctypes.byref(self.stream), self.NON_BLOCKING)
        self.state = self.take(8)
        self.weights, self.cache = self.take(self.WEIGHTS), self.take(self.CACHE)
        self.call("cuMemsetD8_v2", self.weights, 7, ctypes.c_size_t(self.WEIGHTS))
        self.asleep = None

    def call(self, name, *arguments):
        if status := getattr(self.driver, name)(*arguments):
            raise RuntimeError(f"{name}: CUDA error {status}")

    def take(self, size):
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address

    def run(self, kernels):
        for number, (blocks, ns) in enumerate(kernels):
            values = self.state, ctypes.c_uint32(ns), ctypes.c_uint64(number)
            parameters = (ctypes.c_void_p * 3)(*(ctypes.addressof(value) for value in values))
            self.call("cuLaunchKernel", self.spin, blocks, 1, 1, 1024, 1, 1, 0, self.stream,
                      parameters, None)
        self.call("cuStreamSynchronize", self.stream)

    def generate(self, prompt, tokens):
        word = ctypes.c_uint64(prompt)
        self.call("cuMemcpyHtoD_v2", self.state, ctypes.byref(word), ctypes.c_size_t(8))
        for number in range(tokens):
            self.run(self.DECODE if number else self.PREFILL)
            self.call("cuMemcpyDtoH_v2", ctypes.byref(word), self.state, ctypes.c_size_t(8))
            yield word.value >> 48

    def train(self):
        self.run(self.TRAIN)

    def sleep(self):
        """Weights go to the host, the cache goes."""
        self.asleep = ctypes.create_string_buffer(self.WEIGHTS)
        self.call("cuMemcpyDtoH_v2", self.asleep, self.weights, ctypes.c_size_t(self.WEIGHTS))
        for memory in (self.weights, self.cache):
            self.call("cuMemFree_v2", memory)

    def wake(self):
        self.weights, self.cache = self.take(self.WEIGHTS), self.take(self.CACHE)
        self.call("cuMemcpyHtoD_v2", self.weights, self.asleep, ctypes.c_size_t(self.WEIGHTS))
        self.asleep = None


class Torch:
    SHAPE, CONTEXT, BATCH = "small", 512, 4

    @staticmethod
    def load():
        # `is_available` asks NVML, not CUDA: else what imports it could not fork any more.
        os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
        sys.path.insert(0, str(WORKLOADS))
        out = os.dup(1)
        import llm  # takes standard output for itself
        os.dup2(out, 1)
        os.close(out)
        return llm

    def __init__(self):
        self.llm, self.trained = self.load(), None
        self.torch = self.llm.torch
        self.model = self.llm.build(self.SHAPE)

    def generate(self, prompt, tokens):
        random = self.torch.Generator(device="cuda").manual_seed(prompt)
        ids = self.torch.randint(self.model.config.vocab_size, (1, self.CONTEXT), device="cuda",
                                 generator=random)
        with self.torch.inference_mode():
            steps = self.llm.Eager(self.model, ids)
            yield int(steps.token)
            for _ in range(tokens - 1):
                steps.decode()
                yield int(steps.token)

    def train(self):
        self.trained = self.trained or self.llm.Finetune(self.SHAPE, self.BATCH, self.CONTEXT)
        self.trained.iterate()

    def sleep(self):
        self.model.to("cpu")
        self.torch.cuda.empty_cache()

    def wake(self):
        self.model.to("cuda")


MODELS = {"demo": Demo, "torch": Torch}


def fine_tune(model):
    trainer, steps = MODELS[model](), 0
    while True:
        trainer.train()
        steps += 1
        print(steps, flush=True)


if __name__ == "__main__":
    fine_tune(sys.argv[1])
