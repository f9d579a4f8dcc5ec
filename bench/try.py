#!/usr/bin/env python3
"""Does heddle help these two programs? Measures them alone, shared as it is, and under heddle.

    heddle try [OPTIONS] -- SERVICE... -- JOB...

SERVICE is the program that matters, JOB the one that may wait. Both are started here, under a
heddled of their own in a temporary folder, and ended at the end. Let the job run for longer than
the measurement takes, and send the service its usual requests meanwhile. Their labels are `service`
(class latency) and `job` (class batch): a policy that goes by labels must name these.

alone          the service alone, twice before and once behind the job; the job alone at the end
shared         both, as it is: heddled watches and holds nothing back
POLICY         both, under the policy

The service is measured by its runs: from its first launch to the end of a synchronizing call that
leaves nothing of it on the GPU. Where it speaks the protocol of heddle-bench's jobs, by its
requests; where it ends by itself, by how long it takes as a whole; where it never waits for all of
its work, by its launches. The job is measured by its launches, or iterations, a second, and by its
GPU time.
"""

import argparse
import json
import os
import queue
import signal
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict, namedtuple
from datetime import datetime, timezone
from pathlib import Path

from harness import traces
from harness.processes import UNGATED, Daemon, Ending, HostError, tail
from harness.report import p99, rounded, write
from harness.verdict import verdict

HERE = Path(__file__).resolve().parent
DIST = HERE.parents[1]
LEAD_S = 0.4  # both are at work so long before a block is counted, and so long behind it
WHOLE_MOST_S = 3600  # of a service that ends by itself
SERVICE, JOB = "service", "job"
Count = namedtuple("Count", "at_s launches gpu_us")


def counted(daemon):
    """Label -> Count so far, of all processes that are called so."""
    found = defaultdict(lambda: [0, 0])
    for client in json.loads(daemon.command("ps", "--json"))["clients"]:
        found[client["label"]][0] += client["counters"]["launches"]
        found[client["label"]][1] += sum(device["gpu_us"] for device in client["devices"])
    now = time.monotonic()
    return {label: Count(now, *found[label]) for label in (SERVICE, JOB, *found)}


def rates(before, after):
    lasted = after.at_s - before.at_s
    return {"us": [], "per_s": (after.launches - before.launches) / lasted,
            "gpu_share": (after.gpu_us - before.gpu_us) / 1e6 / lasted}


class Ended(HostError):
    """A program has, with status 0."""


class Program:
    """One of the two, in a session of its own. Its output goes to the log, but for the answers of a
    program that speaks the job protocol (workloads/protocol.py)."""

    def __init__(self, label, role, command, daemon, sim):
        self.label, self.daemon = label, daemon
        self.log = daemon.folder / f"{label}.log"
        self.answers, self.speaks = queue.Queue(), False
        words = [daemon.heddle, "run", "--quiet", "--class", role, "--label", label,
                 *["--sim"] * sim, "--", *command]
        self.file = open(self.log, "w")
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.file, text=True,
            errors="replace", bufsize=1, start_new_session=True,
            env=os.environ | daemon.env | {"HEDDLE_SOCKET": str(daemon.socket)})
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            answer = None
            if line.startswith("{"):
                try:
                    answer = json.loads(line)
                except ValueError:
                    pass
            if answer and answer.get("ready"):
                self.speaks = True
            elif answer and self.speaks:
                self.answers.put(answer)
            else:
                self.file.write(line)
                self.file.flush()

    def check(self):
        if (status := self.process.poll()) is not None:
            raise (HostError if status else Ended)(
                f"{self.label} ended (status {status}) before it was measured: let it run on until "
                f"it is stopped\n{tail(self.log)}")

    def wait_until_at_work(self, patience_s, warm_s):
        deadline, told = time.monotonic() + patience_s, time.monotonic() + 2
        while not self.speaks and (seen := counted(self.daemon))[self.label].launches == 0:
            if other := next((label for label in seen if label not in (SERVICE, JOB)), None):
                raise HostError(f"{self.label} has the label '{other}': here it keeps the one that "
                                "heddle try gives it, so leave HEDDLE_LABEL as it is")
            self.check()
            if time.monotonic() > told:
                told = deadline
                print(f"heddle try: waiting for {self.label}'s first launch, {patience_s:g} s at "
                      "most", file=sys.stderr, flush=True)
            if time.monotonic() > deadline:
                raise HostError(f"{self.label} launched nothing in {patience_s:g} s: send it "
                                f"requests, or give more --patience\n{tail(self.log)}")
            time.sleep(0.05)
        if self.speaks:
            self.go(time.monotonic(), warm_s)
        time.sleep(warm_s)
        if self.speaks:
            self.answer(warm_s)

    def go(self, start, seconds):
        print("go", start, seconds, LEAD_S, LEAD_S, file=self.process.stdin)

    def answer(self, seconds):
        try:
            answer = self.answers.get(timeout=seconds + 60)
        except queue.Empty:
            answer = {"error": "does not answer"}
        if "us" not in answer:
            raise HostError(f"{self.label}: {answer.get('error', answer)}\n{tail(self.log)}")
        return answer

    def running(self):
        return self.process.poll() is None

    def stop(self):
        for number, patience_s in ((signal.SIGTERM, 5), (signal.SIGKILL, 5)):
            if self.running():
                os.killpg(self.process.pid, number)
                try:
                    self.process.wait(patience_s)
                except subprocess.TimeoutExpired:
                    pass
        self.file.close()


