#!/usr/bin/env python3
"""Parking, measured: `heddle park` and `unpark` of PyTorch programs with CUDA graphs; three of them
in the memory of two and a half, asked in turn; training that is parked between its steps; and what
it costs a program to be allowed to leave.

    park.py --dist dist --out bench/results/park.json      five minutes
    park.py --sim --out /tmp/park.json                     the logic, on the simulated GPU
"""

import argparse
import hashlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "bench")]

from harness import report, session  # noqa: E402
from harness.processes import HostError, Job, Setting, tail  # noqa: E402

LOOP_S = 2
STEPS = 20


class Torch:
    """A model's memory, a graph, and a small training: the same values in every process."""

    def __init__(self, gib):
        import torch  # pylint: disable=import-outside-toplevel

        torch.manual_seed(1)
        self.torch = torch
        self.big = torch.empty(int(gib * 2**28), dtype=torch.float32, device="cuda").uniform_()
        a, x = (torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        torch.cuda.synchronize()
        _ = x @ a  # the library's handles are made outside of the capture
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.y = x
            for _ in range(20):
                self.y = torch.nn.functional.gelu(self.y @ a) * 0.01
        self.model = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(4))).cuda()
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.x = torch.randn(256, 512, device="cuda")

    def ask(self):
        self.graph.replay()
        self.torch.cuda.synchronize()
        seen = hashlib.sha256(self.y.float().cpu().numpy().tobytes())
        seen.update(self.big[::4097].cpu().numpy().tobytes())
        return seen.hexdigest()

    def loop(self):
        count, end = 0, time.monotonic() + LOOP_S
        while time.monotonic() < end:
            for _ in range(20):
                self.graph.replay()
            self.torch.cuda.synchronize()
            count += 20
        return count / LOOP_S

    def train(self):
        losses = []
        for _ in range(STEPS):
            self.optimizer.zero_grad()
            loss = (self.model(self.x) - self.x).square().mean()
            loss.backward()
            self.optimizer.step()
            losses.append(loss.item())
        return losses


class Simulated:
    """The same of a program that only holds memory."""

    def __init__(self, gib):
        import ctypes  # pylint: disable=import-outside-toplevel

        self.cuda, self.at = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
        context = ctypes.c_void_p()
        for error in (self.cuda.cuInit(0),
                      self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
                      self.cuda.cuCtxSetCurrent(context),
                      self.cuda.cuMemAlloc_v2(ctypes.byref(self.at),
                                              ctypes.c_size_t(int(gib * 2**30)))):
            if error:
                sys.exit(f"CUDA error {error}")

    def ask(self):
        return self.cuda.cuMemsetD8_v2(self.at, 0, 1)

    def loop(self):
        return 1000 + self.ask()

    def train(self):
        return [self.ask()]


def tenant(options):
    program = (Simulated if options.sim else Torch)(options.gib)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        if line == "quit\n":
            return
        print(json.dumps({"is": getattr(program, line.strip())()}), flush=True)


class Tenants(Setting):
    def __init__(self, options, folder, limit_gib=0, park=True):
        super().__init__(options, Path(tempfile.mkdtemp(dir=folder)), "auto", mps=False)
        if limit_gib:
            self.daemon.config_lines += ["[[rule]]", 'label = "tenant*"',
                                         f'memory = "{limit_gib}GiB"',
                                         f"park = {str(park).lower()}"]

    def start(self, label, gib, park=False):
        run = [self.options.dist / "bin/heddle", "run", "--quiet", "--label", label,
               *["--sim"] * self.options.sim, *["--park"] * park, "--", sys.executable, __file__,
               "--tenant", "--gib", gib, *["--sim"] * self.options.sim]
        job = Job(label, "be", [str(word) for word in run], self.env, self.folder / f"{label}.log")
        job.wait_ready()
        return job

    def parks(self, what, label):
        done = json.loads(self.daemon.command("--json", what, label))["programs"][0]
        return round(done["seconds"], 3)

    def where(self):
        clients = json.loads(self.daemon.command("ps", "--json"))["clients"]
        return {client["label"]: client["memory_at"] for client in clients}


def ask(job, what="ask"):
    begin = time.monotonic()
    job.send(what)
    return job.answer(120)["is"], round(time.monotonic() - begin, 3)


