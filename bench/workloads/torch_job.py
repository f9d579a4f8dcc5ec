"""What every PyTorch job has: replies on a stdout of their own, digests of its outputs, a profile,
and what it says of itself when it is ready."""

import hashlib
import json
import os
import tempfile
import time

from protocol import reply_stream

REPLIES = reply_stream()

import torch  # noqa: E402  (after stdout is safe from what imports print)


def about():
    return {
        "torch": torch.__version__,
        "gpu": torch.cuda.get_device_name(0),
        "memory_mib": torch.cuda.memory_reserved() >> 20,
    }


def flatten(output):
    """Every tensor of a model's output, in a fixed order."""
    if isinstance(output, torch.Tensor):
        return [output]
    items = [output[k] for k in sorted(output)] if isinstance(output, dict) else output
    return [tensor for item in items for tensor in flatten(item)]


def digest(output):
    """SHA-256 over shape, type and every byte of every tensor."""
    sha = hashlib.sha256()
    for tensor in flatten(output):
        sha.update(f"{tuple(tensor.shape)}{tensor.dtype}".encode())
        sha.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()


def profile(iterate, seconds):
    """Device time of all kernels and copies against wall time. Tracing slows launch-bound models
    (+50 % measured), so the caller also has kernel time per iteration to set against an untraced
    run. A traced process is measured no more: CUPTI stays loaded."""
    iterations = 0
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as trace:
        iterate()  # the first pays for CUPTI
        begin = time.time()
        while time.time() < begin + seconds:
            iterate()
            iterations += 1
        end = time.time()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        trace.export_chrome_trace(path)
        with open(path) as file:
            chrome = json.load(file)
    return summarize(chrome, begin, end, iterations)


def summarize(chrome, begin, end, iterations):
    """`begin` and `end` are seconds of the wall clock, which the trace's base refers to as well."""
    base_us = chrome.get("baseTimeNanoseconds", 0) / 1e3
    spans = sorted(
        (event["ts"] + base_us, event["dur"])
        for event in chrome["traceEvents"]
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")
    )
    if spans and not begin * 1e6 <= spans[len(spans) // 2][0] <= end * 1e6:
        # The base is not the wall clock in this version: align the last kernel with the end.
        shift = end * 1e6 - (spans[-1][0] + spans[-1][1])
        spans = [(at + shift, dur) for at, dur in spans]
    spans = [s for s in spans if s[0] >= begin * 1e6]
    kernel_s = sum(dur for _, dur in spans) / 1e6
    return {
        "wall_s": round(end - begin, 6),
        "kernel_s": round(kernel_s, 6),
        "kernels": len(spans),
        "iterations": iterations,
    }
