#!/usr/bin/env python3
"""`heddle-bench run` as a user runs it, on the installed tree: the simulated GPU, an interruption
and its resumption, a job that dies; then the path of a real GPU with programs that stand in for
NVIDIA's (nvidia-smi, nvidia-cuda-mps-control) and jobs that need no GPU.

    runner.py FAKE_NVML [DIST [TEST...]]
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
NVML = sys.argv.pop(1) if len(sys.argv) > 1 else ""
DIST = (ROOT / (sys.argv.pop(1) if len(sys.argv) > 1 else "dist")).resolve()
BENCH = DIST / "bin/heddle-bench"

TWO_JOBS = """
about = "Two."
repetitions = 2
block_s = 0.3
policies = ["gapfill@mps"]
baselines = ["mps", "mps+priority"]
seed = 5
[[job]]
name = "service"
role = "latency"
slo_ms = 50
[job.sim]
tokens = 2
kernel_us = 425
pause_us = { median = 3000, sigma = 0.3 }
[[job]]
name = "filler"
[job.sim]
kernels = 4
kernel_us = { median = 1200, sigma = 0.4 }
blocks = 2640
"""

# A user's own program, as bench/METHOD.md has it; dies after so many blocks, and tells what it got.
OWN = """import os, sys, time
print("ready", flush=True)
blocks = int(sys.argv[1])
env = os.environ.get
print(env("CUDA_MPS_CLIENT_PRIORITY"), env("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"),
      os.path.exists(env("CUDA_MPS_PIPE_DIRECTORY") + "/nvidia-cuda-mps-control.pid"),
      env("HEDDLE_PRIORITY"), file=open(sys.argv[2], "a"))
for line in sys.stdin:
    command, *numbers = line.split()
    if command != "go":
        break
    if not blocks:
        os.write(2, b"tired of it \\xff\\n")
        sys.exit(1)
    blocks -= 1
    start, seconds, lead, tail = map(float, numbers[:4])
    time.sleep(max(0, start - lead - time.monotonic()))
    while (begin := time.monotonic()) < start + seconds + tail:
        time.sleep(0.002)
        token = time.monotonic()
        time.sleep(0.003)
        print(begin, token, time.monotonic())
    print("done", flush=True)
"""

MPS = """#!/usr/bin/env python3
import os, pathlib, signal, sys, time
pid = pathlib.Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"]) / "nvidia-cuda-mps-control.pid"
if "-d" in sys.argv:
    if os.fork() == 0:
        os.setsid()
        for fd in (0, 1, 2):
            os.dup2(os.open("/dev/null", os.O_RDWR), fd)
        pid.write_text(str(os.getpid()))
        time.sleep(120)
    while not pid.exists() or not pid.read_text():
        time.sleep(0.01)
elif sys.stdin.read().strip() == "quit":
    os.kill(int(pid.read_text()), signal.SIGTERM)
    pid.unlink()
"""


def alive(word):
    """Processes whose command line or environment names `word`."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            text = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            zombie = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
        except OSError:
            continue
        if word.encode() in text and not zombie:
            found.append(text.split(b"\0")[0].decode())
    return found