class Trial:
    """The measurement; `blocks` are those of the result."""

    def __init__(self, options, folder, ending):
        self.options, self.folder, self.blocks = options, folder, []
        self.ending, self.recorders = ending, []
        self.started, self.unit = time.monotonic(), "run"
        env = {"STATE_DIRECTORY": str(folder / "state")}
        (folder / "state").mkdir()
        if options.sim:
            env |= {"HEDDLE_SIM_SOCKET": str(folder / "gpu"), "HEDDLE_SIM_MODE": options.sim_mode}
        mps = options.sim_mode == "mps" if options.sim else None
        # Each launch is told of: nothing is sampled, in no row.
        lines = ['daemon.report = "each"']
        promised = {"slowdown_max": options.slowdown_max,
                    "slowdown_p99_max": options.slowdown_p99_max}
        promised = [f"{key} = {most}" for key, most in promised.items() if most]
        if promised:
            lines += ["[[rule]]", f'label = "{SERVICE}"', 'priority = "latency"', *promised]
        self.daemon = Daemon(DIST, folder, mps, env, lines, UNGATED, None)
        self.daemon.start()
        self.daemon.loaded = (UNGATED, {})
        self.policy = options.policy.stem
        shutil.copy(options.policy, self.daemon.policies)
        self.programs = {}
        self.others = json.loads(self.daemon.command("ps", "--json")).get("unattached", [])

    def say(self, text):
        print(f"[{time.monotonic() - self.started:5.1f} s] {text}", file=sys.stderr, flush=True)

    def program(self, label):
        role, command = {SERVICE: ("latency", self.options.service),
                         JOB: ("batch", self.options.job)}[label]
        with self.ending:
            self.programs[label] = Program(label, role, command, self.daemon, self.options.sim)
        return self.programs[label]

    def start(self, label):
        self.program(label).wait_until_at_work(self.options.patience, self.options.warm_up)

    def stop(self, label):
        if label in self.programs:
            self.programs[label].stop()
            del self.programs[label]

    def record(self, name, wait=True):
        """Begins a trace of a block's length; returns what ends it and says where it is."""
        path = self.folder / f"{name.replace('/', '-')}.trace"
        path.unlink(missing_ok=True)
        with self.ending:
            recorder = subprocess.Popen(
                [self.daemon.heddle, "--socket", self.daemon.socket, "record", path, "--seconds",
                 str(self.options.seconds + 2 * LEAD_S)], text=True, stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE, env=os.environ | self.daemon.env)
            self.recorders.append(recorder)
        while wait and not (path.exists() and path.stat().st_size) and recorder.poll() is None:
            time.sleep(0.02)

        def end():
            recorder.send_signal(signal.SIGINT)
            if error := recorder.communicate(timeout=60)[1]:
                raise HostError(error)
            return path
        return end

    def block(self, row, repetition):
        """Measures all that run now."""
        self.say(f"{row}, {self.options.seconds:g} s")
        both, seconds = list(self.programs.values()), self.options.seconds
        end = self.record(row)
        start = time.monotonic() + LEAD_S
        for program in both:
            program.check()
            if program.speaks:
                program.go(start, seconds)
        time.sleep(max(0, start - time.monotonic()))
        before = counted(self.daemon)
        time.sleep(max(0, start + seconds - time.monotonic()))
        after = counted(self.daemon)
        document = traces.load(end())
        jobs = {}
        for program in both:
            label = program.label
            found = rates(before[label], after[label])
            found["us"] = [us for name, events in traces.clients(document)
                           if name.startswith(f"{label} Q") for us in traces.runs_us(events)]
            if program.speaks:
                answer = program.answer(seconds)
                found |= {"us": answer["us"],
                          "per_s": len(answer["us"]) / (answer["span_s"] or seconds)}
                if label == SERVICE:
                    self.unit = "request"
            jobs[label] = found
            program.check()
        self.blocks.append({"rep": repetition, "row": row, "jobs": jobs})

    def whole(self, row, repetition):
        """The service from its start to its end, beside the job if that runs."""
        self.say(f"{row}, a whole run")
        before, begun = counted(self.daemon)[JOB], time.monotonic()
        service, end = self.program(SERVICE), None
        while service.running() and time.monotonic() < begun + WHOLE_MOST_S:
            if end is None and counted(self.daemon)[SERVICE].launches > 0:
                end = self.record(row, wait=False)
            try:
                service.process.wait(0.2)
            except subprocess.TimeoutExpired:
                pass
        lasted = time.monotonic() - begun
        if service.process.poll() != 0:
            raise HostError(f"{SERVICE} ended with status 0 before, and now with "
                            f"{service.process.poll()} after {lasted:.0f} s\n{tail(service.log)}")
        jobs = {SERVICE: {"us": [lasted * 1e6], "per_s": 1 / lasted, "gpu_share": 0}}
        if JOB in self.programs:
            self.programs[JOB].check()
            jobs[JOB] = rates(before, counted(self.daemon)[JOB])
        if end:
            end()
        self.stop(SERVICE)
        self.blocks.append({"rep": repetition, "row": row, "jobs": jobs})

    def settle(self):
        """The policy was loaded anew, and auto finds its way as both work."""
        self.say(f"{self.policy} begins, {self.options.settle:g} s")
        start = time.monotonic()
        speakers = [program for program in self.programs.values() if program.speaks]
        for program in speakers:
            program.go(start, self.options.settle)
        time.sleep(self.options.settle)
        for program in speakers:
            program.answer(self.options.settle)

    def measure(self):
        self.start(SERVICE)
        try:
            self.measure_by(self.block)
        except Ended:
            if JOB in self.programs and not self.programs[JOB].running():
                raise
            self.say(f"{SERVICE} has ended: now whole runs of it")
            for label in list(self.programs):
                self.stop(label)
            self.daemon.use(UNGATED, {})
            self.blocks, self.unit = [], "whole run"
            self.measure_by(self.whole)

    def measure_by(self, block):
        for repetition in range(2):
            block(f"alone/{SERVICE}", repetition)
        self.start(JOB)
        for repetition in range(self.options.repetitions):
            for row, policy in (("shared", UNGATED), (self.policy, self.policy)):
                self.daemon.use(policy, {})  # and waits a second for its decisions
                if policy != UNGATED:
                    self.settle()
                block(row, repetition)
        self.shown = json.loads(self.daemon.command("policy", "show", "--json"))
        ps = json.loads(self.daemon.command("ps", "--json"))
        self.mps = all(client.get("mode") == "mps" for client in ps["clients"])
        self.daemon.use(UNGATED, {})
        self.stop(JOB)
        block(f"alone/{SERVICE}", 2)
        self.stop(SERVICE)
        self.start(JOB)
        self.block(f"alone/{JOB}", 0)

    def close(self):
        for label in list(self.programs):
            self.stop(label)
        for recorder in self.recorders:
            recorder.kill()
            recorder.wait()
        self.daemon.stop()


