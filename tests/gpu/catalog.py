"""The programs of the framework matrix and the conditions that each runs under."""

import sys
from dataclasses import dataclass, field
from pathlib import Path

PROGRAMS = Path(__file__).resolve().parent / "programs"

# Alike in every process. NVLink multicast stays off: it can put a shared host's GPUs out of use.
PINNED = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "PYTHONHASHSEED": "0", "NCCL_NVLS_ENABLE": "0",
          "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1",
          "PYTHONDONTWRITEBYTECODE": "1", "PYTHONFAULTHANDLER": "1"}


@dataclass(frozen=True)
class Program:
    """One row. `flags` go to nvcc; `needs` are headers without which it is "not installed";
    `wrap` stands before the command; `counted` is False where another tool holds CUPTI, `attaches`
    where the program brings a driver library of its own. So many `processes` of it launch."""
    name: str
    source: str
    about: str
    flags: tuple = ()
    needs: tuple = ()
    env: dict = field(default_factory=dict, hash=False)
    wrap: tuple = ()
    timeout_s: float = 60
    counted: bool = True
    exclusive: bool = False
    attaches: bool = True
    processes: int = 1

    @property
    def binary(self):
        """File name of what it is built into; None for Python. Equal builds are made once."""
        if self.source.endswith(".py"):
            return None
        return "_".join([Path(self.source).stem, *(flag.strip("-") for flag in self.flags)])

    def command(self, binaries):
        if self.source.endswith(".py"):
            run = [sys.executable, str(PROGRAMS / self.source)]
        else:
            run = [str(binaries / self.binary)]
        return [*self.wrap, *run]


def torch(name, about, timeout_s=150, **more):
    return Program(name, f"{name}.py", about, timeout_s=timeout_s, **more)


NCU = ("ncu", "--target-processes", "all", "--clock-control", "none", "--metrics",
       "sm__cycles_elapsed.max", "--launch-count", "40")

CATALOG = [
    torch("torch_eager", "PyTorch eager: ResNet-50, attention, FFT, sort, a side stream"),
    torch("torch_train", "PyTorch training: mixed precision, fused AdamW"),
    torch("torch_compile", "torch.compile (inductor, Triton) and a Triton kernel", timeout_s=240),
    torch("torch_graphs", "PyTorch CUDA graphs, torch.compile reduce-overhead", timeout_s=240),
    torch("torch_dataloader", "training fed by forked DataLoader workers"),
    Program("transformers", "transformers_decode.py", "transformers: a Llama decodes, eager",
            timeout_s=150),
    Program("jax", "jax_arrays.py", "JAX: jitted training, convolution, FFT, sort", timeout_s=180),
    Program("cupy", "cupy_arrays.py", "CuPy: NVRTC, cuBLAS, cuFFT, a stream", timeout_s=120),
    Program("numba", "numba_kernels.py", "Numba kernels", timeout_s=90),
    Program("cuda_python", "cuda_python.py", "cuda-python: driver API and NVRTC", timeout_s=90),
    Program("static_cudart", "runtime.cu", "runtime API, static cudart", ("--cudart=static",)),
    Program("shared_cudart", "runtime.cu", "runtime API, shared cudart", ("--cudart=shared",)),
    Program("driver_api", "driver_api.cu", "driver API: dlsym, cuGetProcAddress, PTX, extra",
            ("-ldl",)),
    Program("graphs", "graphs.cu", "graphs: captured, replayed, updated, relaxed capture"),
    Program("graph_large", "graph_large.cu", "graphs: 1 500 nodes as a child of another"),
    Program("graph_conditional", "graph_conditional.cu", "graphs: WHILE and IF nodes"),
    Program("graph_campaign", "graph_campaign.py", "graphs at random, updated, in all streams",
            timeout_s=120, counted=False),
    Program("threads", "threads.cu", "8 threads, 16 streams, the legacy default stream"),
    Program("per_thread", "threads.cu", "8 threads, --default-stream per-thread",
            ("--default-stream=per-thread",)),
    Program("stream_order", "stream_order.cu", "streams of all kinds in turn, copies in between"),
    Program("dependent_launch", "dependent_launch.cu", "programmatic dependent launch"),
    Program("cooperative", "cooperative.cu", "cooperative launch of a full grid"),
    Program("clusters", "clusters.cu", "thread-block clusters"),
    Program("stream_alloc", "stream_alloc.cu", "stream-ordered allocation, two pools"),
    Program("stream_waits", "stream_waits.cu", "cuStreamWaitValue, the producer behind its waiter"),
    Program("host_spin", "host_spin.cu", "a kernel that waits for other threads' launches"),
    Program("side_by_side", "side_by_side.cu", "long kernels on two streams"),
    Program("hidden_capture", "hidden_capture.cu", "captures through the driver's own file",
            ("-lcuda", "-ldl"), counted=False),
    Program("shapes", "shapes.cu", "9 000 launch shapes"),
    Program("green_streams", "green_streams.cu", "streams of its own Green Context", ("-lcuda",)),
    Program("host_callbacks", "host_callbacks.cu", "cudaLaunchHostFunc, cudaStreamAddCallback"),
    Program("ipc", "ipc.cu", "memory and event handles, two processes", processes=2),
    Program("managed", "managed.cu", "managed memory, prefetch, advice"),
    Program("fork_children", "fork_children.cu", "fork and exec beside launches"),
    Program("lazy", "modules.cu", "CUDA_MODULE_LOADING=LAZY", env={"CUDA_MODULE_LOADING": "LAZY"}),
    Program("eager", "modules.cu", "CUDA_MODULE_LOADING=EAGER",
            env={"CUDA_MODULE_LOADING": "EAGER"}),
    Program("cublas", "cublas.cu", "cuBLAS", ("-lcublas",), ("cublas_v2.h",)),
    Program("cufft", "cufft.cu", "cuFFT", ("-lcufft",), ("cufft.h",)),
    Program("cudnn", "cudnn.cu", "cuDNN", ("-lcudnn",), ("cudnn.h",)),
    torch("torch_profiler", "torch.profiler (CUPTI) at work meanwhile", counted=False),
    Program("ncu", "runtime.cu", "Nsight Compute, started under heddle", ("--cudart=static",),
            wrap=NCU, counted=False, exclusive=True, timeout_s=120, attaches=False),
    torch("torch_nccl", "NCCL, two ranks on two GPUs", timeout_s=120, processes=2),
    Program("torch_nccl_symmetric", "torch_nccl.py", "NCCL, two ranks, symmetric memory",
            env={"HEDDLE_NCCL_SYMMETRIC": "1"}, timeout_s=120, processes=2),
    torch("torch_nccl_single", "NCCL, one process, all GPUs", timeout_s=120),
    Program("multi_gpu", "multi_gpu.cu", "one process, all GPUs, peer copies"),
]
BUSY = Program("busy", "busy.cu", "the latency-critical neighbour")
COUNTER = "libcount.so"

