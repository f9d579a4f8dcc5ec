#!/usr/bin/env python3
"""Programs that somebody else wrote and built, such as NVIDIA's cuda-samples: does each that runs
bare run alike under heddle?

Every executable under --programs runs in its own folder, twice bare and once under `heddle run`.
Compared are the exit status, the files it wrote, and its output at the strictest level at which
bare repeats itself: exactly; with numbers masked (timings, addresses); that in any order; not. Two
runs may agree by chance, so what differs is held against up to three further bare runs.
What is alike but used the driver without ever attaching to heddled is "unproven".

    samples.py --programs FOLDER --dist dist --out bench/results/samples.json
    samples.py --programs FOLDER --resume FILE --out FILE     runs what has no verdict there yet
    samples.py --programs FOLDER --only 'simple*' --arguments arguments.json

--arguments is a JSON object from a program's name to its arguments. Nothing is fatal; the file is
written after every program.
"""

import concurrent.futures
import fnmatch
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from harness import report  # noqa: E402
from harness.processes import Daemon, Mps, NoMps  # noqa: E402
from harness.session import Session, add_origin, origin, origin_parser  # noqa: E402
from host import simulated  # noqa: E402

BUILD_FOLDERS = {"CMakeFiles", ".git"}
PROGRAM_MIN_S = 15  # no further program is begun with less time left
BARE_MAX = 5
OUTPUT_MAX = 200_000
FILE_MAX = 64 << 20
NUMBER = re.compile(r"0x[0-9a-fA-F]+|[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|\b(?:nan|inf)\b")
INITIALIZED = re.compile(r"calling init: (.*/libcuda\.so\S*)")  # the loader's word (LD_DEBUG=files)


def masked(text):
    """Lines without numbers, bars of progress and spaces, which say how fast a run was."""
    lines = (re.sub(r"[\s.#*=]+", " ", NUMBER.sub("#", line)).strip()
             for line in text.splitlines())
    return [line for line in lines if line]


# From strict to lax; the last always agrees.
LEVELS = {
    "exact": lambda text: text,
    "numbers masked": masked,
    "numbers masked, any order": lambda text: sorted(set(masked(text))),
    "not compared": lambda text: None,
}


def level_of(outputs):
    """The strictest level at which bare outputs agree."""
    return next(name for name, view in LEVELS.items()
                if all(view(output) == view(outputs[0]) for output in outputs))


def judge(bares, heddle, used_driver=False, attached=False):
    """{"verdict": alike | differs | unproven | bare fails | not run, "why", "level"} of two or more
    bare runs and one under heddle. What uses the driver and does not attach would be alike even if
    heddle had done nothing."""
    for bare in bares:
        if "outcome" in bare:
            return {"verdict": "bare fails", "why": [bare["outcome"]]}
    exits = [bare["exit"] for bare in bares]
    if any(exits):
        return {"verdict": "bare fails", "why": [f"exits {', '.join(map(str, exits))}"]}
    if "outcome" in heddle:
        return {"verdict": "differs", "why": [heddle["outcome"]]}
    bare = bares[0]
    level = level_of([bare["output"] for bare in bares])
    why = []
    if heddle["exit"] != 0:
        why.append(f"exit {heddle['exit']}")
    if LEVELS[level](heddle["output"]) != LEVELS[level](bare["output"]):
        why.append(f"output ({level})")
    stable = {name for name in bare["files"]
              if all(other["files"].get(name) == bare["files"][name] for other in bares)}
    why += sorted(f"file {name}" for name in stable
                  if heddle["files"].get(name) != bare["files"][name])
    if not why and used_driver and not attached:
        return {"verdict": "unproven", "why": ["used the driver, not attached"], "level": level}
    return {"verdict": "differs" if why else "alike", "why": why, "level": level}


def programs(folder):
    """ELF executables below a folder, apart from shared objects and what a build leaves."""
    found = []
    for path in sorted(folder.rglob("*")):
        if BUILD_FOLDERS & set(path.parts) or not path.is_file() or not os.access(path, os.X_OK):
            continue
        if ".so" in path.name or path.suffix == ".o":
            continue
        with open(path, "rb") as file:
            if file.read(4) == b"\x7fELF":
                found.append(path)
    return found


def written(folder, since):
    """Digests of the files that were written since then."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_file() and path.stat().st_mtime >= since and path.stat().st_size <= FILE_MAX:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
            found[str(path.relative_to(folder))] = digest
    return found


def run_once(path, arguments, prefix, env, timeout_s):
    """One run: exit, output and files; or {"outcome": why there is none}."""
    begin = time.time()
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                [*prefix, str(path), *arguments], cwd=path.parent, env=os.environ | env,
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                start_new_session=True)
        except OSError as error:
            return {"outcome": f"cannot run: {error}"}
        try:
            status = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return {"outcome": f"no end within {timeout_s:g} s"}
        finally:
            end_group(process)
        output.seek(0)
        text = output.read(OUTPUT_MAX).decode(errors="replace")
    return {"exit": status, "output": text, "files": written(path.parent, begin - 0.01),
            "wall_s": round(time.time() - begin, 2)}


def end_group(process):
    """Ends what a program has left behind, or itself past its time."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


