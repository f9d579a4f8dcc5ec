#!/usr/bin/env python3
"""examples/slurm under a real slurmctld with two slurmd, on the simulated GPU: what jobs ask for is
what they get, a plan places them, and neither slurmd's nor heddled's death loses one. Rules by
cgroup are tried where Slurm can make cgroups: as root, with cgroup v1's freezer mounted."""

import contextlib
import ctypes
import os
import pathlib
import pwd
import re
import shutil
import socket
import subprocess
import sys
from concurrent import futures

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
SlurmctldHost={host}(127.0.0.1)
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


def is_whole(hierarchy):
    """Whether its root is that of /proc/PID/cgroup: not so in a container that shares the host's
    cgroup namespace, where rules see other paths than those made here."""
    mounts = [line.split() for line in pathlib.Path("/proc/self/mountinfo").open()]
    return any(mount[3:5] == ["/", str(hierarchy)] for mount in mounts)


def can_make_cgroups():
    return os.geteuid() == 0 and os.access(FREEZER / "tasks", os.W_OK) and is_whole(FREEZER)


class Cluster:
    def __init__(self, where, nodes=NODES, cgroups=None):
        self.where, self.folder, self.daemons, self.names = where, where.folder, {}, nodes
        shutil.rmtree(self.folder)
        self.folder.mkdir()
        self.cgroups = can_make_cgroups() if cgroups is None else cgroups
        where.env |= {"SLURM_CONF": str(self.folder / "slurm.conf"), "SLURM_EXIT_ERROR": "1",
                      "HEDDLE_SLURM_PAIRS": str(self.folder / "pairs")}

    def wrapper(self):
        """The simulated GPU, through the same command line as a real one."""
        return f'#!/bin/sh\nshift\nexec {stage.HEDDLE} run --sim "$@"\n'

    def write_files(self):
        folder, ports = self.folder, free_ports(1 + len(self.names))
        wrapper = folder / "heddle"
        wrapper.write_text(self.wrapper())
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
            proctrack="cgroup" if self.cgroups else "linuxproc", nodes=",".join(self.names))
        for node, port in zip(self.names, ports[1:]):
            config += (f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} "
                       f"CPUs=4 Gres=gpu:1,shard:2 Feature={node}\n")
        for name, text in {
                "slurm.conf": config, "plugstack.conf": f"optional {plugin} heddle={wrapper}\n",
                "gres.conf": "AutoDetect=off\nName=gpu File=/dev/zero\nName=shard Count=2\n",
                "cgroup.conf": "CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\n"}.items():
            (folder / name).write_text(text)

    def start(self, name, *command):
        log = open(self.folder / f"{name}.log", "ab")
        with log:
            self.daemons[name] = subprocess.Popen(command, env=self.where.env, stdout=log,
                                                  stderr=log)

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
        return said.returncode == 0 and said.stdout.split() == ["idle"] * len(self.names)

    def up(self):
        self.write_files()
        self.start("slurmctld", "slurmctld", "-D")
        for node in self.names:
            self.start(node, "slurmd", "-D", "-N", node)
        stage.wait_until(self.ready, 20, "the nodes of Slurm are idle")

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
        try:
            self.call("scancel", "-u", str(os.geteuid()), check=False)
            stage.wait_until(lambda: not self.call("squeue", "-h", check=False).stdout, 10,
                             "Slurm has no job")
        finally:
            for name in self.daemons:
                self.kill(name)
            for node in self.names:  # cgroups of cgroup v1, which slurmd leaves
                for folder, _, _ in os.walk(FREEZER / f"slurm_{node}", topdown=False):
                    os.rmdir(folder)


def check_refusals(cluster):
    """At submission, and the text names the remedy."""
    for option, remedy in (("--heddle-class=turbo", "say --heddle-class=latency, or batch"),
                           ("--heddle-memory=20GB", "such as --heddle-memory=20GiB"),
                           ("--heddle-memory=101%", "or 25%"),
                           ("--heddle-memory=0.5MiB", "or 25%")):
        done = cluster.call("sbatch", option, "--wrap", "true", check=False)
        expect(done.returncode != 0 and remedy in done.stderr, (option, done))


def check_jobs(cluster):
    """By the options and by the TaskProlog; slurmd and heddled die while the jobs run."""
    where, enough = cluster.where, cluster.folder / "enough"
    # The simulated GPU is a process of its first client: with a job's cgroup it would end.
    os.environ.update(where.env)
    expect(ctypes.CDLL(str(stage.SIM / "libcuda.so.1")).cuInit(0) == 0, "no simulated GPU")

    def demos(role):  # each fails if a result is wrong
        return (f"until [ -e {enough} ]; do {stage.DEMO} {role} --seconds 1 --kernel-ms 1 || exit; "
                "done")

    jobs = {
        "by_option": cluster.submit("by_option", "--heddle-class=latency", "--heddle-memory=25%",
                                    command=demos("latency"), HEDDLE_LABEL="by_option"),
        "by_prolog": cluster.submit("by_prolog", command=demos("batch"), HEDDLE_CLASS="batch",
                                    HEDDLE_LABEL="by_prolog"),
        "by_partition": cluster.submit("by_partition", "-p", "training", command=demos("batch"),
                                       HEDDLE_LABEL="by_partition"),
        "bare": cluster.submit("bare", command="env")}

    def attached():
        now = {client["label"]: client for client in where.heddle("ps")["clients"]}
        return now if set(now) == set(jobs) - {"bare"} else None

    seen = stage.wait_until(attached, 20, "the jobs attach")
    top = 1 if cluster.cgroups else 0  # by the rule, or root's own
    for label, priority in (("by_option", top), ("by_prolog", 9), ("by_partition", 9)):
        expect(seen[label]["priority"] == priority, seen[label])
        if cluster.cgroups:
            expect(seen[label]["rule"] == "slurm job, cgroup v1", seen[label])
    expect(seen["by_option"]["memory_asked"] == "25%", seen["by_option"])

    for node in NODES:
        cluster.kill(node)
    where.daemon.kill()
    where.daemon.wait()
    where.respawn_daemon()
    for node in NODES:
        cluster.start(node, "slurmd", "-D", "-N", node)
    stage.wait_until(attached, 20, "the jobs attach again")
    enough.touch()
    cluster.reach(jobs.values(), "COMPLETED")
    for name, job in jobs.items():
        expect(cluster.field(job, "Restarts") == "0", f"{name} began twice")
    expect("LD_PRELOAD" not in (cluster.folder / "bare.out").read_text(), "bare was managed")