# What --sim runs: a program on the simulated GPU, and programs/mock.py, which needs none and
# behaves as HEDDLE_MOCK says.
MOCKS = [Program("sim_steps", "sim_steps.py", "driver API on the simulated GPU", timeout_s=30,
                 counted=False),
         Program("sim_cooperative", "sim_steps.py", "cooperative launches there", timeout_s=30,
                 counted=False, env={"HEDDLE_SIM_COOPERATIVE": "1"}),
         Program("sim_campaign", "graph_campaign.py", "graphs at random there", timeout_s=30,
                 counted=False, env={"HEDDLE_CAMPAIGN_ROUNDS": "240"}),
         Program("sim_order", "sim_order.py", "streams in turn on the simulated GPU", timeout_s=30,
                 counted=False)]
MOCKS += [Program(f"mock_{how}", "mock.py", f"mock: {how}", timeout_s=8, counted=False,
                  env={"HEDDLE_MOCK": how})
          for how in ("good", "varies", "differs", "crashes", "hangs", "skips", "leaves")]


@dataclass(frozen=True)
class Condition:
    """`daemon`: None (bare), "absent" (no socket), "present", or "killed" half-way and restarted.
    `beside`: a busy latency-critical program shares the GPU, so that this one is gated.
    `sms`: the SMs that it is kept on. `pace_ms`: the program's pause after each of its 24 rounds. A
    gated one needs some: the busy program rests for 100 ms now and then, in which all of a short
    one's launches would go without having asked. `stopped`: what runs of it is stopped at random,
    some 20 times a second (time-sliced)."""
    name: str
    daemon: str | None = None
    beside: bool = False
    counted: bool = False
    job_class: str = "batch"
    pace_ms: int = 0
    sms: str = ""
    stopped: bool = False
    default: bool = True


CONDITIONS = [
    Condition("bare"),
    Condition("bare_again"),
    Condition("alone", "present"),
    Condition("gated", "present", beside=True, pace_ms=20),
    Condition("absent", "absent"),
    Condition("killed", "killed", beside=True, pace_ms=150),
    Condition("count_bare", counted=True),
    Condition("count_heddle", "present", counted=True),
    Condition("count_absent", "absent", counted=True),
    Condition("count_killed", "killed", beside=True, pace_ms=150, counted=True),
    Condition("latency", "present", job_class="latency", default=False),
    Condition("partition", "present", pace_ms=20, sms="25%", default=False),
    Condition("partition_gated", "present", beside=True, pace_ms=20, sms="25%", default=False),
    Condition("killed_alone", "killed", pace_ms=150, default=False),
    Condition("stopped", "present", beside=True, pace_ms=20, stopped=True, default=False),
]
