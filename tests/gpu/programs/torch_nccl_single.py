"""One process, several GPUs, one NCCL communicator each: group calls from one thread."""

import program
from torch_setting import pinned, tensor_digest

torch = pinned()


def main():
    count = torch.cuda.device_count()
    if count < 2:
        program.skip("needs 2 GPUs")
    from torch.cuda import nccl
    parts = [torch.arange(1 << 20, device=f"cuda:{d}", dtype=torch.float32) % 89 + d
             for d in range(count)]
    for _ in program.rounds():
        for _ in range(4):
            parts = [torch.sin(part) + 0.5 for part in parts]
            nccl.all_reduce(parts)
            parts = [part / count for part in parts]
        for d in range(count):
            torch.cuda.synchronize(d)
    program.finish({f"gpu{d}": tensor_digest(part) for d, part in enumerate(parts)})


main()
