#!/usr/bin/env python3
"""examples/slurm under a real slurmctld with two slurmd, on the simulated GPU: what jobs ask for is
what they get, a plan places them, and neither slurmd's nor heddled's death loses one. Rules by
cgroup are tried where Slurm can make cgroups: as root, with cgroup v1's freezer mounted."""

import json
import os
import pathlib
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/fault"))
import setting  # noqa: E402  (the folder is known only now)
import stage  # noqa: E402
from setting import expect  # noqa: E402

EXAMPLES = ROOT / "examples/slurm"
FREEZER = pathlib.Path("/sys/fs/cgroup/freezer")
NODES = ("heddle1", "heddle2")

CONFIG = """
ClusterName=heddle
SlurmctldHost={host}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
SlurmctldPort={ports[0]}
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmdSpoolDir={folder}/%n
ProctrackType=proctrack/{proctrack}
TaskPlugin=task/none
TaskProlog={folder}/task_prolog.sh
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0
SlurmdParameters=config_overrides
ReturnToService=2
JobSubmitPlugins=lua
PlugStackConfig={folder}/plugstack.conf
GresTypes=gpu,shard
PartitionName=gpu Nodes={nodes} Default=YES LLN=YES
PartitionName=training Nodes={nodes}
"""


def tools():
    """Skips, with the reason, where Slurm is not installed or needs more than there is."""
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    missing = [name for name in ("slurmctld", "slurmd", "sbatch", "cc") if not shutil.which(name)]
    if not pathlib.Path("/usr/include/slurm/spank.h").exists():
        missing.append("slurm/spank.h")
    if missing:
        print(f"missing: {' '.join(missing)}; tests/setup.sh --slurm installs Slurm")
        sys.exit(77)


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


class Cluster:
    def __init__(self, where):
        self.where, self.folder, self.daemons = where, where.folder, {}
        shutil.rmtree(self.folder / "state", ignore_errors=True)
        self.cgroups = os.geteuid() == 0 and os.access(FREEZER / "tasks", os.W_OK)
        where.env |= {"SLURM_CONF": str(self.folder / "slurm.conf"), "SLURM_EXIT_ERROR": "1",
                      "HEDDLE_SLURM_PAIRS": str(self.folder / "pairs")}
        self.write_files()

    def write_files(self):
        folder, ports = self.folder, free_ports(1 + len(NODES))
        # The simulated GPU, through the same command line as a real one.
        wrapper = folder / "heddle"
        wrapper.write_text(f'#!/bin/sh\nshift\nexec {stage.HEDDLE} run --sim "$@"\n')
        wrapper.chmod(0o755)
        prolog = folder / "task_prolog.sh"
        prolog.write_text((EXAMPLES / prolog.name).read_text().replace(
            "/opt/heddle/bin/heddle", str(wrapper)))
        prolog.chmod(0o755)
        plugin = folder / "heddle_spank.so"
        subprocess.run(["cc", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", plugin,
                        EXAMPLES / "heddle_spank.c"], check=True)
        shutil.copy(EXAMPLES / "job_submit.lua", folder)
        host = socket.gethostname()
        config = CONFIG.format(
            host=host, user=pwd.getpwuid(os.geteuid()).pw_name, ports=ports, folder=folder,
            proctrack="cgroup" if self.cgroups else "linuxproc", nodes=",".join(NODES))
        for node, port in zip(NODES, ports[1:]):
            config += (f"NodeName={node} NodeHostname={host} Port={port} CPUs=4 "
                       f"Gres=gpu:1,shard:2 Feature={node}\n")
        for name, text in {
                "slurm.conf": config, "plugstack.conf": f"required {plugin} heddle={wrapper}\n",
                "gres.conf": "AutoDetect=off\nName=gpu File=/dev/zero\nName=shard Count=2\n",
                "cgroup.conf": "CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\n"}.items():
            (folder / name).write_text(text)

    def start(self, name, *command):
        log = open(self.folder / f"{name}.log", "ab")
        with log:
            self.daemons[name] = subprocess.Popen(command, env=self.where.env, stdout=log,
                                                  stderr=log)

    def start_slurmd(self, node):
        self.start(node, "slurmd", "-D", "-N", node)

    def kill(self, name):
        self.daemons[name].kill()
        self.daemons[name].wait()

    def call(self, *command, check=True, **environment):
        done = subprocess.run(command, env=self.where.env | environment, text=True,
                              capture_output=True, timeout=20)
        expect(not check or done.returncode == 0, (command, done.stderr))
        return done

    def ready(self):
        said = self.call("sinfo", "-hN", "-p", "gpu", "-o", "%t", check=False)
        return said.returncode == 0 and said.stdout.split() == ["idle"] * len(NODES)

    def up(self):
        self.start("slurmctld", "slurmctld", "-D")
        for node in NODES:
            self.start_slurmd(node)
        stage.wait_until(self.ready, 20, "two nodes of Slurm are idle")

    def submit(self, name, *options, command, **environment):
        """The job's number; what it prints is in NAME.out."""
        done = self.call("sbatch", "--parsable", "-J", name, "--gres=shard:1", "-o",
                         self.folder / f"{name}.out", *options, "--wrap", command, **environment)
        return done.stdout.strip()

    def field(self, job, field):
        words = self.call("scontrol", "-o", "show", "job", job).stdout.split()
        return next((w.split("=", 1)[1] for w in words if w.startswith(f"{field}=")), "")

    def reach(self, jobs, *states):
        for job in jobs:
            stage.wait_until(lambda: self.field(job, "JobState") in states, 20,
                             f"job {job}: {states}")

    def close(self):
        for name in ("slurmctld", *NODES):
            if name in self.daemons and self.daemons[name].poll() is None:
                self.daemons[name].terminate()
                self.daemons[name].wait(10)


