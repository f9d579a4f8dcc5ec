#!/usr/bin/env python3
"""The ten commands of daemon/START.md lead to a service under a promise and a job beside it, on the
simulated GPU and under another root; `heddle try` among them. Its rules by team are valid."""

import contextlib
import html
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples/quickstart"))
sys.path.insert(1, str(ROOT / "bench"))
import stage  # noqa: E402  (the folder is known only now)
from harness import verdict  # noqa: E402

START = (ROOT / "daemon/START.md").read_text()
COMMANDS = re.search(r"<!-- start:begin -->\n```sh\n(.*?)```", START, re.S)[1]
# What this host lacks: a GPU, systemd, programs. `heddle ps` comes when both have attached.
PRELUDE = """set -e
mkdir -p $ROOT/etc/heddle
heddle() {
  case $1 in
    run) shift; command heddle run --sim "$@" ;;
    try) shift; command heddle try --sim --seconds 0.4 --repetitions 1 --warm-up 0.1 \\
           --settle 0.1 --json try.json "$@" ;;
    ps) for label in api train; do
          until command heddle ps | grep -q " $label "; do sleep 0.05; done
        done
        command heddle ps ;;
    *) command heddle "$@" ;;
  esac
}
touch $ROOT/etc/heddle/heddled.toml  # what heddled needs where another --config names it
heddled() { command heddled --config $ROOT/etc/heddle/heddled.toml "$@"; }
systemctl() {
  heddled >heddled.log 2>&1 &
  until command heddle status >/dev/null 2>&1; do sleep 0.05; done
}
"""


def run_commands(root):
    for name, role in (("serve", "latency"), ("train", "batch")):
        program = root / name
        program.write_text(f"#!/bin/sh\nexec {stage.DEMO} {role} --seconds 300\n")
        program.chmod(0o755)
    text = re.sub(r"(?<![\w.])/(opt|etc)/", rf"{root}/\1/", COMMANDS)
    text = text.replace("dist/bin/", f"{stage.DIST}/bin/")
    env = os.environ | {"ROOT": str(root), "HEDDLE_SOCKET": str(root / "socket"),
                        "HEDDLE_SIM_SOCKET": str(root / "gpu"), "STATE_DIRECTORY": str(root)}
    with open(root / "output", "w+") as output:  # a pipe would stay open as long as the programs
        shell = subprocess.Popen(["bash", "-c", PRELUDE + text], cwd=root, env=env, stdout=output,
                                 stderr=output, start_new_session=True)
        try:
            status = shell.wait(90)
        finally:
            with contextlib.suppress(ProcessLookupError):  # it failed before it left anything
                os.killpg(shell.pid, signal.SIGKILL)
        output.seek(0)
        said = output.read()
    assert status == 0, said
    return said


def check_try(root, said):
    found, page = json.loads((root / "try.json").read_text()), (root / "try.html").read_text()
    assert found["verdict"] in said and "Every figure is simulated." in said, said
    assert list(found["figures"]) == ["alone/service", "shared", "auto", "alone/job"], found
    # Of blocks this short on a busy host no figure is certain; that each is there is.
    shared, ours = (found["figures"][row]["jobs"] for row in ("shared", "auto"))
    for figure in (shared["service"]["jct_ms"]["p50"], ours["service"]["jct_ms"]["p50"],
                   ours["job"]["per_s_over_alone"], shared["job"]["gpu_share"]):
        assert figure["value"] >= 0, found["figures"]
    assert shared["service"]["samples"] > 0, shared
    assert found["policies"]["auto"]["hash"], found["policies"]
    assert html.escape(found["verdict"]) in page and "Who ran when: auto" in page
    assert "return policy {" in page, "the policy's text"


def check_tails():
    """A policy that makes the mean shorter and the tail longer does not help."""
    for with_heddle, said in (
            (2.8, "the tail longer: api's p99 ÷ alone is 2.80, without heddle 1.96"),
            (1.8, "heddle helps: train keeps 50 %")):
        second = verdict.judged("api", "train", 1.5, 1.1, (1.96, with_heddle), 0.02, 0.5)
        assert said in second, second


def check_refusals():
    for arguments, code, told in (
            (["--", "/bin/true"], 2, "say both programs"),
            (["--sim", "--", "/bin/true", "--", "/bin/true"], 1,
             "service ended (status 0) before it was measured"),
            (["--sim", "--", "/bin/false", "--", "/bin/true"], 1,
             f"has the kernels of {stage.DEMO} alone")):
        done = subprocess.run([stage.HEDDLE, "try", *arguments], capture_output=True, text=True,
                              timeout=60)
        assert done.returncode == code and told in done.stderr, (arguments, done)


def check_rules(root):
    """Beside the configuration that the commands installed."""
    etc = root / "etc/heddle"
    teams, everybody = re.findall(r"```toml\n(.*?)```", START, re.S)
    (etc / "conf.d/20-teams.toml").write_text(teams)
    (etc / "conf.d/99-everybody.toml").write_text(everybody)
    done = subprocess.run([stage.DIST / "bin/heddled", "--check", "--config", etc / "heddled.toml"],
                          capture_output=True, text=True, timeout=20)
    assert done.returncode == 0, done.stderr


def main():
    assert len(COMMANDS.splitlines()) == 10, COMMANDS
    check_tails()
    if not any(pathlib.Path(path).exists() for path in (
            stage.DIST / "share/heddle/javascript/chart.min.js",
            "/usr/share/javascript/chart.js/chart.min.js")):
        sys.exit(77)  # tests/setup.sh installs libjs-chart.js
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor() as beside:
        refusals = beside.submit(check_refusals)  # most of their time is waiting
        root = pathlib.Path(folder)
        said = run_commands(root)
        check_try(root, said)
        rows = [line for line in said.splitlines() if re.search(r" (api|train) ", line)]
        assert any("Q0" in row for row in rows) and any("Q9" in row for row in rows), said
        assert (root / "etc/systemd/system/heddled.service").exists()
        check_rules(root)
        refusals.result()


if __name__ == "__main__":
    main()
