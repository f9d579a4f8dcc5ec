#!/usr/bin/env python3
"""The services whose overhead bench/overhead.py measures: torchvision models as jobs.py runs them,
and one step of a language model's decoding, eager and as a CUDA graph.

    services.py NAME BATCH     then the commands of protocol.py on stdin
"""

import sys

import jobs
import torch
from protocol import serve

# About the size of a 1B model: loads in seconds with random weights, and is launch-bound.
LAYERS, HIDDEN, INNER, HEADS, KV_HEADS, VOCABULARY = 12, 2048, 5632, 16, 8, 32000
PROMPT, CACHE = 256, 512
WARM_UP = 10


class Transformers:
    """One decode step of transformers' own Llama, with its own cache, eager."""

    def __init__(self):
        from transformers import LlamaConfig, LlamaForCausalLM
        config = LlamaConfig(
            num_hidden_layers=LAYERS, hidden_size=HIDDEN, intermediate_size=INNER,
            num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, vocab_size=VOCABULARY)
        torch.set_default_dtype(torch.bfloat16)
        with torch.device("cuda"):
            self.model = LlamaForCausalLM(config).eval()
        torch.set_default_dtype(torch.float32)
        prompt = torch.arange(PROMPT, device="cuda")[None] % VOCABULARY
        with torch.inference_mode():
            answer = self.model(prompt, use_cache=True)
        self.cache = answer.past_key_values
        self.token = answer.logits[:, -1:].argmax(-1)

    def iterate(self):
        with torch.inference_mode():
            answer = self.model(self.token, past_key_values=self.cache, use_cache=True)
            answer.logits[:, -1:].argmax(-1)
            self.cache.crop(PROMPT)  # each step attends over equally much
            torch.cuda.synchronize()


class Decoder:
    """The same step by hand, on a cache of fixed size, so that it can be captured as a graph."""

    def __init__(self):
        make = torch.Generator(device="cuda").manual_seed(0)

        def weight(rows, columns):
            return torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16,
                               generator=make) * 0.02

        width = HIDDEN // HEADS
        self.embedding = weight(VOCABULARY, HIDDEN)
        self.layers = [
            {"qkv": weight(HIDDEN + 2 * KV_HEADS * width, HIDDEN), "out": weight(HIDDEN, HIDDEN),
             "up": weight(2 * INNER, HIDDEN), "down": weight(HIDDEN, INNER),
             "k": torch.zeros(1, KV_HEADS, CACHE, width, device="cuda", dtype=torch.bfloat16),
             "v": torch.zeros(1, KV_HEADS, CACHE, width, device="cuda", dtype=torch.bfloat16)}
            for _ in range(LAYERS)]
        self.norm = torch.ones(HIDDEN, device="cuda", dtype=torch.bfloat16)
        self.token = torch.zeros(1, dtype=torch.long, device="cuda")
        self.at = torch.full((1,), PROMPT, device="cuda")
        self.mask = (torch.arange(CACHE, device="cuda") <= PROMPT)[None, None, None]
        angle = PROMPT / 10000 ** (torch.arange(0, width, 2, device="cuda") / width)
        self.cos, self.sin = (f(angle).bfloat16().repeat(2) for f in (torch.cos, torch.sin))

    def rotated(self, x):
        low, high = x.chunk(2, -1)
        return x * self.cos + torch.cat((-high, low), -1) * self.sin

    def attend(self, layer, x):
        width = HIDDEN // HEADS
        q, k, v = (x @ layer["qkv"].T).split([HIDDEN, KV_HEADS * width, KV_HEADS * width], -1)
        q = self.rotated(q.view(1, HEADS, 1, width))
        layer["k"].index_copy_(2, self.at, self.rotated(k.view(1, KV_HEADS, 1, width)))
        layer["v"].index_copy_(2, self.at, v.view(1, KV_HEADS, 1, width))
        mixed = torch.nn.functional.scaled_dot_product_attention(
            q, layer["k"], layer["v"], attn_mask=self.mask, enable_gqa=True)
        return mixed.reshape(1, HIDDEN) @ layer["out"].T

    def step(self):
        functional = torch.nn.functional
        x = self.embedding[self.token]
        for layer in self.layers:
            x = x + self.attend(layer, functional.rms_norm(x, (HIDDEN,), self.norm))
            gate, up = (functional.rms_norm(x, (HIDDEN,), self.norm) @ layer["up"].T).chunk(2, -1)
            x = x + (functional.silu(gate) * up) @ layer["down"].T
        self.token.copy_((x @ self.embedding.T).argmax(-1))

    def iterate(self):
        with torch.inference_mode():
            self.step()
            torch.cuda.synchronize()


class Graph:
    """The decoder's step as one graph launch."""

    def __init__(self):
        decoder = Decoder()
        with torch.inference_mode():
            torch.cuda.synchronize()
            warm = torch.cuda.Stream()
            with torch.cuda.stream(warm):
                for _ in range(3):
                    decoder.step()
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                decoder.step()
        self.decoder = decoder  # owns the memory that the graph uses

    def iterate(self):
        self.graph.replay()
        torch.cuda.synchronize()


SERVICES = {"llm_eager": Transformers, "llm_by_hand": Decoder, "llm_graph": Graph}


def load(name, batch):
    if name not in SERVICES:
        return jobs.Job(name, batch)
    about = {"torch": torch.__version__, "gpu": torch.cuda.get_device_name(0), "by": name}
    try:
        service = warmed(SERVICES[name]())
    except Exception as error:  # whatever a version of transformers does not have
        if name != "llm_eager":
            raise
        service = warmed(Decoder())
        about |= {"by": "llm_by_hand", "because": repr(error)[:300]}
    service.about = about
    return service


def warmed(service):
    for _ in range(WARM_UP):
        service.iterate()
    return service


if __name__ == "__main__":
    serve(load(sys.argv[1], int(sys.argv[2])), jobs.REPLIES)
