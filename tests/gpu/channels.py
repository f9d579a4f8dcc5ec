#!/usr/bin/env python3
"""Is a channel's limit kept? For issue slots, L2 and DRAM a program that takes nearly all of it,
beside a small one that never pauses: without a rule, and limited to a part of the channel's peak.
Its use is that of its kernels, by Nsight Compute, times its rate over the one alone. The peak is
heddle's (profiles/gpu).

    channels.py --dist dist --out bench/results/channels.json      four minutes
    channels.py --sim --out /tmp/channels.json                     the logic, on the simulated GPU
"""

import json
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "bench")]

from harness import report, session  # noqa: E402
from harness.processes import UNGATED, HostError, Job, Setting  # noqa: E402

# Channel -> what takes it: arguments of workloads/copy_job.py.
HOGS = {"dram": ["--mib", 256], "l2": ["--mib", 4, "--launches", 200],
        "issue": ["--mib", 64, "--math"]}
# Channel -> what Nsight Compute says of it, and where profiles/gpu has how much of that is all.
METRICS = {"dram": ("dram_pct", "metrics", "dram_peak_pct"),
           "l2": ("l2_pct", "metrics", "l2_peak_pct"),
           "issue": ("ipc", "sm", "issue_per_cycle")}
SIM_USE = 0.8  # of a channel, that a simulated hog is said to have
LEAD_S, LEARN_S = 1, 3
MORE = 1.1  # a limit is kept if no more than this times it is used


class Channel(Setting):
    """Hog and neighbour under heddled, with the profiles of `folder` and, if given, a limit."""

    def __init__(self, options, folder, mps, channel, limit=None):
        place = Path(tempfile.mkdtemp(dir=folder))
        super().__init__(options, place, UNGATED, mps=mps, place="daemon")
        self.channel, self.profiles = channel, folder / "profiles"
        self.daemon.config_lines += [f'profiles.directory = "{self.profiles}"']
        if limit:
            self.daemon.config_lines += ["[[rule]]", 'label = "hog"', f"{channel}_max = {limit}"]

    def command(self):
        if self.options.sim:
            work = [self.options.dist / "libexec/heddle/heddle-synthetic", "--kernels", 10,
                    "--kernel-us", "200:0", "--blocks", 132, "--seed", 1]
        else:
            copy = self.options.dist / "libexec/heddle/workloads/copy_job.py"
            work = [sys.executable, copy, *HOGS[self.channel]]
        return [str(word) for word in work]

    def start(self, label, command):
        run = [self.options.dist / "bin/heddle", "run", "--quiet", "--label", label,
               *["--sim"] * self.options.sim, "--"]
        job = Job(label, "be" if label == "hog" else "hp", [str(w) for w in run] + command,
                  self.env, self.folder / f"{label}.log")
        job.wait_ready()
        return job

    def measure(self, seconds, beside):
        """The hog's iterations a second, and what heddled states of its use."""
        with self.running():
            jobs = [self.start("hog", self.command())]
            try:
                if beside:
                    small = self.options.dist / "libexec/heddle/heddle-synthetic"
                    jobs.append(self.start("small", [str(w) for w in (
                        small, "--kernels", 50, "--kernel-us", "100:0", "--blocks", 8,
                        "--seed", 2)]))
                start = time.monotonic() + LEAD_S
                for job in jobs:
                    job.send("go", start, seconds, LEAD_S, LEAD_S)
                time.sleep(LEAD_S + seconds / 2)
                stated = self.stated()
                answers = [job.answer() for job in jobs]
                return len(answers[0]["us"]) / answers[0]["span_s"], stated
            finally:
                for job in jobs:
                    job.stop()

    def stated(self):
        return next((ceiling["use"] for client in self.daemon.status()["ps"]["clients"]
                     if client["label"] == "hog" for device in client["devices"]
                     for ceiling in device.get("ceilings", [])), None)

    def constants(self):
        """Of this GPU, or of the one that heddle has."""
        files = [tomllib.loads(path.read_text())
                 for path in sorted((self.options.dist / "share/heddle/gpu").glob("*.toml"))]
        return next((one for one in files if self.options.gpu[0].startswith(one["gpu"])), files[0])

    def learn(self):
        """Lets heddled measure the hog, and adds its kernels' metrics; the channel's use, a part of
        the peak, weighted by the kernels' times."""
        self.measure(LEARN_S, beside=False)
        found = list(self.profiles.glob("hog-*.toml"))
        if len(found) != 1:
            raise HostError(f"{len(found)} profiles of the hog in {self.profiles}, not one")
        metric, table, key = METRICS[self.channel]
        whole = self.constants()[table][key]
        if self.options.sim:
            lines = found[0].read_text().splitlines(keepends=True)
            metrics = f"metrics = {{ {metric} = {SIM_USE * whole} }}\n"
            found[0].write_text("".join(line + metrics * line.startswith("id = ")
                                        for line in lines))
        else:
            csv = self.folder / "ncu.csv"
            heddle = self.options.dist / "bin/heddle"
            subprocess.run([heddle, "profile", "collect-metrics", "--output", csv, "--",
                            *self.command()], stdin=subprocess.DEVNULL, check=True)
            subprocess.run([heddle, "profile", "import-ncu", csv, "--into", found[0]], check=True)
        kernels = tomllib.loads(found[0].read_text())["kernel"]
        timed = [(k["duration_us"]["mean"] * k["duration_us"]["count"],
                  k.get("metrics", {}).get(metric, 0) / whole) for k in kernels]
        return sum(us * use for us, use in timed) / sum(us for us, _ in timed)


def measure(options, mps, channel):
    with tempfile.TemporaryDirectory(prefix="hch-", ignore_cleanup_errors=True) as name:
        folder = Path(name)

        def setting(limit=None):
            return Channel(options, folder, mps, channel, limit)
        of_peak = setting().learn()
        alone, _ = setting().measure(options.block_s, beside=False)
        row = {"of_peak": round(of_peak, 4), "limit": options.limit}
        for key, limit in (("free", None), ("limited", options.limit)):
            rate, stated = setting(limit).measure(options.block_s, beside=True)
            row[key] = {"use": round(of_peak * rate / alone, 4), "stated": stated}
        return row


def parse(arguments):
    parser = session.origin_parser(__doc__, "channels.json")
    add = parser.add_argument
    add("--block-s", type=float, default=5)
    add("--limit", type=float, default=0.3)
    return session.add_origin(parser.parse_args(arguments), "tests/gpu/channels.py", arguments)


def main():
    options = parse(sys.argv[1:])
    result = session.origin(options, "channels") | {"block_s": options.block_s, "modes": {}}
    over = 0
    for mode, mps in (("timeslice", False), ("mps", True)):
        rows = result["modes"][mode] = {}
        for channel in HOGS:
            row = rows[channel] = measure(options, mps, channel)
            over += row["limited"]["use"] > MORE * options.limit
            print(mode, channel, json.dumps(row), flush=True)
            report.write(result, options.out)
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