def check_refusals(cluster):
    """At submission, and the text names the remedy."""
    for option, remedy in (("--heddle-class=turbo", "say --heddle-class=latency, or batch"),
                           ("--heddle-memory=20GB", "such as --heddle-memory=20GiB"),
                           ("--heddle-memory=101%", "or 25%"),
                           ("--heddle-memory=0.5MiB", "or 25%")):
        done = cluster.call("sbatch", option, "--wrap", "true", check=False)
        expect(done.returncode != 0 and remedy in done.stderr, (option, done))


def clients(cluster):
    return {c["label"]: c for c in cluster.where.heddle("ps")["clients"]}


def demo(role, seconds):
    return f"exec {stage.DEMO} {role} --seconds {seconds} --kernel-ms 1"


def check_jobs(cluster):
    """By the options and by the TaskProlog; slurmd and heddled die while the jobs run."""
    where = cluster.where
    jobs = {
        "by_option": cluster.submit("by_option", "--heddle-class=latency", "--heddle-memory=25%",
                                    command=demo("latency", 3), HEDDLE_LABEL="by_option"),
        "by_prolog": cluster.submit("by_prolog", command=demo("batch", 3), HEDDLE_CLASS="batch",
                                    HEDDLE_LABEL="by_prolog"),
        "by_partition": cluster.submit("by_partition", "-p", "training", command=demo("batch", 3),
                                       HEDDLE_LABEL="by_partition"),
        "bare": cluster.submit("bare", command="env")}
    seen = stage.wait_until(
        lambda: set(now := clients(cluster)) >= set(jobs) - {"bare"} and now, 10, "the jobs attach")
    top = 1 if cluster.cgroups else 0  # by the rule, or root's own
    for label, priority in (("by_option", top), ("by_prolog", 9), ("by_partition", 9)):
        expect(seen[label]["priority"] == priority, seen[label])
        if cluster.cgroups:
            expect(seen[label]["rule"] == "slurm job, cgroup v1", seen[label])
    expect(seen["by_option"]["memory_asked"] == "25%", seen["by_option"])

    for node in NODES:
        cluster.kill(node)
    where.daemon.send_signal(signal.SIGKILL)
    where.daemon.wait()
    where.respawn_daemon()
    for node in NODES:
        cluster.start_slurmd(node)
    stage.wait_until(lambda: len(clients(cluster)) == 3, 10, "the jobs attach again")
    cluster.reach(jobs.values(), "COMPLETED")
    for name in set(jobs) - {"bare"}:
        result = json.loads((cluster.folder / f"{name}.out").read_text().splitlines()[-1])
        expect(result["checksum_ok"], (name, result))
    expect("LD_PRELOAD" not in (cluster.folder / "bare.out").read_text(), "bare was managed")


def check_without_heddle(cluster):
    """A word that nobody knows, or a node without heddle: the task runs, and says so."""
    (cluster.folder / "heddle").rename(cluster.folder / "gone")
    for option, environment in (("--heddle-class=batch", {}), ("-s", {"HEDDLE_CLASS": "batch"})):
        done = cluster.call("srun", "--gres=shard:1", option, "echo", "ran", **environment)
        expect("ran" in done.stdout.splitlines() and
               "without heddle" in done.stdout + done.stderr, (option, done))


def check_placing(cluster):
    """Slurm alone puts a job on the first node; the plan's pairs put it beside its best neighbour."""
    pairs = cluster.folder / "pairs"
    pairs.unlink(missing_ok=True)

    def placed(program):
        done = cluster.call("salloc", "--no-shell", "--gres=shard:1", f"--comment=heddle:{program}")
        job = re.search(r"Granted job allocation (\d+)", done.stderr)[1]
        return job, cluster.field(job, "NodeList")

    first, here = placed("vgg16/32")
    second, there = placed("mobilenetv2/1")
    expect({here, there} == set(NODES), "two jobs, two nodes")
    alone, beside = placed("resnet50/32")
    expect(beside == here, "without pairs.sh the job goes as it is: to the first node")
    cluster.call("scancel", alone)
    cluster.reach([alone], "CANCELLED", "COMPLETED")
    cluster.call("sh", EXAMPLES / "pairs.sh", stage.DIST / "share/heddle/jobs/parvagpu", pairs,
                 "vgg16/32", "mobilenetv2/1", "resnet50/32", HEDDLE=str(stage.HEDDLE))
    planned, beside = placed("resnet50/32")
    expect(beside == there, f"the plan's pairs: {pairs.read_text()}")
    pairs.write_text("pair vgg16/32")
    broken, _ = placed("resnet50/32")
    cluster.call("scancel", first, second, planned, broken)


def check(cluster):
    cluster.where.start_daemon("priority", (EXAMPLES / "rules.toml").read_text())
    cluster.up()
    check_refusals(cluster)
    check_jobs(cluster)
    check_without_heddle(cluster)
    check_placing(cluster)


def main():
    tools()
    where = setting.fresh_stage("slurm")
    cluster = Cluster(where)
    try:
        setting.run(lambda: check(cluster), where)
    finally:
        cluster.close()


if __name__ == "__main__":
    main()
