#!/usr/bin/env python3
"""Does every PyTorch workload load, iterate and give the same outputs twice? For a GPU host, before
anything is measured. Several run at a time, so the times here are no measurement.

    check.py [--out FILE] [--seconds 2] [--at-once 4] [--only TEXT]

Writes one JSON object a case, as they end; what is in FILE already without an error is not done
again. Exit status 1 if a case failed.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Of the papers, by torchvision's names (MMK's Table III for the five before the
# last, which is transformers').
MODELS = (
    "alexnet", "vgg16", "vgg19", "googlenet", "resnet50", "resnet101", "resnet152",
    "fcn_resnet50", "fcn_resnet101", "deeplabv3_resnet50", "deeplabv3_resnet101",
    "maskrcnn_resnet50_fpn", "keypointrcnn_resnet50_fpn", "fasterrcnn_resnet50_fpn",
    "fcos_resnet50_fpn", "densenet201", "resnext101_32x8d", "shufflenet_v2_x1_0",
    "squeezenet1_1", "resnet18", "densenet121", "mobilenet_v2", "albert")
LIMIT_S = 300  # of one case


def cases():
    """Name and command of each."""
    for model in MODELS:
        for mode, batch, precision in (("inference", 1, "fp32"), ("training", 2, "fp32"),
                                       ("training", 2, "bf16")):
            yield (f"{model} {mode} {precision}",
                   ["jobs.py", model, str(batch), "--mode", mode, "--precision", precision])
    for model in ("bert-large", "distilbert", "whisper-encoder"):
        for graph in ("false", "true"):
            yield (f"{model} inference half{' graph' if graph == 'true' else ''}",
                   ["jobs.py", model, "1", "--precision", "half", "--graph", graph])
    for model in ("gpt2-large", "whisper-encoder"):
        yield (f"{model} training half",
               ["jobs.py", model, "1", "--mode", "training", "--precision", "half"])
    for shape in ("small", "llama-2-7b", "qwen3-4b"):
        for graph in ("false", "true"):
            yield (f"{shape} generate{' graph' if graph == 'true' else ''}",
                   ["llm.py", "--shape", shape, "--mode", "generate", "--context", "128",
                    "--graph", graph])
    yield ("small finetune", ["llm.py", "--shape", "small", "--mode", "finetune"])
    for shape in ("small", "llama-3.1-8b"):
        for mode in ("decode", "prefill"):
            for graph in ("false", "true"):
                yield (f"{shape} {mode}{' graph' if graph == 'true' else ''}",
                       ["llm.py", "--shape", shape, "--mode", mode, "--graph", graph])


class Failed(Exception):
    pass


def read(process):
    """The next JSON object that the job prints."""
    for line in process.stdout:
        if line.startswith("{"):
            answer = json.loads(line)
            if "error" in answer:
                raise Failed(answer["error"])
            return answer
    raise Failed("ended")


def tell(process, command):
    print(command, file=process.stdin, flush=True)
    return read(process)


def exercise(process, seconds, found):
    begin = time.monotonic()
    found["about"] = read(process)
    found["ready_s"] = round(time.monotonic() - begin, 1)
    block = tell(process, f"go {time.monotonic() + 0.1:.6f} {seconds} 0.1 0")
    if not block["us"]:
        raise Failed("no iteration")
    found["iterations"] = len(block["us"])
    found["mean_ms"] = round(statistics.fmean(block["us"]) / 1e3, 3)
    if "tbt_us" in block:
        found["tbt_p50_ms"] = statistics.median(block["tbt_us"]) / 1e3
    if "hash" in found["about"]["can"]:
        first, second = (tell(process, "hash 1")["sha256"] for _ in range(2))
        found["repeatable"] = first == second


def check(command, seconds):
    """What the job said and did; "error" is in it if it failed."""
    # As heddle-bench run starts jobs.
    env = os.environ | {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "PYTHONHASHSEED": "0"}
    found = {}
    with tempfile.TemporaryFile() as log, subprocess.Popen(
            ["timeout", "-k", "5", str(LIMIT_S), sys.executable, HERE / command[0], *command[1:]],
            env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=log) as process:
        try:
            exercise(process, seconds, found)
            process.communicate("quit\n")
        except (Failed, KeyError, OSError) as error:
            process.terminate()
            process.wait()
            log.seek(0)
            found["error"] = f"{error}: {log.read().decode(errors='replace')[-1500:].strip()}"
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--out", type=Path, default=Path("check.json"))
    add("--seconds", type=float, default=2, help="of iterations, for each")
    add("--at-once", type=int, default=4, metavar="N")
    add("--only", default="", metavar="TEXT", help="cases whose name has it")
    options = parser.parse_args()
    found = json.loads(options.out.read_text()) if options.out.exists() else {}

    with ThreadPoolExecutor(options.at_once) as pool:
        running = {pool.submit(check, command, options.seconds): name for name, command in cases()
                   if options.only in name and "error" in found.get(name, {"error": ""})}
        for ended in as_completed(running):
            name = running[ended]
            found[name] = ended.result()
            options.out.write_text(json.dumps(found, indent=1) + "\n")
            what = found[name].get("error", f"{found[name].get('mean_ms')} ms")
            print(f"{name}: {what.splitlines()[-1]}", flush=True)
    return any("error" in one for one in found.values())


if __name__ == "__main__":
    sys.exit(main())