def across(values):
    """The middle of the repetitions, the least and the most."""
    return {"value": statistics.median(values), "lo": min(values), "hi": max(values),
            "n": len(values)} if values else None


def figures(blocks):
    """Of each row; ÷ alone is against all blocks alone together."""
    def of(row, label):
        return [b["jobs"][label] for b in blocks if b["row"] == row and label in b["jobs"]]

    def pooled(found):
        return [us for each in found for us in each["us"]]

    alone = {label: of(f"alone/{label}", label) for label in (SERVICE, JOB)}
    out = {}
    for row in dict.fromkeys(b["row"] for b in blocks):
        out[row] = {"repetitions": sum(b["row"] == row for b in blocks), "jobs": {}}
        for label in (SERVICE, JOB):
            if not (found := of(row, label)):
                continue
            times, base = pooled(found), pooled(alone[label])
            figure = {"samples": len(times), "per_s": across([f["per_s"] for f in found]),
                      "gpu_share": across([f["gpu_share"] for f in found])}
            if times:
                figure["jct_ms"] = {"mean": {"value": statistics.mean(times) / 1e3},
                                    "p50": {"value": statistics.median(times) / 1e3},
                                    "p99": {"value": p99(times) / 1e3}}
            if row != f"alone/{label}":
                rate = statistics.mean(f["per_s"] for f in alone[label])
                figure["per_s_over_alone"] = across([f["per_s"] / rate for f in found if rate])
                for name, take in (("mean", statistics.mean), ("p99", p99)):
                    if base and all(f["us"] for f in found):
                        figure[f"{name}_over_alone"] = across(
                            [take(f["us"]) / take(base) for f in found])
                if not base and rate:  # no run of it ends
                    figure["mean_over_alone"] = across(
                        [rate / f["per_s"] for f in found if f["per_s"]])
            out[row]["jobs"][label] = figure
    return rounded(out)


