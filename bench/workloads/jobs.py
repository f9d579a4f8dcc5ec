#!/usr/bin/env python3
"""An inference job that nobody wrote for heddle: a torchvision model, random weights, eager,
default stream, the whole device synchronized after each iteration.

    jobs.py MODEL BATCH      then the commands of protocol.py on stdin
"""

import hashlib
import json
import os
import sys
import tempfile
import time

from protocol import reply_stream, serve

REPLIES = reply_stream()

import torch  # noqa: E402  (after stdout is safe from what imports print)
import torchvision  # noqa: E402
from torchvision.models import detection, segmentation  # noqa: E402

DETECTORS = ("rcnn", "fcos", "retinanet", "ssd")
LARGE = DETECTORS + ("fcn", "deeplab", "lraspp")
WARM_UP = 10


def build(name):
    for family in (segmentation, detection):
        if name in family.__dict__:
            return family.__dict__[name](weights=None, weights_backbone=None)
    return torchvision.models.get_model(name, weights=None)


def flatten(output):
    """Every tensor of a model's output, in a fixed order."""
    if isinstance(output, torch.Tensor):
        return [output]
    items = [output[k] for k in sorted(output)] if isinstance(output, dict) else output
    return [tensor for item in items for tensor in flatten(item)]


class Job:
    def __init__(self, name, batch):
        torch.manual_seed(0)
        torch.backends.cudnn.benchmark = False
        self.name = name
        self.batch = batch
        self.model = build(name).cuda().eval()
        self.input = self.make_input(0)
        for _ in range(WARM_UP):
            self.iterate()
        self.about = {
            "torch": torch.__version__,
            "gpu": torch.cuda.get_device_name(0),
            "memory_mib": torch.cuda.memory_reserved() >> 20,
        }

    def make_input(self, seed):
        side = 520 if any(part in self.name for part in LARGE) else 224
        generator = torch.Generator(device="cuda").manual_seed(seed)
        x = torch.rand(self.batch, 3, side, side, device="cuda", generator=generator)
        return list(x) if any(part in self.name for part in DETECTORS) else x

    def iterate(self):
        with torch.inference_mode():
            self.model(self.input)
            torch.cuda.synchronize()

    def hash(self, count):
        """One digest per seeded input, over every output tensor, under pinned determinism."""
        torch.use_deterministic_algorithms(True, warn_only=True)
        digests = []
        with torch.inference_mode():
            for seed in range(count):
                digest = hashlib.sha256()
                for tensor in flatten(self.model(self.make_input(1 + seed))):
                    digest.update(f"{tuple(tensor.shape)}{tensor.dtype}".encode())
                    digest.update(tensor.cpu().numpy().tobytes())
                digests.append(digest.hexdigest())
        torch.use_deterministic_algorithms(False)
        return digests

    def profile(self, seconds, timeline):
        """Device time of all kernels and copies against wall time. Tracing slows launch-bound
        models (FACTS: +50 %), so the caller also has kernel time per iteration to set against an
        untraced run. A traced process is measured no more: CUPTI stays loaded."""
        iterations = 0
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as trace:
            self.iterate()  # the first pays for CUPTI
            begin = time.time()
            while time.time() < begin + seconds:
                self.iterate()
                iterations += 1
            end = time.time()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "trace.json")
            trace.export_chrome_trace(path)
            with open(path) as file:
                chrome = json.load(file)
        return summarize(chrome, begin, end, iterations, timeline)


def summarize(chrome, begin, end, iterations, timeline):
    """`begin` and `end` are seconds of the wall clock, which the trace's base refers to as well."""
    base_us = chrome.get("baseTimeNanoseconds", 0) / 1e3
    spans = sorted(
        (event["ts"] + base_us, event["dur"], event["name"])
        for event in chrome["traceEvents"]
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")
    )
    if spans and not begin * 1e6 <= spans[len(spans) // 2][0] <= end * 1e6:
        # The base is not the wall clock in this version: align the last kernel with the end.
        shift = end * 1e6 - (spans[-1][0] + spans[-1][1])
        spans = [(at + shift, dur, name) for at, dur, name in spans]
    spans = [s for s in spans if s[0] >= begin * 1e6]
    kernel_s = sum(dur for _, dur, _ in spans) / 1e6
    answer = {
        "wall_s": round(end - begin, 6),
        "kernel_s": round(kernel_s, 6),
        "kernels": len(spans),
        "iterations": iterations,
    }
    if timeline:
        names = sorted({name for _, _, name in spans})
        index = {name: i for i, name in enumerate(names)}
        answer["names"] = [name[:80] for name in names]
        answer["spans_us"] = [[round(at, 1), round(dur, 1), index[name]] for at, dur, name in spans]
    return answer


if __name__ == "__main__":
    serve(Job(sys.argv[1], int(sys.argv[2])), REPLIES)