class Runner(unittest.TestCase):
    """What the tests share."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="heddle-runner-")
        self.at = pathlib.Path(self.folder.name)
        self.json = self.at / "result.json"
        # Every process of the run inherits it: none may be left.
        self.env = os.environ | {"HEDDLE_TEST_MARK": self.folder.name}

    def tearDown(self):
        self.assertEqual(alive(f"HEDDLE_TEST_MARK={self.folder.name}"), [])
        self.folder.cleanup()

    def command(self, text, *arguments):
        scenario = self.at / "scenario.toml"
        scenario.write_text(text)
        return [BENCH, "run", scenario, "--json", self.json, *arguments]

    def run_bench(self, text, *arguments, status=0):
        done = subprocess.run(self.command(text, *arguments), env=self.env, text=True,
                              errors="replace", capture_output=True, timeout=90)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def result(self):
        return json.loads(self.json.read_text())


class SimulatedGpu(Runner):
    """Its figures are judged: it has the machine for itself."""

    def test_a_run_is_interrupted_and_resumed(self):
        process = subprocess.Popen(self.command(TWO_JOBS, "--device", "sim"), env=self.env,
                                   text=True, stdout=subprocess.PIPE)
        for line in process.stdout:  # in the middle of the second repetition
            if "2/2" in line:
                break
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        self.assertEqual(process.wait(30), 130, rest)
        process.stdout.close()
        self.assertEqual(alive(f"HEDDLE_TEST_MARK={self.folder.name}"), [])
        partial = self.result()
        self.assertEqual(partial["repetitions_done"], 1)
        self.assertGreaterEqual(len(partial["raw"]), 6)
        self.assertIn("gapfill@mps", partial["figures"])

        self.assertIn("another text", self.run_bench(TWO_JOBS + "\n", "--device", "sim", "--resume",
                                                     status=1))
        self.assertIn("other rows", self.run_bench(TWO_JOBS, "--device", "sim", "--resume",
                                                   "--policies", "fifo", status=1))
        self.assertIn("another block_s: 0.3", self.run_bench(
            TWO_JOBS, "--device", "sim", "--resume", "--block-s", "0.2", status=1))
        self.assertIn("has seed 5", self.run_bench(TWO_JOBS, "--device", "sim", "--resume",
                                                   "--seed", "6", status=1))
        self.assertIn("--resume", self.run_bench(TWO_JOBS, "--device", "sim", status=1))

        output = self.run_bench(TWO_JOBS, "--device", "sim", "--resume")
        whole = self.result()
        self.assertEqual(whole["repetitions_done"], 2)
        self.assertEqual(len(whole["sessions"]), 2)
        self.assertEqual(whole["raw"][:5], partial["raw"][:5], "the first repetition is kept")
        self.assertEqual(sorted((b["rep"], b["row"]) for b in whole["raw"]),
                         sorted((rep, row["name"]) for rep in (0, 1) for row in whole["rows"]))
        self.assertNotEqual([b["row"] for b in whole["raw"][:5]],
                            [b["row"] for b in whole["raw"][5:]], "a new order each time")
        self.check_figures(whole)
        self.assertIn("nothing is left", self.run_bench(TWO_JOBS, "--device", "sim", "--resume"))
        self.assertEqual(self.result(), whole)
        table = subprocess.run([BENCH, "table", self.json], text=True, capture_output=True)
        self.assertEqual(table.returncode, 0, table.stderr)
        self.assertIn(table.stdout, output)
        self.assertIn("every figure is simulated", table.stdout)

    def check_figures(self, result):
        self.assertEqual(result["mode"], "simulated")
        self.assertEqual(result["errors"], [])
        self.assertEqual(result["outputs"], {"control_equal": True, "heddle_equal": True})
        alone = result["figures"]["alone/service@mps"]["jobs"]["service"]
        shared = result["figures"]["mps"]["jobs"]["service"]
        managed = result["figures"]["gapfill@mps"]
        self.assertGreater(alone["jct_ms"]["mean"]["value"], 0.85)
        self.assertLess(alone["jct_ms"]["mean"]["value"], shared["jct_ms"]["mean"]["value"])
        self.assertGreater(shared["mean_over_alone"]["value"], 1.1)
        first = result["figures"]["mps+priority"]["jobs"]["service"]
        self.assertLess(first["mean_over_alone"]["value"], shared["mean_over_alone"]["value"])
        self.assertGreater(managed["counters"]["asked"], 0, "the filler asks")
        self.assertGreater(managed["counters"]["hooks_us"], 0, "the policy is Lua")
        self.assertGreater(managed["jobs"]["filler"]["per_s_over_alone"]["value"], 0)
        idle = result["idle_fraction"]["service"]["untraced"]
        self.assertTrue(0.5 < idle["value"] < 0.95, idle)
        self.assertEqual(alone["tbt_ms"]["samples"], alone["samples"])
        self.assertTrue(0.42 < alone["tbt_ms"]["p50"]["value"] < alone["jct_ms"]["p50"]["value"])
        self.assertTrue(0.42 < alone["ttft_ms"]["p50"]["value"] < alone["jct_ms"]["p50"]["value"])
        self.assertGreater(managed["decisions_per_s"]["value"], 0)
        self.assertEqual(managed["faults"]["value"], 0)
        self.assertGreater(managed["added_us_max"], 0, "the bound is told")
        said = [block["said"] for block in result["raw"] if block["row"] == "gapfill@mps"]
        self.assertTrue(said and all(of["verdicts"] for of in said), "what the policy said is kept")
        self.assertTrue(0 < managed["daemon_cpu"]["value"] < 2)
        self.assertTrue(0 <= managed["jobs"]["filler"]["shim_cpu"]["value"] < 2)
        self.assertEqual([m["row"] for m in result["missing"]], ["energy"])
        self.assertNotIn("power_w", managed)

    def test_bad_input_is_one_line(self):
        for text, message in (
                ('x = 1\n[[job]]\nname = "a"\ncommand = ["x"]\n', "scenario.toml:1: unknown key"),
                ('[[job]]\nname = "a"\nworkload = "torchvision"\n',
                 "scenario.toml:1: job a needs a [job.sim]"),
                ('policies = ["gapfil"]\n[[job]]\nname = "a"\ncommand = ["x"]\n',
                 "no policy 'gapfil'; did you mean 'gapfill'?"),
                ('policies = ["./p.lua"]\n[[job]]\nname = "a"\ncommand = ["x"]\n',
                 "scenario.toml: ./p.lua: ./p.lua: cannot be read: No such file"),
                ('policies = ["gapfill:gap=3"]\n[[job]]\nname = "a"\ncommand = ["x"]\n',
                 "scenario.toml: gapfill:gap=3: gapfill: no parameter 'gap'; there are: "),
                ('[[job]]\nname = "a"\ncommand = ["x"]\n[job.sim]\ntrace = "t"\n',
                 "scenario.toml:1: job a plays a trace that is not there: t"),
                ('policies = ["fifo@mps/b"]\n[[job]]\nname = "a"\ncommand = ["x"]\n',
                 "policies: 'fifo@mps/b': no job 'b'")):
            output = self.run_bench(text, "--device", "sim", status=1)
            self.assertIn(message, output)
            self.assertEqual(output.count("\n"), 1, output)
            self.assertFalse(self.json.exists())


class RealPath(Runner):
    """Jobs that sleep: no test takes a tenth of a processor, so that they run side by side."""

    def stand_ins(self):
        """A path on which NVIDIA's programs are ours; the command of a job of the user's own."""
        for name, text in (("nvidia-smi", "#!/bin/sh\necho 'Stand-in GPU, 1.2'\n"),
                           ("nvidia-cuda-mps-control", MPS)):
            program = self.at / name
            program.write_text(text)
            program.chmod(0o755)
        (self.at / "own.py").write_text(OWN)
        self.env["PATH"] = f"{self.at}:{self.env['PATH']}"
        self.env |= {"HEDDLE_NVML": NVML, "FAKE_NVML_WATTS": "250"}
        self.env.pop("HEDDLE_PRIORITY", None)
        self.env["STATE_DIRECTORY"] = str(self.at / "host")
        own = lambda blocks, name: json.dumps(  # noqa: E731
            ["python3", str(self.at / "own.py"), str(blocks), str(self.at / name)])
        return own

    def test_mps_and_a_job_that_dies_on_the_path_of_a_real_gpu(self):
        own = self.stand_ins()
        output = self.run_bench(f"""
