"""PyTorch under pinned autotuning and determinism, alike in every process."""

import os

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

from program import digest, skip  # noqa: E402

try:
    import torch
except ImportError:
    skip("not installed: torch")


def pinned():
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = False
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.use_deterministic_algorithms(True, warn_only=True)
    return torch


def tensor_digest(tensor):
    tensor = tensor.detach().cpu().contiguous()
    return digest(tensor.float().numpy() if tensor.dtype == torch.bfloat16 else tensor.numpy())


def convolutions():
    """A small network with convolutions (cuDNN), normalization and products (cuBLAS)."""
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(3, 32, 5, padding=2), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.GELU(), nn.AvgPool2d(8),
        nn.Flatten(), nn.Linear(1024, 256), nn.LayerNorm(256), nn.ReLU(), nn.Linear(256, 10)).cuda()


def images(seed, count=16):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return torch.rand(count, 3, 64, 64, device="cuda", generator=generator)
