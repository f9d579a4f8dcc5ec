"""Two ranks of one NCCL job on two GPUs: all-reduce, broadcast, send, receive among eager work.

The second rank is a process of its own; the first is this one. Both load PyTorch at the same time.
With HEDDLE_NCCL_SYMMETRIC=1 what is reduced lies in symmetric memory, for which NCCL has kernels of
their own (ncclSymk…).
"""

import multiprocessing
import os
import socket
import sys

import program

RANKS = 2


def symmetric_buffer(torch, dist, size):
    """In a pool that NCCL knows in all ranks; the pool must live as long."""
    backend = dist.group.WORLD._get_backend(torch.device("cuda"))
    pool = torch.cuda.MemPool(backend.mem_allocator)
    if "symm" not in backend.register_mem_pool.__doc__:
        program.skip("needs a PyTorch that registers symmetric memory")
    with torch.cuda.use_mem_pool(pool):
        buffer = torch.empty(size, device="cuda")
    backend.register_mem_pool(pool, symm=True)
    return buffer, pool


def compute(rank, port):
    """One rank's part; its digest."""
    import torch.distributed as dist
    from torch_setting import pinned, tensor_digest
    torch = pinned()
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", f"tcp://127.0.0.1:{port}", rank=rank, world_size=RANKS,
                            device_id=torch.device("cuda", rank))
    x = torch.arange(1 << 20, device="cuda", dtype=torch.float32) % 97 + rank
    buffer, pool = torch.empty_like(x), None
    if os.environ.get("HEDDLE_NCCL_SYMMETRIC"):
        buffer, pool = symmetric_buffer(torch, dist, x.shape)
    for _ in program.rounds() if rank == 0 else range(program.ROUNDS):
        for _ in range(4):
            torch.tanh(x * 0.5, out=buffer).add_(0.25)
            dist.all_reduce(buffer)
            x = buffer / RANKS
        dist.broadcast(x, src=0)
        if rank == 0:
            dist.send(x + 1, dst=1)
        else:
            received = torch.empty_like(x)
            dist.recv(received, src=0)
            x = received - 1
        torch.cuda.synchronize()
    found = tensor_digest(x)
    dist.barrier()
    torch.cuda.synchronize()
    del buffer, pool  # while NCCL still knows them
    dist.destroy_process_group()
    return found


def other_rank(pipe):
    import torch_setting  # noqa: F401  (meanwhile the first rank loads it, too)
    pipe.send(compute(1, pipe.recv()))
    pipe.recv()  # it stays until the daemon has been asked about both


def main():
    spawn = multiprocessing.get_context("spawn")
    pipe, theirs = spawn.Pipe()
    other = spawn.Process(target=other_rank, args=(theirs,), daemon=True)
    other.start()
    theirs.close()
    import torch_setting
    if torch_setting.torch.cuda.device_count() < RANKS:
        program.skip("needs 2 GPUs")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    pipe.send(port)
    digests = {"rank0": compute(0, port), "rank1": pipe.recv()}
    program.finish(digests)
    pipe.send(None)
    other.join(30)
    if other.exitcode != 0:
        print(f"rank 1 ended with {other.exitcode}", file=sys.stderr)
        os._exit(4)


if __name__ == "__main__":
    main()
