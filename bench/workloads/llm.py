#!/usr/bin/env python3
"""A language model: transformers' Llama with random weights, bf16, default stream, greedy.

    llm.py [--shape llama-3.1-8b|small] [--mode decode|prefill] [--batch N] [--context N]
           [--tokens N] [--graph true|false]    then the commands of protocol.py on stdin

An iteration of `decode` is a request: --tokens tokens, one after the other, behind a context of
--context tokens that was read before. The device is synchronized after each token, as by a server
that streams it, so a request has its time (JCT) and the times between its tokens (TBT). An
iteration of `prefill` is one prompt of --context tokens, up to the first token of the answer.
--graph: a cache of fixed size and the step (a token, or the prompt) as one CUDA graph; without, as
`generate` calls the model: launch by launch on a cache that grows.
"""

import argparse
import sys
import time

from torch_job import REPLIES, about, digest, profile

import torch
import transformers
from protocol import serve
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM, StaticCache

SHAPES = {
    # config.json of meta-llama/Llama-3.1-8B.
    "llama-3.1-8b": LlamaConfig(
        num_hidden_layers=32, hidden_size=4096, intermediate_size=14336, num_attention_heads=32,
        num_key_value_heads=8, vocab_size=128256, max_position_embeddings=131072),
    # About the size of a 1B model: loads in seconds and is launch-bound.
    "small": LlamaConfig(
        num_hidden_layers=12, hidden_size=2048, intermediate_size=5632, num_attention_heads=16,
        num_key_value_heads=8, vocab_size=32000, max_position_embeddings=131072),
}
WARM_UP = 3  # iterations; before a capture too


def build(shape):
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = LlamaForCausalLM(SHAPES[shape]).eval()
    torch.set_default_dtype(torch.float32)
    return model


def greedy(logits):
    return logits[:, -1:].argmax(-1)


class Eager:
    """As `generate` does it: a cache that grows, masks and positions made on the way."""

    def __init__(self, model, prompt):
        self.model, self.prompt = model, prompt
        self.read()

    def forward(self, ids):
        self.logits = self.model(ids, past_key_values=self.cache, use_cache=True,
                                 logits_to_keep=1).logits
        self.token = greedy(self.logits)

    def read(self):
        self.cache = DynamicCache(config=self.model.config)
        self.forward(self.prompt)
        self.first = self.token

    def decode(self):
        self.forward(self.token)

    def rewind(self):
        """To behind the prompt."""
        decoded = self.cache.get_seq_length() - self.prompt.shape[1]
        if decoded > 0:
            self.cache.crop(-decoded)
        self.token = self.first


class Graph:
    """A cache of fixed size, and everything that a step changes in tensors that stay, so that the
    step can be captured."""

    def __init__(self, model, prompt, tokens):
        batch, self.context = prompt.shape
        self.model, self.prompt = model, prompt
        self.cache = StaticCache(config=model.config, max_cache_len=self.context + tokens)
        if not hasattr(self.cache.layers[0], "cumulative_length"):
            sys.exit("llm.py: --graph needs transformers 5.5 or newer, here is "
                     + transformers.__version__)
        self.slots = torch.arange(self.context + tokens, device="cuda")
        self.position = torch.zeros(1, 1, dtype=torch.long, device="cuda")
        self.token = torch.zeros(batch, 1, dtype=torch.long, device="cuda")
        self.first = torch.zeros_like(self.token)
        self.read()

    def forward(self, ids, positions):
        mask = self.slots <= positions[:, None, :, None]
        self.logits = self.model(
            ids, attention_mask=mask.expand(len(ids), -1, -1, -1), position_ids=positions,
            past_key_values=self.cache, use_cache=True, logits_to_keep=1).logits
        self.token.copy_(greedy(self.logits))

    def read(self):
        self.set_length(0)
        self.forward(self.prompt, self.slots[None, :self.context])
        self.position.fill_(self.context)
        self.first.copy_(self.token)

    def decode(self):
        self.forward(self.token, self.position)
        self.position.add_(1)

    def rewind(self):
        self.set_length(self.context)
        self.position.fill_(self.context)
        self.token.copy_(self.first)

    def set_length(self, length):
        for layer in self.cache.layers:
            layer.cumulative_length.fill_(length)

    def captured(self, step):
        """`step` as one graph launch."""
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(WARM_UP):
                self.rewind()
                step()
            self.rewind()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        logits = self.logits

        def launch():
            graph.replay()
            self.logits = logits

        return launch


class Llm:
    def __init__(self, shape, mode="decode", batch=1, context=1000, tokens=16, graph=False):
        model = build(shape)
        self.shape, self.vocabulary = (batch, context), model.config.vocab_size
        self.decodes, self.tokens = mode == "decode", tokens
        with torch.inference_mode():
            prompt = self.prompt(0)
            self.steps = Graph(model, prompt, tokens) if graph else Eager(model, prompt)
            self.step = self.steps.decode if self.decodes else self.steps.read
            if graph:
                self.step = self.steps.captured(self.step)
        for _ in range(WARM_UP):
            self.iterate()
        self.about = about() | {
            "transformers": transformers.__version__, "dtype": str(model.dtype),
            "parameters": sum(p.numel() for p in model.parameters())}

    def prompt(self, seed):
        generator = torch.Generator(device="cuda").manual_seed(seed)
        return torch.randint(self.vocabulary, self.shape, device="cuda", generator=generator)

    @torch.inference_mode()
    def iterate(self):
        if not self.decodes:
            self.step()
            torch.cuda.synchronize()
            return None
        self.steps.rewind()
        times = []
        for _ in range(self.tokens):
            self.step()
            torch.cuda.synchronize()
            times.append(time.monotonic())
        return times

    @torch.inference_mode()
    def hash(self, count):
        """One digest per seeded prompt, over the logits of its last token and of every decoded
        one."""
        digests = []
        for seed in (*range(1, 1 + count), 0):  # the last is the prompt that was there before
            self.steps.prompt.copy_(self.prompt(seed))
            self.steps.read() if self.decodes else self.step()
            logits = [self.steps.logits.clone()]
            for _ in range(self.tokens if self.decodes else 0):
                self.step()
                logits.append(self.steps.logits.clone())
            digests.append(digest(logits))
        return digests[:count]

    def profile(self, seconds):
        return profile(self.iterate, seconds)


def parse(arguments):
    parser = argparse.ArgumentParser(prog="llm.py")
    add = parser.add_argument
    add("--shape", choices=tuple(SHAPES), default="llama-3.1-8b")
    add("--mode", choices=("decode", "prefill"), default="decode")
    add("--batch", type=int, default=1)
    add("--context", type=int, default=1000)
    add("--tokens", type=int, default=16)
    add("--graph", choices=("true", "false"), default="false")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    options = vars(parse(sys.argv[1:]))
    serve(Llm(**options | {"graph": options["graph"] == "true"}), REPLIES)