def result_of(trial, options, command):
    rows = [{"name": row, "mps": trial.mps} for row in dict.fromkeys(
        block["row"] for block in trial.blocks)]
    for row in rows:
        if row["name"] == trial.policy:
            row["policy"] = trial.policy
    status = json.loads(trial.daemon.command("status", "--json"))
    known = status.get("profiles", {})
    result = {
        "benchmark": "scenario", "format": 1, "name": "heddle try",
        "about": f"{SERVICE}: {' '.join(options.service)}; {JOB}: {' '.join(options.job)}",
        "mode": "simulated" if options.sim else "real", "gpu": known.get("gpu") or "unknown",
        "host": f"{os.cpu_count()} CPUs, Linux {os.uname().release}",
        "unit": trial.unit, "interval": "the least and the most of the repetitions",
        "block_s": options.seconds, "repetitions_done": options.repetitions,
        "sessions": [{"date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
                      "commit": status.get("version", "unknown"),
                      "driver": known.get("driver", "unknown"), "command": command}],
        "jobs": [{"name": SERVICE, "role": "latency"}, {"name": JOB, "role": "batch"}],
        "rows": rows, "figures": figures(trial.blocks), "others": len(trial.others),
        "policies": {trial.policy: {key: trial.shown.get(key) for key in (
            "hash", "path", "values", "text")}},
        "raw": rounded(trial.blocks)}
    return result | verdict(result)


