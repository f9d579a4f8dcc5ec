#!/usr/bin/env python3
"""Is what heddle counts what the GPU says? Programs that take memory one way each (cuMemAlloc,
cuMemCreate, PyTorch with and without expandable segments, its graphs' pools, CuPy, JAX) take and
free it under a limit, with MPS and without; heddle's count of each step is held against NVML's.

    memory.py --dist dist --out bench/results/memory.json       two minutes on a GPU
    memory.py --sim --out /tmp/memory.json                      the simulated GPU: the logic alone

NVML's count of the whole GPU is taken, less what it was when the program had its context, so that
no other program may use the GPU meanwhile. Its count of the process, where it gives one, is beside
it. "within" is how far the two counts of what was taken lie apart.
"""

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from harness import report, session  # noqa: E402
from harness.processes import HostError, Job, Setting  # noqa: E402

WAYS = ("driver", "vmm", "torch", "torch_expandable", "graph", "cupy", "jax")
STEPS = ("hold 256", "hold 400", "free", "hold 150")  # MiB
PIECE_MIB = 64
LIMIT_MIB, SIM_LIMIT_MIB = 4096, 800
BAR = 0.02
TURN_S = 2
COST_ROUNDS = 7


class Memory(Setting):
    def __init__(self, options, folder, mps):
        super().__init__(options, folder, "mps_default", mps)

    def measure(self):
        """{"rows": {way: {"steps": [...], "filled": {...}} or {"error": TEXT}}, "cost": {how: ns},
        "teams": {condition: {team: turns}}}"""
        with self.running():
            rows = {way: self.row(way) for way in self.options.ways}
            return {"rows": rows, "cost": self.cost(), "teams": self.teams()}

    def start(self, label, way, limit_mib):
        """A program of memory_steps.py; limit_mib None: bare, 0: under heddle without a limit."""
        command = [sys.executable, ROOT / "tests/gpu/programs/memory_steps.py", way]
        if limit_mib is not None:
            limit = ["--memory", f"{limit_mib}MiB"] if limit_mib else []
            command = [self.daemon.heddle, "run", "--quiet", "--label", label, *limit, "--",
                       *command]
        return Job(label, "be", [str(word) for word in command], self.env,
                   self.folder / f"{label}.log")

    def row(self, way):
        job = self.start(way, way, self.options.limit_mib)
        try:
            return self.steps(job)
        except HostError as error:
            return {"error": str(error)}
        finally:
            job.stop()

    def steps(self, job):
        job.wait_ready()
        if job.about:
            return job.about
        begin, steps = self.counts(job), []
        for step in STEPS:
            steps.append({"step": step} | self.after(job, step, begin))
        filled = self.after(job, f"fill {PIECE_MIB}", begin)
        job.send("free")
        job.answer()
        again = self.after(job, "hold 64", begin)
        return {"at_first": begin, "steps": steps, "filled": filled,
                "usable_again": "error" not in again}

    def cost(self):
        """Of taking and freeing 1 MiB, in turn: bare, under heddle, and under a limit."""
        limits = {"bare": None, "heddle": 0, "limit": self.options.limit_mib}
        jobs = {how: self.start(f"cost-{how}", "driver", mib) for how, mib in limits.items()}
        found = {how: {"hold_ns": [], "free_ns": []} for how in jobs}
        try:
            for job in jobs.values():
                job.wait_ready()
            for _ in range(COST_ROUNDS):
                for how, job in jobs.items():
                    job.send("time 200 1024")
                    for key, ns in job.answer().items():
                        found[how][key].append(ns)
        finally:
            for job in jobs.values():
                job.stop()
        return found

    def teams(self):
        """One team takes and frees memory all the time; the other is alone, has used up its limit
        and asks on, or has used up the whole GPU, for there is no limit."""
        ours = self.options.limit_mib
        return {"alone": self.turns(ours, None, False), "limited": self.turns(ours, ours, True),
                "unlimited": self.turns(0, 0, True)}

    def turns(self, own_mib, other_mib, beside):
        jobs = [self.start("team", "driver", own_mib and own_mib // 4)]
        if beside:
            jobs.append(self.start("greedy", "driver", other_mib and other_mib * 3 // 4))
        try:
            for job in jobs:
                job.wait_ready()
            if beside:
                jobs[1].send(f"fill {PIECE_MIB}")
                jobs[1].answer()
                jobs[1].send(f"turn {TURN_S} {PIECE_MIB}")
            jobs[0].send(f"turn {TURN_S} {PIECE_MIB}")
            return {job.name: job.answer() for job in jobs}
        finally:
            for job in jobs:
                job.stop()

    def after(self, job, step, begin):
        job.send(step)
        answer = job.answer()
        now = self.counts(job)
        return answer | {name: round(now[name] - begin[name], 1) for name in now
                         if now[name] is not None and begin[name] is not None}

    def counts(self, job):
        """MiB by heddle, by NVML for the whole GPU, and by NVML for the process or None."""
        client, = [c for c in self.daemon.status()["ps"]["clients"] if c["label"] == job.name]
        found = {"heddle": sum(d["memory_bytes"] for d in client["devices"]) / 2**20}
        if not self.options.sim:
            whole, = smi("--query-gpu=memory.used")
            mine = [float(mib) for pid, mib in (line.split(", ") for line in smi(
                "--query-compute-apps=pid,used_memory"))
                if int(pid) == client["pid"] and mib.replace(".", "").isdigit()]
            found |= {"nvml": float(whole), "nvml_process": mine[0] if mine else None}
        return found


def smi(query):
    done = subprocess.run(["nvidia-smi", query, "--format=csv,noheader,nounits"], text=True,
                          capture_output=True, check=True, timeout=60)
    return [line for line in done.stdout.splitlines() if line]


def judge(rows, limit_mib):
    """Adds to each row how far its counts lie apart, and whether the limit held and was reached."""
    for row in rows.values():
        if "error" in row:
            continue
        apart = [abs(s["heddle"] / s["nvml"] - 1) for s in row["steps"]
                 if "error" not in s and s.get("nvml", 0) > 100]
        row["within"] = round(max(apart), 4) if apart else None
        most = row["filled"]["heddle"] + row["at_first"]["heddle"]
        row["held"] = limit_mib - 2 * PIECE_MIB <= most <= limit_mib


def told(turns):
    """Median µs of a turn, and the part that was refused."""
    taken = turns["us"]
    return (statistics.median(taken) if taken else None,
            round(turns["refused"] / max(1, turns["refused"] + len(taken)), 3))


def parse(arguments):
    parser = session.origin_parser(__doc__, "memory.json")
    add = parser.add_argument
    add("--ways", type=lambda text: text.split(","), default=None, help=",".join(WAYS))
    options = session.add_origin(parser.parse_args(arguments), "tests/gpu/memory.py", arguments)
    options.limit_mib = SIM_LIMIT_MIB if options.sim else LIMIT_MIB
    options.ways = options.ways or (["driver", "vmm"] if options.sim else WAYS)
    return options


def main():
    options = parse(sys.argv[1:])
    result = session.origin(options, "memory") | {"sharing": {}}
    good = True
    for name in ("time-sliced", "mps"):
        if options.sim and name == "mps":
            continue
        with tempfile.TemporaryDirectory(prefix="hy-", ignore_cleanup_errors=True) as folder:
            found = Memory(options, Path(folder), name == "mps").measure()
        rows = found["rows"]
        judge(rows, options.limit_mib)
        result["sharing"][name] = found
        report.write(result, options.out)
        print(name, {how: min(ns["hold_ns"]) for how, ns in found["cost"].items()}, "ns;",
              {how: told(teams["team"]) for how, teams in found["teams"].items()})
        for way, row in rows.items():
            print(f"{name:12s} {way:17s}", row.get("error") or
                  {key: row[key] for key in ("within", "held", "usable_again", "at_first")},
                  row.get("filled", ""), flush=True)
            good = good and ("error" in row or (row["held"] and row["usable_again"] and
                                                (row["within"] or 0) <= BAR))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