class Samples(Session):
    def __init__(self, options):
        super().__init__(options, origin(options, "samples") | {
            "sharing": "mps" if options.mps else "time-sliced", "class": options.job_class,
            "programs": {}, "summary": {}})
        self.lock = threading.Lock()
        if options.resume and options.resume.exists():
            self.result["programs"] = json.loads(options.resume.read_text())["programs"]

    def run(self):
        with tempfile.TemporaryDirectory(prefix="hs-") as folder:
            folder = self.folder = Path(folder)
            mps = (Mps if self.options.mps else NoMps)(folder / "mps")
            env = mps.env | (simulated(self.options.dist, folder) if self.options.sim else {})
            daemon = self.daemon = Daemon(self.options.dist, folder / "d", self.options.mps, env,
                                          [], "gapfill", None)
            mps.start()
            try:
                daemon.start()
                self.env = env | {"HEDDLE_SOCKET": str(daemon.socket)}
                with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool:
                    list(pool.map(self.run_program, self.todo()))
                self.result["daemon"] = daemon.counters().get("status")
            finally:
                daemon.stop()
                mps.stop()
                self.save()

    def todo(self):
        known = {name for name, found in self.result["programs"].items()
                 if found["verdict"] != "not run"}
        return [path for path in programs(self.options.programs)
                if path.name not in known and any(
                    fnmatch.fnmatch(path.name, pattern) for pattern in self.options.only)]

    def run_program(self, path):
        if self.left_s() < PROGRAM_MIN_S:
            found = {"verdict": "not run"}
        else:
            heddle = [str(self.options.dist / "bin/heddle"), "run", "-q", "--class",
                      self.options.job_class, "--label", path.name, "--"]
            loader = Path(tempfile.mkdtemp(dir=self.folder))
            traced = {"LD_DEBUG": "files", "LD_DEBUG_OUTPUT": str(loader / "of")}
            bares, managed, seen = [self.run_once(path)], None, {}
            if "outcome" not in bares[0]:  # what does not end bare is not waited for thrice
                bares.append(self.run_once(path))
                managed = self.run_once(path, heddle, traced)
                seen = {"used_driver": self.used_driver(loader),
                        "attached": self.attached(path.name)}
            found = judge(bares, managed, **seen)
            while found["verdict"] == "differs" and len(bares) < BARE_MAX:
                again = self.run_once(path)
                if again.get("exit") != 0:
                    break  # which is no word on the difference
                bares.append(again)
                found = judge(bares, managed, **seen)
            runs = {"bare": bares[0], "again": bares[-1], "heddle": managed or {}}
            found |= seen | {"bare_runs": len(bares)}
            found["wall_s"] = {kind: run.get("wall_s") for kind, run in runs.items()}
            if found["verdict"] != "alike":
                found["outputs"] = {kind: run.get("output", "")[-2000:]
                                    for kind, run in runs.items()}
        self.say(f"{path.name}: {found['verdict']} {'; '.join(found.get('why', []))}")
        with self.lock:
            self.result["programs"][path.name] = found
            self.save()

    def run_once(self, path, prefix=(), env=None):
        limit = max(5.0, min(self.options.timeout_s, self.left_s() - 5))
        return run_once(path, self.options.arguments.get(path.name, []), prefix,
                        self.env | (env or {}), limit)

    def used_driver(self, loader):
        """Whether a process under heddle loaded the driver, which the shim does at the first call;
        as the loader tells, so that it is known of a shim that does nothing, too."""
        # By way of a link, too: lib/heddle/with-libasan.so.
        shim = (self.options.dist / "lib/heddle").resolve()
        return any(Path(path).resolve().parent != shim for file in loader.iterdir()
                   for path in INITIALIZED.findall(file.read_text(errors="replace")))

    def attached(self, label):
        self.daemon.counters()  # it has logged who attached before it answers
        return f" label={label} " in self.daemon.log.read_text(errors="replace")

    def save(self):
        found = [program["verdict"] for program in self.result["programs"].values()]
        self.result["summary"] = {word: found.count(word) for word in sorted(set(found))}
        report.write(self.result, self.options.out)


def parse(arguments):
    parser = origin_parser(__doc__, "samples.json")
    add = parser.add_argument
    add("--programs", type=Path, required=True, help="folder with built programs")
    add("--only", default="*", type=lambda text: text.split(","), help="names or patterns")
    add("--arguments", type=Path, help="JSON: what to give to which program")
    add("--class", dest="job_class", default="batch", choices=("latency", "batch"))
    add("--jobs", type=int, default=4, help="programs that run at the same time")
    add("--timeout-s", type=float, default=60, help="for each run")
    add("--budget-s", type=float, default=540)
    add("--resume", type=Path, help="a result: what has a verdict there is not run again")
    add("--mps", action="store_true", help="under an MPS server of our own")
    options = parser.parse_args(arguments)
    options.programs = options.programs.resolve()
    options.arguments = json.loads(options.arguments.read_text()) if options.arguments else {}
    return add_origin(options, "tests/gpu/samples.py", arguments)


def main():
    samples = Samples(parse(sys.argv[1:]))
    signal.signal(signal.SIGTERM, lambda *_: setattr(samples.options, "budget_s", 0))
    samples.run()
    print(json.dumps(samples.result["summary"]))
    return 1 if samples.result["summary"].keys() & {"differs", "unproven"} else 0


if __name__ == "__main__":
    sys.exit(main())
