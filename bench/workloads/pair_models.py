"""The models whose kernels pairs.py lifts: random weights and data, each captured as one CUDA
graph. A graph keeps what its kernels read and write.
"""

import torch
import torch.nn.functional as F
import torchvision

WARM_UP = 3
SEQUENCE, VOCABULARY = 128, 30000
# Shape of a layer of Llama-3.1-8B.
HIDDEN, INNER, HEADS, KEY_HEADS, HEAD = 4096, 14336, 32, 8, 128
CONTEXT = 2048

# NAME: (kind, what, batch, precision). The order is part of the draw.
MODELS = {
    "resnet152-b8": ("vision", "resnet152", 8, "fp32"),
    "vgg19-b8": ("vision", "vgg19", 8, "fp32"),
    "densenet201-b8": ("vision", "densenet201", 8, "fp32"),
    "resnext101-b1": ("vision", "resnext101_32x8d", 1, "fp32"),
    "squeezenet-b32": ("vision", "squeezenet1_0", 32, "fp32"),
    "mobilenet-b32": ("vision", "mobilenet_v3_large", 32, "fp32"),
    "vit-b8": ("vision", "vit_b_16", 8, "bf16"),
    "albert-b8": ("albert", None, 8, "fp32"),
    "llama-decode-b8": ("llama", 1, 8, "bf16"),
    "llama-prefill-512": ("llama", 512, 1, "bf16"),
    "resnet50-train-b16": ("training", "resnet50", 16, "fp32"),
}
SELFTEST = "resnet18-b8"
MODELS_OF_TESTS = {SELFTEST: ("vision", "resnet18", 8, "fp32")}


class Layer(torch.nn.Module):
    """A decoder's layer, `tokens` new ones behind CONTEXT - tokens cached."""

    def __init__(self, tokens, batch):
        super().__init__()

        def linear(inputs, outputs):
            return torch.nn.Linear(inputs, outputs, bias=False)

        self.q, self.o = linear(HIDDEN, HEADS * HEAD), linear(HEADS * HEAD, HIDDEN)
        self.k, self.v = linear(HIDDEN, KEY_HEADS * HEAD), linear(HIDDEN, KEY_HEADS * HEAD)
        self.gate, self.up = linear(HIDDEN, INNER), linear(HIDDEN, INNER)
        self.down = linear(INNER, HIDDEN)
        self.norms = torch.nn.ModuleList(torch.nn.RMSNorm(HIDDEN) for _ in range(2))
        cached = 0 if tokens > 1 else CONTEXT - tokens
        self.register_buffer("keys", torch.randn(batch, KEY_HEADS, cached, HEAD))
        self.register_buffer("values", torch.randn(batch, KEY_HEADS, cached, HEAD))
        self.causal = tokens > 1

    def heads(self, x, count):
        return x.view(x.shape[0], x.shape[1], count, HEAD).transpose(1, 2)

    def forward(self, x):
        y = self.norms[0](x)
        keys = torch.cat([self.keys, self.heads(self.k(y), KEY_HEADS)], 2)
        values = torch.cat([self.values, self.heads(self.v(y), KEY_HEADS)], 2)
        keys, values = (t.repeat_interleave(HEADS // KEY_HEADS, 1) for t in (keys, values))
        y = F.scaled_dot_product_attention(self.heads(self.q(y), HEADS), keys, values,
                                           is_causal=self.causal)
        x = x + self.o(y.transpose(1, 2).reshape(x.shape[0], x.shape[1], HEADS * HEAD))
        y = self.norms[1](x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def albert():
    import transformers  # needed for this one alone
    # config.json of albert/albert-base-v2; the defaults are those of xxlarge.
    return transformers.AlbertForSequenceClassification(transformers.AlbertConfig(
        hidden_size=768, num_attention_heads=12, intermediate_size=3072, num_labels=1000))


def step_of(name):
    """A function without arguments to be captured."""
    kind, what, batch, precision = (MODELS | MODELS_OF_TESTS)[name]
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    with torch.device("cuda"):
        if kind == "albert":
            model = albert().eval()
            given = torch.randint(VOCABULARY, (batch, SEQUENCE))
        elif kind == "llama":
            model = torch.nn.Sequential(Layer(what, batch), Layer(what, batch)).to(dtype).eval()
            given = torch.randn(batch, what, HIDDEN, dtype=dtype)
        else:
            model = torchvision.models.get_model(what, weights=None).to(dtype)
            given = torch.rand(batch, 3, 224, 224, dtype=dtype)
    if kind == "training":
        return training(model.train(), given)
    model.eval()

    def infer():
        with torch.inference_mode():
            return model(given)
    return infer


def training(model, given):
    optimizer = torch.optim.SGD(model.parameters(), 1e-5, momentum=0.9)
    targets = torch.randint(1000, (len(given),), device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=False)
        F.cross_entropy(model(given), targets).backward()
        optimizer.step()
    return step


class Captured:
    """A model's pass as a graph. Its CUgraph is `graph`; nobody may launch the pass meanwhile."""

    def __init__(self, name):
        torch.manual_seed(0)
        torch.backends.cudnn.benchmark = False
        self.step = step_of(name)  # holds weights and inputs
        aside = torch.cuda.Stream()  # as captures want it: warmed up beside the default stream
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(WARM_UP):
                self.step()
        torch.cuda.current_stream().wait_stream(aside)
        torch.cuda.synchronize()
        self.kept = torch.cuda.CUDAGraph(keep_graph=True)  # torch 2.8 or newer
        with torch.cuda.graph(self.kept):
            self.output = self.step()
        self.kept.replay()  # fills the buffers that its kernels read
        torch.cuda.synchronize()
        self.graph = self.kept.raw_cuda_graph()


def versions():
    return {"torch": torch.__version__, "cuda": torch.version.cuda,
            "gpu": torch.cuda.get_device_name(0)}