repetitions = 2
block_s = 0.2
policies = ["fifo@timeslice"]
baselines = ["timeslice", "mps", "mps+priority", "mps:25", "split:75/25"]
[[job]]
name = "hp"
role = "latency"
command = {own(99, "hp")}
[[job]]
name = "be"
command = {own(4, "be")}
""", status=1)
        result = self.result()
        self.assertEqual((result["mode"], result["gpu"]), ("real", "Stand-in GPU"))
        told = [(self.at / name).read_text().splitlines() for name in ("hp", "be")]
        # Client priority, percentage, an MPS server is there, priority under heddle.
        self.assertEqual(sorted(told[0]), sorted(["None None False None", "None None True None",
                                                  "None None False 0", "None None True 4"]))
        self.assertEqual(sorted(told[1]), sorted(["None None False None", "None None True None",
                                                  "1 None True None", "None 25 True None",
                                                  "None None False 9", "None None True 4"]))
        self.assertIn("tired of it \ufffd", "".join(result["errors"]))
        self.assertFalse((self.at / "host").exists(), "the host's own heddled has its state there")
        # Three of the four blocks of each of be's bare processes were had; hp's alone were all.
        rows = [block["row"] for block in result["raw"]]
        self.assertEqual(rows.count("alone/hp"), 2)
        self.assertEqual(rows.count("alone/be") + rows.count("timeslice"), 3)
        self.assertEqual(rows.count("fifo"), 2)
        self.assertIn("hp", result["figures"]["mps:25"]["jobs"])
        jct_ms = result["figures"]["alone/hp"]["jobs"]["hp"]["jct_ms"]
        self.assertTrue(0 < jct_ms["p50"]["value"] < 50)
        # The second part of its iterations, as a printed line tells them.
        hp = result["figures"]["alone/hp"]["jobs"]["hp"]
        tbt_ms = hp["tbt_ms"]
        self.assertEqual(tbt_ms["samples"], hp["samples"])
        self.assertTrue(2 <= tbt_ms["p50"]["value"] < jct_ms["p50"]["value"])
        for row in ("alone/hp", "fifo"):
            self.assertAlmostEqual(result["figures"][row]["power_w"]["value"], 250, delta=10)
        self.assertGreater(result["figures"]["alone/hp"]["energy_per_iteration_j"]["value"],
                           250 * 0.005)
        self.assertNotIn("energy", [m["row"] for m in result["missing"]])

    def test_a_job_that_never_comes_up_costs_its_rows_alone(self):
        own = self.stand_ins()
        self.run_bench(f"""
