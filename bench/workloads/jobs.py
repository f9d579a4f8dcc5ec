#!/usr/bin/env python3
"""A job that nobody wrote for heddle: a torchvision model or one of shapes.py (albert, bert-large,
distilbert, gpt2-large, whisper-encoder), random weights and data, eager, default stream, the whole
device synchronized after each iteration.

    jobs.py MODEL BATCH [--mode inference|training] [--precision fp32|bf16|half]
                        [--graph true|false] [--steps N]
                               then the commands of protocol.py on stdin

An iteration of training is a step: forward, backward, SGD with momentum. bf16 is autocast; half:
weights and data too, fp16 for inference and bf16 for training. --graph: inference as one CUDA
graph, of models that never wait for the GPU: detectors do. --steps: so many of all that are one
iteration: a job that ends.
"""

import argparse
import sys

from torch_job import REPLIES, about, digest, flatten, profile

import torch
import torchvision
from protocol import serve
from torchvision.models import detection, segmentation

DETECTORS = ("rcnn", "fcos", "retinanet", "ssd")
LARGE = DETECTORS + ("fcn", "deeplab", "lraspp")
WARM_UP = 10
LEARNING_RATE = 1e-5  # on random data nothing diverges, however long it is measured
CLASSES, SEGMENTS = 1000, 21  # torchvision's defaults
TRANSFORMERS = ("albert", "bert-large", "distilbert", "gpt2-large", "whisper-encoder")
SIDE = 16384  # of product's matrix: with a batch of as many, in 16 bits, 11 ms on an H200
OBJECTS, KEYPOINTS = 8, 17  # of each image of a detector's


def build(name):
    if name in TRANSFORMERS:
        return shapes().SHAPES[name]()
    if name == "product":
        return torch.nn.Linear(SIDE, SIDE, bias=False)
    for family in (segmentation, detection):
        if name in family.__dict__:
            return family.__dict__[name](weights=None, weights_backbone=None)
    return torchvision.models.get_model(name, weights=None)


def shapes():
    import shapes as found  # needs transformers, which no other model here does
    return found


def named(name, families):
    return any(part in name for part in families)


def seeded(seed):
    return torch.Generator(device="cuda").manual_seed(seed)


class Job:
    """Inference."""

    half_type = torch.float16

    def __init__(self, name, batch, precision="fp32", graph=False):
        torch.manual_seed(0)
        torch.backends.cudnn.benchmark = False
        self.name = name
        self.batch = batch
        self.side = 520 if named(name, LARGE) else 224
        self.bf16, self.half, self.graph = precision == "bf16", precision == "half", None
        self.model = build(name).cuda().eval()
        if self.half:
            self.model = self.model.to(self.half_type)
        self.input = self.make_input(0)
        self.prepare()
        for _ in range(WARM_UP):
            self.iterate()
        if graph:
            self.capture()
        self.about = about()

    def prepare(self):
        pass

    def capture(self):
        """The pass as one launch, which reads self.input and writes self.output."""
        if named(self.name, DETECTORS):
            sys.exit(f"jobs.py: {self.name} waits for the GPU within its pass, so that no graph "
                     "holds it; leave out graph")
        aside = torch.cuda.Stream()  # as captures want it: warmed up beside the default stream
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            self.iterate()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.inference_mode(), self.autocast(), torch.cuda.graph(graph):
            self.output = self.model(self.input)
        self.graph = graph

    def make_input(self, seed):
        if self.name in TRANSFORMERS:
            x = shapes().make_input(self.name, self.model, self.batch, seeded(seed))
        elif self.name == "product":
            x = torch.rand(self.batch, SIDE, device="cuda", generator=seeded(seed))
        else:
            x = torch.rand(self.batch, 3, self.side, self.side, device="cuda",
                           generator=seeded(seed))
        if self.half and x.is_floating_point():
            x = x.to(self.half_type)
        return list(x) if named(self.name, DETECTORS) else x

    def autocast(self):
        return torch.autocast("cuda", torch.bfloat16, enabled=self.bf16)

    def iterate(self):
        with torch.inference_mode(), self.autocast():
            self.graph.replay() if self.graph else self.model(self.input)
            torch.cuda.synchronize()

    def hash(self, count):
        """One digest per seeded input, over every output tensor, under pinned determinism."""
        torch.use_deterministic_algorithms(True, warn_only=True)
        digests = [self.hash_one(1 + seed) for seed in range(count)]
        torch.use_deterministic_algorithms(False)
        return digests

    def hash_one(self, seed):
        with torch.inference_mode(), self.autocast():
            if not self.graph:
                return digest(self.model(self.make_input(seed)))
            before = self.input.clone()
            self.input.copy_(self.make_input(seed))
            self.graph.replay()
            self.input.copy_(before)
            return digest(self.output)

    def profile(self, seconds):
        return profile(self.iterate, seconds)