def check_rule_of_v2(cluster):
    """A process where Slurm puts jobs under cgroup v2; this Slurm makes cgroups of v1."""
    root = next((r for r in (FREEZER.parent / "unified", FREEZER.parent)
                 if os.access(r / "cgroup.procs", os.W_OK) and is_whole(r)), None)
    if root is None:
        return
    job = root / "system.slice/heddle1_slurmstepd.scope/job_7/step_0/user"
    job.mkdir(parents=True, exist_ok=True)
    try:
        done = cluster.call("sh", "-c", f"echo 0 >{job}/cgroup.procs && exec "
                            f"{stage.HEDDLE} run --class=latency --sim -- true")
        expect("Q1, rule slurm job (" in done.stderr, done)
    finally:
        with contextlib.suppress(OSError):  # system.slice may be others', too
            for folder in (job, *job.parents):
                folder.rmdir()


def check_environment(cluster):
    """The plugin and the TaskProlog give a task what `heddle run` gives it."""
    def given(*command, **environment):
        said = cluster.call(*command, "env", **environment).stdout
        entries = (line.split("=", 1) for line in said.splitlines() if "=" in line)
        return {name: value for name, value in entries
                if re.match("LD_|CUDA_DEVICE|HEDDLE_(?!CLASS)|SLURM_JOB_ID", name)}

    wanted = given(stage.HEDDLE, "run", "-q", "--sim", "--class=batch", "--memory=1GiB", "--")
    for options, environment in (
            (["--heddle-class=batch", "--heddle-memory=1GiB"], {}),
            ([], {"HEDDLE_CLASS": "batch", "HEDDLE_MEMORY": "1GiB"})):
        task = given("srun", "--gres=shard:1", *options, **environment)
        wanted["HEDDLE_RUN"] = f"slurm.{task.pop('SLURM_JOB_ID')}"
        expect(task == wanted, (options, task, wanted))


def check_without_heddle(cluster):
    """A class that heddle does not know, a node without heddle, or one whose heddle does not end:
    the task runs, and says so."""
    def runs(*options, **environment):
        done = cluster.call("srun", "--gres=shard:1", *options, "echo", "ran", **environment)
        said = done.stdout + done.stderr
        expect("ran" in done.stdout.splitlines() and "without heddle" in said, (options, done))
        return said

    def both_run():
        with futures.ThreadPoolExecutor() as pool:
            by_plugin = pool.submit(runs, "--heddle-class=batch")
            runs(HEDDLE_CLASS="batch")
            by_plugin.result()

    said = runs(HEDDLE_CLASS="turbo")
    expect("{latency,batch}" in said, said)
    heddle = cluster.folder / "heddle"
    heddle.rename(cluster.folder / "moved")
    both_run()
    heddle.write_text("#!/bin/sh\nenv -0\nexec >&-\nexec sleep 600\n")
    heddle.chmod(0o755)
    both_run()


def check_placing(cluster, planned, planning):
    """The plan's pairs put a job beside its best neighbour; Slurm alone takes the first node."""
    pairs = cluster.folder / "pairs"

    def submitted(program, command="true"):
        return cluster.submit("placed", f"--comment=heddle:{program}", command=command)

    def places(state, *jobs):
        cluster.reach(jobs, state)
        return [cluster.field(job, "NodeList") for job in jobs]

    expect(planning.wait(30) == 0, "pairs.sh failed")
    residents = [submitted(program, "sleep 600") for program in ("vgg16/32", "mobilenetv2/1")]
    here, there = places("RUNNING", *residents)
    expect({here, there} == set(NODES), "two jobs, two nodes")
    expect(places("COMPLETED", submitted("vgg16/32")) == [here],
           "without a plan the job goes as it is: to the first node")
    pairs.write_text(planned.read_text())
    by_plan = submitted("vgg16/32")
    pairs.write_text("pair vgg16/32")
    by_broken_file = submitted("vgg16/32")
    expect(places("COMPLETED", by_plan, by_broken_file) == [there, here], planned.read_text())


def check(cluster):
    cluster.where.start_daemon("priority", (EXAMPLES / "rules.toml").read_text())
    cluster.up()
    planned = cluster.folder / "planned"
    planning = subprocess.Popen(
        ["sh", EXAMPLES / "pairs.sh", stage.DIST / "share/heddle/jobs/parvagpu", planned,
         "vgg16/32", "mobilenetv2/1"], env=cluster.where.env | {"HEDDLE": str(stage.HEDDLE)})
    check_refusals(cluster)
    check_jobs(cluster)
    check_rule_of_v2(cluster)
    check_environment(cluster)
    check_without_heddle(cluster)
    check_placing(cluster, planned, planning)


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