repetitions = 1
block_s = 0.2
policies = []
baselines = ["timeslice"]
[[job]]
name = "good"
command = {own(99, "good")}
[[job]]
name = "bad"
command = ["sh", "-c", "echo no such model >&2; exit 3"]
[[job]]
name = "late"
command = {own(99, "late")}
arrivals = "open 30"
""", status=1)
        result = self.result()
        self.assertEqual({block["row"] for block in result["raw"]}, {"alone/good"})
        self.assertIn("no such model", "".join(result["errors"]))
        self.assertIn("closed loop only", "".join(result["errors"]))

    def test_without_an_mps_server_the_other_rows_are_measured(self):
        own = self.stand_ins()
        (self.at / "nvidia-cuda-mps-control").write_text("#!/bin/sh\necho no rights >&2; exit 1\n")
        self.run_bench(f"""
repetitions = 1
block_s = 0.1
policies = []
baselines = ["timeslice", "mps"]
[[job]]
name = "a"
command = {own(99, "a")}
""", status=1)
        result = self.result()
        self.assertEqual({block["row"] for block in result["raw"]}, {"alone/a", "timeslice"})
        self.assertIn("no rights", "".join(result["errors"]))

    def test_a_workload_gets_its_keys(self):
        self.stand_ins()
        python, told = self.at / "python3", self.at / "told"
        python.write_text(f"""#!/bin/sh
echo "${{1##*/}}" "$@" >>{told}
exec {sys.executable} {self.at}/own.py 99 {self.at}/own
""")
        python.chmod(0o755)
        self.run_bench("""