class Training(Job):
    half_type = torch.bfloat16  # whose range needs no scaling of the loss

    def prepare(self):
        if "deeplab" in self.name and self.batch < 2:
            sys.exit(f"jobs.py: {self.name} cannot train at batch 1, for it normalizes one pooled "
                     "pixel over the batch; give batch = 2 or more")
        self.model.train()
        self.targets = self.make_targets(0)
        self.optimizer = torch.optim.SGD(self.model.parameters(), LEARNING_RATE, momentum=0.9)
        self.initial = {key: value.to("cpu", copy=True)
                        for key, value in self.model.state_dict().items()}

    def make_targets(self, seed):
        def integers(high, *shape):
            return torch.randint(high, shape, device="cuda", generator=seeded(seed))

        if self.name in TRANSFORMERS:
            return shapes().make_targets(self.name, self.model, self.batch, seeded(seed))
        if named(self.name, DETECTORS):
            return [self.make_objects(seed + image) for image in range(self.batch)]
        if named(self.name, LARGE):
            return integers(SEGMENTS, self.batch, self.side, self.side)
        return integers(CLASSES, self.batch)

    def make_objects(self, seed):
        """Of one image: boxes of at least an eighth of its side, and what masks and keypoints lie
        in them."""
        low, size, points = (torch.rand(OBJECTS, n, 2, device="cuda", generator=seeded(seed + n))
                             for n in (1, 2, KEYPOINTS))
        low, size = low[:, 0] * self.side / 2, (1 + 3 * size[:, 0]) * self.side / 8
        objects = {"boxes": torch.cat([low, low + size], 1),
                   "labels": torch.ones(OBJECTS, dtype=torch.long, device="cuda")}
        if "mask" in self.name:
            at = torch.arange(self.side, device="cuda")
            inside = (at >= low[..., None]) & (at < (low + size)[..., None])  # object, axis, pixel
            objects["masks"] = (inside[:, 1, :, None] & inside[:, 0, None, :]).byte()
        if "keypoint" in self.name:
            visible = torch.ones(OBJECTS, KEYPOINTS, 1, device="cuda")
            objects["keypoints"] = torch.cat([low[:, None] + points * size[:, None], visible], 2)
        return objects

    def step(self, inputs, targets):
        self.optimizer.zero_grad(set_to_none=True)
        with self.autocast():
            if named(self.name, DETECTORS):
                loss = sum(self.model(inputs, targets).values())
            else:  # auxiliary heads have the target of the main one
                loss = sum(torch.nn.functional.cross_entropy(head, targets)
                           for head in flatten(self.model(inputs)))
        loss.backward()
        self.optimizer.step()

    def iterate(self):
        self.step(self.input, self.targets)
        torch.cuda.synchronize()

    def hash_one(self, seed):
        """Of every parameter and buffer after one step from the initial ones."""
        self.model.load_state_dict(self.initial)
        self.optimizer.state.clear()  # momentum
        torch.manual_seed(seed)  # dropout, and which boxes a detector samples
        self.step(self.make_input(seed), self.make_targets(seed))
        return digest(self.model.state_dict())


def repeated(step, count):
    def iterate():
        for _ in range(count):
            step()
    return iterate


def parse(arguments):
    parser = argparse.ArgumentParser(prog="jobs.py")
    parser.add_argument("model")
    parser.add_argument("batch", type=int)
    parser.add_argument("--mode", choices=("inference", "training"), default="inference")
    parser.add_argument("--precision", choices=("fp32", "bf16", "half"), default="fp32")
    parser.add_argument("--graph", choices=("true", "false"), default="false")
    parser.add_argument("--steps", type=int, default=1)
    options = parser.parse_args(arguments)
    if options.graph == "true" and (options.mode != "inference" or options.precision == "bf16"):
        parser.error("--graph true is for inference in fp32 or half")
    return options


if __name__ == "__main__":
    options = parse(sys.argv[1:])
    kind = Training if options.mode == "training" else Job
    job = kind(options.model, options.batch, options.precision, options.graph == "true")
    job.iterate = repeated(job.iterate, options.steps)
    serve(job, REPLIES)