def used_mib(options):
    if options.sim:
        return 0
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return int(subprocess.run(query, check=True, text=True, stdout=subprocess.PIPE).stdout)


def by_hand(options, folder, gib):
    """How long a program is away and back, and whether its values and its training are equal."""
    setting = Tenants(options, folder)
    with setting.running():
        job, other = setting.start("tenant", gib), setting.start("other", options.unit)
        first, straight = ask(job)[0], [ask(other, "train")[0] for _ in range(3)]
        other.stop()
        row = {"gib": gib, "away_s": [], "back_s": [], "equal": True}
        curve = [ask(job, "train")[0]]
        for _ in range(2):
            row["away_s"].append(setting.parks("park", "tenant"))
            row["used_mib_parked"] = used_mib(options)
            row["back_s"].append(setting.parks("unpark", "tenant"))
            row["equal"] &= ask(job)[0] == first
            curve.append(ask(job, "train")[0])
        row["curve_equal"] = curve == straight
        job.stop()
        return row


def in_turn(options, folder):
    """Three tenants in the memory of two and a half: each is asked in turn."""
    gib = options.unit * 16
    limit = gib * 2.5
    found = {"gib": gib, "limit_gib": limit}
    bare = Tenants(options, folder, limit, park=False)
    with bare.running():
        jobs = [bare.start(f"tenant {i}", gib) for i in range(2)]
        try:
            bare.start("tenant 2", gib).stop()
            found["bare"] = "served"
        except HostError:
            found["bare"] = tail(bare.folder / "tenant 2.log", 1)
        for job in jobs:
            job.stop()
    setting = Tenants(options, folder, limit)
    with setting.running():
        begin = time.monotonic()
        jobs = [setting.start(f"tenant {i}", gib) for i in range(3)]
        found["start_s"] = round(time.monotonic() - begin, 1)
        values, replies, due = set(), [], time.monotonic()
        for _ in range(options.rounds):
            for job in jobs:
                time.sleep(max(0, due - time.monotonic()))
                due += options.pause_s
                value, seconds = ask(job)
                values.add(value)
                replies.append(seconds)
        found |= {"replies_s": replies, "equal": len(values) == 1, "at_last": setting.where()}
        for job in jobs:
            job.stop()
    return found


def allowed(options, folder):
    """Replays a second of a program that may be parked and never is, over one that may not."""
    setting = Tenants(options, folder)
    with setting.running():
        jobs = [setting.start("not", options.unit), setting.start("may", options.unit, park=True)]
        rates = [[ask(job, "loop")[0] for job in jobs] for _ in range(options.loops)]
        for job in jobs:
            job.stop()
    ratios = sorted(may / cannot for cannot, may in rates[1:])
    return {"ratio": round(statistics.median(ratios), 5), "least": round(ratios[0], 5),
            "most": round(ratios[-1], 5)}


def main():
    parser = session.origin_parser(__doc__, "park.json")
    add = parser.add_argument
    add("--tenant", action="store_true", help=argparse.SUPPRESS)
    add("--gib", type=float, default=1, help=argparse.SUPPRESS)
    add("--pause-s", type=float, default=10)
    add("--rounds", type=int, default=3)
    add("--loops", type=int, default=7)
    options = parser.parse_args()
    if options.tenant:
        return tenant(options)
    options = session.add_origin(options, "tests/gpu/park.py", sys.argv[1:])
    options.unit = 2**-6 if options.sim else 1  # GiB
    result = session.origin(options, "park") | {"rows": []}
    with tempfile.TemporaryDirectory(prefix="hpk-", ignore_cleanup_errors=True) as name:
        for gib in (1, 4, 16):
            result["rows"].append(by_hand(options, Path(name), gib * options.unit))
            print(json.dumps(result["rows"][-1]), flush=True)
            report.write(result, options.out)
        for part in (in_turn, allowed):
            result[part.__name__] = part(options, Path(name))
            print(part.__name__, json.dumps(result[part.__name__]), flush=True)
            report.write(result, options.out)
    return 0 if all(row["equal"] and row["curve_equal"] for row in result["rows"]) else 1


if __name__ == "__main__":
    sys.exit(main())