repetitions = 1
block_s = 0.1
policies = []
baselines = ["timeslice"]
[[job]]
name = "trainer"
workload = "torchvision"
model = "resnet50"
batch = 32
mode = "training"
[[job]]
name = "classifier"
workload = "torchvision"
model = "alexnet"
[[job]]
name = "chat"
workload = "llm"
tokens = 8
graph = true
""")
        scripts = DIST / "libexec/heddle/workloads"
        self.assertEqual(sorted(told.read_text().splitlines()), [
            f"jobs.py {scripts}/jobs.py alexnet 1",
            f"jobs.py {scripts}/jobs.py resnet50 32 --mode training",
            f"llm.py {scripts}/llm.py --graph true --tokens 8"])

    def mocks(self, head):
        """A scenario of two jobs of the Python protocol that need no GPU."""
        self.stand_ins()
        job = DIST / "libexec/heddle/workloads/mock_job.py"
        return head + "".join(
            f'[[job]]\nname = "{name}"\nrole = "{role}"\n'
            f'command = ["python3", "{job}", "m", "{batch}"]\n'
            for name, role, batch in (("hp", "latency", 1), ("be", "batch", 2)))

    def test_a_job_alone_under_heddle_and_another_configuration(self):
        text = self.mocks("""
repetitions = 5
block_s = 0.2
policies = ["fifo@mps/hp", "fifo:gpu.idle_us=500@mps"]
baselines = ["mps"]
expect = ["fifo@mps/hp: hp mean_over_alone <= 50 (nobody)", "fifo: be cv <= 1 (nobody)"]
""")
        output = self.run_bench(text, "--logs", str(self.at / "logs"))
        result = self.result()
        self.assertEqual(set(result["figures"]["fifo@mps/hp"]["jobs"]), {"hp"})
        self.assertEqual(set(result["figures"]["fifo:gpu.idle_us=500@mps"]["jobs"]), {"hp", "be"})
        self.assertEqual(len(list((self.at / "logs").rglob("heddled.log"))), 2)
        self.assertEqual([e["met"] for e in result["expect"]], [True, None])
        self.assertIn("| fifo: be cv <= 1 | row fifo was not measured |", output)
        self.assertEqual(len(result["sessions"][0]["processes"]), 2 + 1 + 2)

    def test_a_paired_job_tells_what_heddle_costs_it(self):
        text = self.mocks('repetitions = 2\nblock_s = 0.3\npolicies = ["fifo@mps/hp"]\n'
                          'baselines = []\n').replace('"latency"\n', '"latency"\npaired = true\n')
        self.run_bench(text)
        figures = self.result()["figures"]
        self.assertLess(abs(figures["fifo@mps/hp"]["jobs"]["hp"]["cost"]["typical"]["value"]), 0.5)
        self.assertNotIn("cost", figures["alone/hp@mps"]["jobs"]["hp"])

    def test_a_policy_that_declares_sm_sets_has_processes_of_its_own_and_the_profiles(self):
        own = self.at / "own.lua"
        own.write_text('sm_set.family { sizes = { 2 } }\nreturn policy { name = "own", api = 1, '
                       'version = "1.0.0", hooks = {} }\n')
        (self.at / "profiles").mkdir()
        text = self.mocks(f"""
