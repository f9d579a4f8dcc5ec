#!/usr/bin/env python3
"""Several jobs in one process, of which one works at a time: what has loaded once is measured in
many pairs. One JSON object a line on stdin, one back.

    {"do": "load", "job": NAME, "kind": KIND, ...}   KIND: graph, eager, training (model, batch:
                    jobs.py's; priority: of its stream), tick (a short kernel), spin (kernels, us,
                    blocks, graph: spinning ones, which need no PyTorch)
    {"do": "pin", "cpus": [N, ...]}                  moves all threads
    {"do": "requests", "job", "start", "seconds", "rate", "seed"}   Poisson arrivals, or one behind
                    the other where rate is 0; seconds 0: until the next line, which is "stop"
    {"do": "loop", "job", "start", "seconds"}        one behind the other, two posted ahead
    {"do": "pairs", "job", "start", "seconds"}       every other one bypasses heddle
    {"do": "chain", "job", "count"}                  a digest of so many, each made of the last
"""

import contextlib
import ctypes
import hashlib
import json
import os
import random
import select
import time
from pathlib import Path

from protocol import bypass_word, go_paired, reply_stream

LEAD_S = 0.3  # a loop is in full swing when its time begins
DRAIN_S = 0.3  # requests that wait are served so long
AHEAD = 2
now = time.monotonic
COMMANDS = open(0, "rb", buffering=0)  # so that select sees every line that was not read


class Torch:
    def __init__(self, kind, model="", batch=1, priority=0):
        import jobs
        import torch
        self.jobs, self.torch, self.kind = jobs, torch, kind
        self.stream = (torch.cuda.Stream(priority=priority) if priority
                       else torch.cuda.default_stream())
        if kind == "tick":
            self.word = torch.zeros(256, device="cuda")
            return
        self.job = (jobs.Training if kind == "training" else jobs.Job)(model, batch)
        self.first = self.job.input.clone()
        if kind == "graph":
            self.capture(priority)

    def capture(self, priority):
        stream = self.torch.cuda.Stream(priority=priority)
        with self.torch.inference_mode(), self.torch.cuda.stream(stream):
            self.job.model(self.job.input)
        self.torch.cuda.synchronize()
        self.graph = self.torch.cuda.CUDAGraph()
        with self.torch.inference_mode(), self.torch.cuda.graph(self.graph, stream=stream):
            self.output = self.job.model(self.job.input)
        self.launch()
        self.wait()

    def context(self):
        return self.torch.cuda.stream(self.stream)

    def launch(self):
        if self.kind == "graph":
            self.graph.replay()
        elif self.kind == "training":
            self.job.step(self.job.input, self.job.targets)
        elif self.kind == "tick":
            self.word.add_(1)
        else:
            with self.torch.inference_mode():
                self.output = self.job.model(self.job.input)

    def mark(self):
        event = self.torch.cuda.Event()
        event.record()
        return event.synchronize

    def wait(self):
        self.torch.cuda.synchronize()

    def chain(self, count):
        self.torch.use_deterministic_algorithms(True, warn_only=True)
        if self.kind == "training":
            self.job.model.load_state_dict(self.job.initial)
            self.job.optimizer.state.clear()
        self.job.input.copy_(self.first)
        for _ in range(count):
            self.launch()
            if self.kind != "training":
                with self.torch.inference_mode():
                    self.job.input.add_(self.output.mean() * 1e-3)
        self.wait()
        self.torch.use_deterministic_algorithms(False)
        found = self.jobs.digest(self.job.model.state_dict() if self.kind == "training"
                                 else self.output)
        self.job.input.copy_(self.first)
        return found


