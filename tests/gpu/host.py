"""What every cell of the framework matrix needs of its host: the install tree, built programs, one
environment for one way of sharing the GPU."""

import concurrent.futures
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import catalog

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
from harness.processes import Mps, NoMps, simulated  # noqa: E402

BUILD_TIMEOUT_S = 150
DEFAULT_TOOLKIT = Path("/usr/local/cuda")


class Host:
    """What every cell needs: the install tree, built programs, the environment of one GPU state."""

    def __init__(self, options, folder):
        self.dist, self.mps, self.policy = options.dist, options.mps, options.policy
        self.folder = folder
        self.binaries = options.build or folder / "bin"
        self.server = (Mps if options.mps else NoMps)(folder / "mps")
        cache = folder / "cache"
        self.env = self.server.env | {
            "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"), "OMP_NUM_THREADS": "2",
            "TRITON_CACHE_DIR": str(cache / "triton"), "TORCHINDUCTOR_COMPILE_THREADS": "4"}
        self.busy, self.at_random = [str(self.binaries / catalog.BUSY.binary)], ["at-random"]
        if options.sim:
            self.simulate(folder)
        self.nvcc = shutil.which("nvcc") or str(DEFAULT_TOOLKIT / "bin/nvcc")
        self.roots = toolkit_roots(self.nvcc)
        self.problems = {}  # binary -> why it is not there

    def simulate(self, folder):
        """The simulated GPU and a demo program on it as the busy neighbour."""
        self.env |= simulated(self.dist, folder)
        self.busy = [str(self.dist / "libexec/heddle/heddle-demo"), "latency", "--seconds", "600"]
        self.at_random = []  # its pauses are

    def build(self, programs, arch):
        """Every binary that is wanted and not there yet, in parallel."""
        self.binaries.mkdir(parents=True, exist_ok=True)
        wanted = [p for p in [*programs, catalog.BUSY] if p.binary and self.has_headers(p)]
        jobs = {p.binary: self.compile_command(p, arch) for p in wanted}
        jobs[catalog.COUNTER] = self.counter_command()
        jobs = {name: job for name, job in jobs.items() if not (self.binaries / name).exists()}
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for name, problem in zip(jobs, pool.map(compile_one, jobs.values())):
                if problem:
                    self.problems[name] = problem

    def can_count(self):
        return catalog.COUNTER not in self.problems

    def has_headers(self, program):
        for header in program.needs:
            if not any((root / "include" / header).exists() for root in self.roots):
                self.problems[program.binary] = f"not installed: {header}"
                return False
        return True

    def compile_command(self, program, arch):
        flags = [word for flag in program.flags for word in self.linked(flag, "-Xlinker=")]
        return [self.nvcc, "-O2", "-std=c++17", f"-arch={arch}",
                str(catalog.PROGRAMS / program.source), *self.includes(), *flags,
                "-o", str(self.binaries / program.binary)]

    def counter_command(self):
        return ["g++", "-shared", "-fPIC", "-O2", "-std=c++17",
                str(catalog.PROGRAMS / "count_launches.cc"), *self.includes(),
                *self.linked("-lcupti", "-Wl,"), "-o", str(self.binaries / catalog.COUNTER)]

    def includes(self):
        return [f"-I{root / 'include'}" for root in self.roots if (root / "include").is_dir()]

    def linked(self, flag, to_linker):
        """A -lNAME as the file that was found, with its folder for the loader; else as it is.
        Python packages have libraries under their versioned name alone."""
        if not flag.startswith("-l"):
            return [flag]
        for root in self.roots:
            for folder in (root / "lib64", root / "lib"):
                for found in sorted(folder.glob(f"lib{flag[2:]}.so*")):
                    return [f"{to_linker}{found}", f"{to_linker}-rpath={folder}"]
        return [flag]


def toolkit_roots(nvcc):
    """Where headers and libraries of CUDA are: the toolkit, and NVIDIA's Python packages."""
    toolkit = Path(nvcc).resolve().parents[1]
    packages = Path(sysconfig.get_paths()["purelib"]) / "nvidia"
    roots = [toolkit, DEFAULT_TOOLKIT, toolkit / "extras/CUPTI", DEFAULT_TOOLKIT / "extras/CUPTI",
             *sorted(packages.glob("*"))]
    return [root for root in dict.fromkeys(roots) if root.is_dir()]


def compile_one(command):
    """None, or the end of what the compiler said."""
    try:
        done = subprocess.run(command, text=True, capture_output=True, timeout=BUILD_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not build: {error}"
    return None if done.returncode == 0 else f"does not build:\n{done.stderr[-2000:]}"