repetitions = 1
block_s = 0.1
policies = ["fifo@mps", "static_equal@mps", "{own}@mps"]
baselines = ["mps"]
""")
        self.run_bench(text, "--logs", str(self.at / "logs"), "--profiles",
                       str(self.at / "profiles"))
        result = self.result()
        self.assertEqual(len(result["sessions"][0]["processes"]), 2 + 3 * 2)
        self.assertEqual(result["errors"], [])
        logs = [log.read_text() for log in (self.at / "logs").rglob("heddled.log")]
        self.assertEqual(sorted(any(f"policy={name}" in log or f'"{name}"' in log for log in logs)
                                for name in ("own", "static_equal")), [True, True], logs)

    def test_apart_the_rows_with_mps_come_after_the_others(self):
        text = self.mocks('apart = true\nrepetitions = 2\nblock_s = 0.1\npolicies = []\n'
                          'baselines = ["timeslice", "mps"]\n')
        self.run_bench(text)
        result = self.result()
        self.assertEqual([(b["rep"], b["row"].endswith("mps")) for b in result["raw"]],
                         [(rep, rep >= 2) for rep in range(4) for _ in range(3)])
        self.assertEqual(result["figures"]["mps"]["jobs"]["hp"]["mean_over_alone"]["n"], 2)
        self.assertTrue(result["finished"])
        self.assertIn("nothing is left", self.run_bench(text, "--resume"))
        self.assertIn("other --repetitions",
                      self.run_bench(text, "--resume", "--repetitions", "3", status=1))
        self.assertNotEqual(self.result()["digests"], [])

    def test_arrivals_of_the_python_protocol(self):
        self.stand_ins()
        job = DIST / "libexec/heddle/workloads/mock_job.py"
        (self.at / "arrivals.txt").write_text("0\n0.05\n0.1\n")
        self.run_bench(f"""
repetitions = 1
block_s = 0.5
policies = []
baselines = []
[[job]]
name = "none"
command = ["python3", "{job}", "m", "1"]
""", status=1)
        self.run_bench("".join([
            'repetitions = 1\nblock_s = 1\npolicies = []\nbaselines = ["timeslice"]\n',
            *(f'[[job]]\nname = "{name}"\ncommand = ["python3", "{job}", "m", "1", "{tokens}"]\n'
              f'arrivals = "{arrivals}"\n'
              for name, tokens, arrivals in (("open", 3, "open 40"), ("poisson", 0, "poisson 40"),
                                             ("recorded", 0, "recorded arrivals.txt"),
                                             ("burst", 0, "burst 4 5"),
                                             ("flooded", 0, "open 5000")))]))
        figures = self.result()["figures"]
        count = {name: figures[f"alone/{name}"]["jobs"][name]["samples"]
                 for name in ("open", "poisson", "recorded", "burst", "flooded")}
        self.assertEqual(count["open"], 40)
        tbt_ms = figures["alone/open"]["jobs"]["open"]["tbt_ms"]
        self.assertEqual(tbt_ms["samples"], 2 * 40)
        self.assertTrue(3 <= tbt_ms["p50"]["value"] < 12,
                        "a wait for the request's turn is not in it")
        self.assertTrue(15 <= count["poisson"] <= 70, count)
        self.assertEqual(count["recorded"], 30, count)
        self.assertEqual(count["burst"], 20, count)
        burst_ms = figures["alone/burst"]["jobs"]["burst"]["jct_ms"]
        open_ms = figures["alone/poisson"]["jobs"]["poisson"]["jct_ms"]
        self.assertGreater(burst_ms["p50"]["value"], 1.5 * open_ms["p50"]["value"],
                           "most of a burst wait for others")
        unserved = figures["alone/flooded"]["jobs"]["flooded"]["unserved"]
        self.assertGreater(unserved["value"] * unserved["n"], 3000)


def main():
    """Every test, each of RealPath in a process of its own."""
    def start(test):
        return subprocess.Popen([sys.executable, __file__, NVML, DIST, test], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def ended(process):
        print(process.communicate()[0], flush=True)
        return process.returncode

    failed = ended(start("SimulatedGpu"))
    beside = [start(f"RealPath.{name}")
              for name in unittest.defaultTestLoader.getTestCaseNames(RealPath)]
    sys.exit(any([failed, *map(ended, beside)]))


if __name__ == "__main__":
    if not BENCH.exists():
        print(f"{BENCH} is not there: build and install first")
        sys.exit(77)
    if sys.argv[1:]:
        unittest.main(verbosity=2)
    main()