class Spin:
    """Kernels of workloads/demo.ptx, which the simulated driver has too."""

    driver = None

    def __init__(self, kind, kernels, us, blocks, graph=False, priority=0):
        if not Spin.driver:
            Spin.driver, context, module = ctypes.CDLL("libcuda.so.1"), *self.words(2)
            self.call("cuInit", 0)
            self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
            self.call("cuCtxSetCurrent", context)
            ptx = (Path(__file__).resolve().parent / "demo.ptx").read_bytes() + b"\0"
            self.call("cuModuleLoadData", ctypes.byref(module), ptx)
            Spin.function, = self.words(1)
            self.call("cuModuleGetFunction", ctypes.byref(Spin.function), module, b"heddle_spin")
        self.blocks, self.exec, self.right = blocks, None, 0
        self.word, self.stream = self.words(2)
        self.call("cuMemAlloc_v2", ctypes.byref(self.word), 8)
        self.call("cuMemsetD8_v2", self.word, 0, 8)
        self.call("cuStreamCreateWithPriority", ctypes.byref(self.stream), 1, priority)
        self.values = [random.Random(i).getrandbits(64) for i in range(kernels)]
        self.kept = [(self.word, ctypes.c_uint32(int(us * 1e3)), ctypes.c_uint64(value))
                     for value in self.values]
        self.arguments = [(ctypes.c_void_p * 3)(*map(ctypes.addressof, of)) for of in self.kept]
        self.launch()
        self.wait()
        if graph:
            made, self.exec = self.words(2)
            self.call("cuStreamBeginCapture_v2", self.stream, 0)
            self.post()
            self.call("cuStreamEndCapture", self.stream, ctypes.byref(made))
            self.call("cuGraphInstantiateWithFlags", ctypes.byref(self.exec), made,
                      ctypes.c_uint64(8 if priority else 0))

    @staticmethod
    def words(count):
        return [ctypes.c_void_p() for _ in range(count)]

    def call(self, name, *arguments):
        found = getattr(self.driver, name)(*arguments)
        if found:
            raise RuntimeError(f"{name}: {found}")

    def context(self):
        return contextlib.nullcontext()

    def post(self):
        for arguments in self.arguments:
            self.call("cuLaunchKernel", self.function, self.blocks, 1, 1, 1024, 1, 1, 0,
                      self.stream, arguments, None)

    def launch(self):
        self.call("cuGraphLaunch", self.exec, self.stream) if self.exec else self.post()
        for value in self.values:
            self.right = (self.right * 6364136223846793005 + value) % 2**64

    def mark(self):
        event, = self.words(1)
        self.call("cuEventCreate", ctypes.byref(event), 2)
        self.call("cuEventRecord", event, self.stream)

        def wait():
            self.call("cuEventSynchronize", event)
            self.call("cuEventDestroy_v2", event)
        return wait

    def wait(self):
        self.call("cuStreamSynchronize", self.stream)

    def chain(self, count):
        for _ in range(count):
            self.launch()
        self.wait()
        word = ctypes.c_uint64()
        self.call("cuMemcpyDtoH_v2", ctypes.byref(word), self.word, 8)
        right = word.value == self.right
        return hashlib.sha256(f"{right} {count}".encode()).hexdigest()


def sleep_until(due):
    while (left := due - now()) > 0:
        if left > 3e-4:
            time.sleep(left - 2e-4)


def told():
    return bool(select.select([COMMANDS], [], [], 0)[0])


def requests(job, start, seconds, rate=0, seed=0):
    draw, taken, unserved = random.Random(seed), [], 0
    end = start + seconds if seconds else float("inf")
    sleep_until(start)
    due = start
    while True:
        due = due + draw.expovariate(rate) if rate else max(now(), start)
        if due >= end or not seconds and told():
            break
        if now() > end + DRAIN_S:
            unserved += 1
            continue
        sleep_until(due)
        job.launch()
        job.wait()
        taken.append(round((now() - due) * 1e6, 1))
    return {"us": taken, "unserved": unserved}


def loop(job, start, seconds):
    """Iterations a second, between the last ones that were done before it began and ended."""
    done, waits = [], []
    sleep_until(start - LEAD_S)
    while not done or done[-1] < start + seconds:
        job.launch()
        waits.append(job.mark())
        if len(waits) >= AHEAD:
            waits.pop(0)()
            done.append(now())
    job.wait()
    before = sum(at < start for at in done)
    within = sum(at < start + seconds for at in done) - before
    first = done[before - 1] if before else start
    last = done[before + within - 1] if within else start + seconds
    return {"per_s": within / max(last - first, 1e-9), "iterations": within}


def pairs(job, start, seconds):
    def iterate():
        job.launch()
        job.wait()
    return go_paired(iterate, bypass_word(), start, seconds, LEAD_S, 1)


def pin(cpus):
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):  # it ended
            os.sched_setaffinity(int(thread), cpus)
    return {}


def answer(held, do, job=None, **more):
    if do == "load":
        held[job] = (Spin if more["kind"] == "spin" else Torch)(**more)
        return {}
    if do == "pin":
        return pin(**more)
    late = now() > more.get("start", float("inf"))
    with held[job].context():
        if do == "chain":
            return {"digest": held[job].chain(**more)}
        return {"requests": requests, "loop": loop, "pairs": pairs}[do](
            held[job], **more) | {"late": late}


def main():
    out, held = reply_stream(), {}
    print(json.dumps({"ready": True, "pid": os.getpid()}), file=out)
    for line in COMMANDS:
        command = json.loads(line)
        if command["do"] == "stop":
            continue
        try:
            found = answer(held, **command)
        except Exception as error:  # the process measures on
            found = {"error": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps(found, separators=(",", ":")), file=out)


if __name__ == "__main__":
    main()
