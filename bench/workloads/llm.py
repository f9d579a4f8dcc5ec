#!/usr/bin/env python3
"""A language model: transformers' Llama with random weights, bf16, default stream, greedy.

    llm.py [--shape llama-3.1-8b|llama-2-7b|qwen3-4b|small]
           [--mode decode|prefill|generate|finetune] [--batch N] [--context N] [--tokens N]
           [--graph true|false]    then the commands of protocol.py on stdin

An iteration of `decode` is a request: --tokens tokens, one after the other, behind a context of
--context tokens that was read before. The device is synchronized after each token, as by a server
that streams it, so a request has its time (JCT), that of its first token (TTFT) and the times
between its tokens (TBT). An iteration of `prefill` is one prompt of --context tokens, up to the
first token of the answer; `generate` is a whole request: the prompt, read launch by launch, and
--tokens tokens. --graph: a cache of fixed size and the step (a token, or the prompt) as one CUDA
graph; without, as `generate` calls the model: launch by launch on a cache that grows. `finetune` is
a step of LoRA (rank 16, of queries and values; Hu et al., 2022) on --batch sequences of --context
tokens.
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
    # config.json of meta-llama/Llama-2-7b-hf.
    "llama-2-7b": LlamaConfig(
        num_hidden_layers=32, hidden_size=4096, intermediate_size=11008, num_attention_heads=32,
        num_key_value_heads=32, vocab_size=32000, max_position_embeddings=4096),
    # The sizes of config.json of Qwen/Qwen3-4B, as a Llama.
    "qwen3-4b": LlamaConfig(
        num_hidden_layers=36, hidden_size=2560, intermediate_size=9728, num_attention_heads=32,
        num_key_value_heads=8, head_dim=128, vocab_size=151936, max_position_embeddings=40960,
        tie_word_embeddings=True),
    # About the size of a 1B model: loads in seconds and is launch-bound.
    "small": LlamaConfig(
        num_hidden_layers=12, hidden_size=2048, intermediate_size=5632, num_attention_heads=16,
        num_key_value_heads=8, vocab_size=32000, max_position_embeddings=131072),
}
WARM_UP = 3  # iterations; before a capture too
LEARNING_RATE = 1e-5  # on random data nothing diverges, however long it is measured


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
        self.decodes, self.generates = mode in ("decode", "generate"), mode == "generate"
        self.tokens = tokens
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
        times = []
        if self.generates:
            self.steps.read()
            torch.cuda.synchronize()
            times.append(time.monotonic())
        else:
            self.steps.rewind()
        while len(times) < self.tokens:
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


class Lora(torch.nn.Module):
    """A linear layer and what is learned beside it."""

    RANK = 16

    def __init__(self, linear):
        super().__init__()
        self.linear = linear
        like = {"device": linear.weight.device, "dtype": linear.weight.dtype, "bias": False}
        self.down = torch.nn.Linear(linear.in_features, self.RANK, **like)
        self.up = torch.nn.Linear(self.RANK, linear.out_features, **like)
        torch.nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.linear(x) + self.up(self.down(x))


class Finetune:
    def __init__(self, shape, batch, context):
        self.model = build(shape).requires_grad_(False)
        for layer in self.model.model.layers:
            for name in ("q_proj", "v_proj"):
                setattr(layer.self_attn, name, Lora(getattr(layer.self_attn, name)))
        learned = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(learned, lr=LEARNING_RATE)
        generator = torch.Generator(device="cuda").manual_seed(0)
        self.ids = torch.randint(self.model.config.vocab_size, (batch, context), device="cuda",
                                 generator=generator)
        for _ in range(WARM_UP):
            self.iterate()
        self.about = about() | {"transformers": transformers.__version__}

    def iterate(self):
        self.optimizer.zero_grad(set_to_none=True)
        self.model(self.ids, labels=self.ids, use_cache=False).loss.backward()
        self.optimizer.step()
        torch.cuda.synchronize()

    def profile(self, seconds):
        return profile(self.iterate, seconds)


def parse(arguments):
    parser = argparse.ArgumentParser(prog="llm.py")
    add = parser.add_argument
    add("--shape", choices=tuple(SHAPES), default="llama-3.1-8b")
    add("--mode", choices=("decode", "prefill", "generate", "finetune"), default="decode")
    add("--batch", type=int, default=1)
    add("--context", type=int, default=1000)
    add("--tokens", type=int, default=16)
    add("--graph", choices=("true", "false"), default="false")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    options = vars(parse(sys.argv[1:]))
    if options["mode"] == "finetune":
        serve(Finetune(options["shape"], options["batch"], options["context"]), REPLIES)
    else:
        serve(Llm(**options | {"graph": options["graph"] == "true"}), REPLIES)