def table(result):
    unit = result["unit"]
    lines = [f"{'':20s}{unit + ' mean':>14s}{unit + ' p99':>14s}{'÷ alone':>10s}{'job / s':>10s}"
             f"{'÷ alone':>10s}{'job on GPU':>12s}"]
    for name, row in result["figures"].items():
        service, job = row["jobs"].get(SERVICE, {}), row["jobs"].get(JOB, {})
        jct = service.get("jct_ms", {})
        line = f"{name:20s}"
        for figure, form, unit, width in (
                (jct.get("mean"), ".2f", " ms", 14), (jct.get("p99"), ".2f", " ms", 14),
                (service.get("mean_over_alone"), ".2f", "", 10), (job.get("per_s"), ".0f", "", 10),
                (job.get("per_s_over_alone"), ".2f", "", 10),
                (job.get("gpu_share"), ".0%", "", 12)):
            line += f"{format(figure['value'], form) + unit if figure else '–':>{width}s}"
        lines.append(line)
    return "\n".join(lines)


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog="heddle try", usage="heddle try [OPTIONS] -- SERVICE... -- JOB...",
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--seconds", type=float, default=5, help="of each block (5)")
    add("--repetitions", type=int, default=3, help="of both together, either way (3)")
    add("--warm-up", type=float, default=2, help="seconds from a program's first launch (2)")
    add("--settle", type=float, default=6, help="seconds under the policy before a block of it (6)")
    add("--patience", type=float, default=300, help="seconds for that launch (300)")
    add("--policy", default="auto", help="a name, or a file .lua (auto)")
    add("--slowdown-max", type=float, metavar="X", help="promised to the service by a rule: 1.10, "
        "others slow it by ten per cent; for policies that keep promises, as auto does")
    add("--slowdown-p99-max", type=float, metavar="X", help="likewise of all its runs but one in a "
        "hundred; auto keeps that, too")
    add("--report", metavar="F.html", help="charts, timeline, policy and machine in one file")
    add("--json", metavar="FILE", help="the result, for heddle-bench report")
    add("--sim", action="store_true", help="on the simulated GPU; every figure is simulated")
    add("--sim-mode", choices=("mps", "timeslice"), default="mps", help=argparse.SUPPRESS)
    own = arguments.index("--") if "--" in arguments else len(arguments)
    options, rest = parser.parse_args(arguments[:own]), arguments[own + 1:]
    if "--" not in rest or rest[0] == "--" or rest[-1] == "--":
        parser.error("say both programs: -- SERVICE... -- JOB...")
    split = rest.index("--")
    options.service, options.job = rest[:split], rest[split + 1:]
    named = Path(options.policy)
    if named.suffix != ".lua":
        named = next((DIST / "share/heddle/policies").rglob(f"{named}.lua"), named)
    if not named.is_file():
        parser.error(f"--policy {options.policy}: is no file; heddle policy list has names")
    options.policy = named
    if options.seconds <= 0 or options.settle <= 0 or options.repetitions < 1:
        parser.error("--seconds, --settle and --repetitions must be more than 0")
    return options


def main():
    options = parse(sys.argv[1:])
    folder = Path(tempfile.mkdtemp(prefix="heddle-try-"))
    try:
        ending, trial = Ending(), None
        try:
            with ending:
                trial = Trial(options, folder, ending)
            trial.measure()
            result = result_of(trial, options, "heddle try " + " ".join(sys.argv[1:]))
        finally:
            if trial:
                trial.close()
        print(f"{table(result)}\n\n{result['verdict']}\n{result['sure']}")
        path = Path(options.json) if options.json else folder / "result.json"
        write(result, path)
        if options.report:
            traced = [file for row in ("shared", trial.policy)
                      if (file := folder / f"{row}.trace").exists()]
            sys.exit(subprocess.run([sys.executable, HERE / "report.py", path, *traced, "--html",
                                     options.report]).returncode)
    except (HostError, traces.TraceError, OSError) as error:
        sim = f"\nThe simulated GPU has the kernels of {HERE}/heddle-demo alone." * options.sim
        if not options.sim and not Path("/dev/nvidiactl").exists():
            sim = f"\nNo NVIDIA GPU is here; --sim measures {HERE}/heddle-demo on a simulated one."
        sys.exit(f"heddle try: {error}{sim}")
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
