"""One rank of a training job that reduces its gradients over all ranks, each on its own GPU.

    ddp.py MODEL BATCH     PyTorch and NCCL: a torchvision model in bf16, other data in each rank
    ddp.py sim US KERNELS  kernels of the simulated GPU; what is reduced goes through the host

RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are torchrun's. One command a line on stdin, one JSON
line back. A command is for all ranks alike.

    steps N    trains on; the losses, bit for bit, and for how long
    again      from the first weights on
    quit
"""

import ctypes
import json
import os
import socket
import struct
import sys
import time
from pathlib import Path

WORKLOADS = Path(__file__).resolve().parents[3] / "bench/workloads"
sys.path.insert(0, str(WORKLOADS))
RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
BATCHES = 4  # in turn
LEARNING_RATE = 0.01  # what is wrong in one step grows in those behind it
MEETING_S = 60  # for so long ranks wait for each other


def torch_job(name, batch):
    from datetime import timedelta
    import jobs
    import torch.distributed as dist
    torch = jobs.torch
    torch.cuda.set_device(RANK)
    torch.backends.cudnn.deterministic = True
    torch.use_deterministic_algorithms(True, warn_only=True)
    dist.init_process_group("nccl", timeout=timedelta(seconds=MEETING_S),
                            device_id=torch.device("cuda", RANK))

    class Rank(jobs.Training):
        """Warmed up by itself, then once more with all ranks."""

        def __init__(self):
            super().__init__(name, int(batch), "bf16")
            seeds = [1 + RANK * BATCHES + i for i in range(BATCHES)]
            self.batches = [(self.make_input(s), self.make_targets(s)) for s in seeds]
            self.all = torch.nn.parallel.DistributedDataParallel(self.model, device_ids=[RANK])
            self.again()
            self.steps(8)  # NCCL connects, and gradients get their buckets
            self.again()

        def again(self):
            self.model.load_state_dict(self.initial)
            self.optimizer.state.clear()  # momentum
            self.optimizer.param_groups[0]["lr"] = LEARNING_RATE
            self.done = 0

        def one(self):
            inputs, targets = self.batches[self.done % BATCHES]
            self.optimizer.zero_grad(set_to_none=True)
            with self.autocast():
                loss = torch.nn.functional.cross_entropy(self.all(inputs), targets)
            loss.backward()
            self.optimizer.step()
            self.done += 1
            return loss.detach().float()

        def steps(self, count):
            losses = torch.stack([self.one() for _ in range(count)]).cpu()
            return [struct.pack(">f", loss).hex() for loss in losses.tolist()]

        def close(self):
            dist.destroy_process_group()

    return Rank(), jobs.REPLIES


class SimRank:
    """Each kernel changes a word by what it had before; ranks add their words' low halves."""

    def __init__(self, us, kernels):
        self.driver = ctypes.CDLL("libcuda.so.1")
        context, module, self.function, self.word, self.stream = (
            ctypes.c_void_p() for _ in range(5))
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxSetCurrent", context)
        self.call("cuModuleLoadData", ctypes.byref(module),
                  (WORKLOADS / "demo.ptx").read_bytes() + b"\0")
        self.call("cuModuleGetFunction", ctypes.byref(self.function), module, b"heddle_spin")
        self.call("cuMemAlloc_v2", ctypes.byref(self.word), 8)
        self.call("cuStreamCreate", ctypes.byref(self.stream), 1)
        self.kernels = [(self.word, ctypes.c_uint32(int(float(us) * 1e3)), ctypes.c_uint64(i + 1))
                        for i in range(int(kernels))]
        self.about = {"gpu": "simulated"}
        where = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        if RANK == 0:
            listener = socket.create_server(where)
            listener.settimeout(MEETING_S)
            self.other = listener.accept()[0]
        else:
            self.other = self.reach(where)
        self.other.settimeout(MEETING_S)
        self.again()

    def call(self, name, *arguments):
        if found := getattr(self.driver, name)(*arguments):
            raise RuntimeError(f"{name}: {found}")

    def reach(self, where):
        deadline = time.monotonic() + MEETING_S
        while True:
            try:
                return socket.create_connection(where)
            except ConnectionRefusedError:  # the first rank is not there yet
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def again(self):
        self.call("cuMemsetD8_v2", self.word, 0, 8)
        self.reduced = 0

    def one(self):
        for of in self.kernels:
            arguments = (ctypes.c_void_p * 3)(*map(ctypes.addressof, of))
            self.call("cuLaunchKernel", self.function, 264, 1, 1, 1024, 1, 1, 0, self.stream,
                      arguments, None)
        self.call("cuStreamSynchronize", self.stream)
        word = ctypes.c_uint64()
        self.call("cuMemcpyDtoH_v2", ctypes.byref(word), self.word, 8)
        self.other.sendall(struct.pack(">I", word.value & 0xffffffff))
        theirs, = struct.unpack(">I", self.other.recv(4, socket.MSG_WAITALL))
        self.reduced = (self.reduced * 31 + word.value + theirs) & 0xffffffff
        return f"{self.reduced:08x}"

    def steps(self, count):
        return [self.one() for _ in range(count)]

    def close(self):
        self.other.close()


def main(name, *words):
    if name == "sim":
        from protocol import reply_stream
        out = reply_stream()
        job = SimRank(*words)
    else:
        job, out = torch_job(name, *words)
    print(json.dumps({"ready": True, "pid": os.getpid(), "rank": RANK, **job.about}), file=out)
    for line in sys.stdin:
        command, *arguments = line.split()
        if command == "quit":
            break
        begin, losses = time.monotonic(), []
        if command == "again":
            job.again()
        else:
            losses = job.steps(int(arguments[0]))
        print(json.dumps({"losses": losses, "begin": begin, "end": time.monotonic()}), file=out)
    job.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
