"""Two ranks of one NCCL job on two GPUs: all-reduce, broadcast, send, receive among eager work."""

import os
import socket
import sys

import program
from torch_setting import pinned, tensor_digest

torch = pinned()
RANKS = 2


def rank_main(rank, port, results):
    import torch.distributed as dist
    pinned()
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", f"tcp://127.0.0.1:{port}", rank=rank, world_size=RANKS)
    x = torch.arange(1 << 20, device="cuda", dtype=torch.float32) % 97 + rank
    for _ in program.rounds() if rank == 0 else quiet_rounds():
        for _ in range(4):
            x = torch.tanh(x * 0.5) + 0.25
            dist.all_reduce(x)
            x = x / RANKS
        dist.broadcast(x, src=0)
        if rank == 0:
            dist.send(x + 1, dst=1)
        else:
            received = torch.empty_like(x)
            dist.recv(received, src=0)
            x = received - 1
        torch.cuda.synchronize()
    results[rank] = tensor_digest(x)
    dist.barrier()
    dist.destroy_process_group()


def quiet_rounds():
    return range(program.ROUNDS)


def main():
    if torch.cuda.device_count() < RANKS:
        program.skip("needs 2 GPUs")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = torch.multiprocessing.get_context("spawn")
    with context.Manager() as manager:
        results = manager.dict()
        # The second rank is a process of its own; the first is this one.
        other = context.Process(target=rank_main, args=(1, port, results))
        other.start()
        rank_main(0, port, results)
        other.join(30)
        if other.exitcode != 0:
            print(f"rank 1 ended with {other.exitcode}", file=sys.stderr)
            os._exit(4)
        program.finish({f"rank{rank}": results[rank] for rank in range(RANKS)})


if __name__ == "__main__":
    main()
