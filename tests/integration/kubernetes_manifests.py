#!/usr/bin/python3
"""What the manifests of examples/kubernetes name is there: mounts, programs, options, paths of the
CDI specification. Where there is kubectl, kustomize also renders them."""

import json
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER, DIST = ROOT / "examples/kubernetes", ROOT / "dist"
try:
    import yaml
except ImportError:
    print("no python3-yaml here: tests/setup.sh installs it")
    sys.exit(77)
if not (DIST / "bin/heddle-device-plugin").exists():
    print("dist/ has no heddle-device-plugin: protobuf-compiler-grpc, then cmake --install")
    sys.exit(77)

TREE = "/opt/heddle"


def said(*command, **options):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=60,
                          **options)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


def load(name):
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


POD = load("daemonset.yaml")[0]["spec"]["template"]
CONTAINERS = {one["name"]: one for one in POD["spec"]["initContainers"] + POD["spec"]["containers"]}


def mounted(container):
    return {one["mountPath"]: one for one in CONTAINERS[container]["volumeMounts"]}


def lies_in(path, places):
    return any(pathlib.PurePath(path).is_relative_to(place) for place in places)


def each_mount_has_its_volume_and_its_path_of_the_host():
    volumes = {one["name"]: one for one in POD["spec"]["volumes"]}
    used = set()
    for name in CONTAINERS:
        for path, mount in mounted(name).items():
            used.add(mount["name"])
            host = volumes[mount["name"]].get("hostPath", {"path": path})["path"]
            assert host == path, f"{name}: specifications name {host}, which is at {path} there"
    assert used == set(volumes), used ^ set(volumes)


def each_program_is_in_the_tree_and_knows_its_options():
    for name, container in CONTAINERS.items():
        program, *words = container["command"] + container.get("args", [])
        tree = "/heddle" if name == "install" else TREE
        assert tree == "/heddle" or tree in mounted(name), name
        here = DIST / pathlib.PurePath(program).relative_to(tree)
        assert here.exists(), program
        if name == "install":
            continue
        commands = [word for word in words[:1] if not word.startswith("-")]
        known = said(here, *commands, "--help")
        for word in words:
            option = re.match(r"--[a-z-]+", word)
            assert not option or re.search(rf"{option[0]}\b", known), (name, word)


def specification_names_what_the_daemonset_makes():
    specification = json.loads(said(DIST / "bin/heddle", "cdi", env={}))  # where heddled listens
    edits = specification["containerEdits"]
    hosts = [one["hostPath"] for one in edits["mounts"]] + [one["path"] for one in edits["hooks"]]
    for host in (one.replace(str(DIST.resolve()), TREE) for one in hosts):
        assert lies_in(host, mounted("heddled")), f"nobody makes {host} on the node"
    given = {one["name"] for one in specification["devices"]}
    asked = [resource for pod in load("pods.yaml") for resource in re.findall(
        r"heddle\.io/(\w+)", json.dumps(pod))]
    assert len(asked) == 2 and set(asked) <= given, (asked, given)


def plugin_finds_its_paths():
    known = " ".join(said(DIST / "bin/heddle-device-plugin", "--help").split())
    paths = re.findall(r"default: (/(?!proc)\S+)\)", known)
    assert len(paths) == 2, known
    for path in paths:
        assert lies_in(path, mounted("device-plugin")), path
    assert not mounted("device-plugin")["/var/lib/kubelet/device-plugins"].get("readOnly")


def heddled_takes_its_configuration():
    said(DIST / "bin/heddled", "--check", "--config", FOLDER / "heddled.toml")


def monitor_finds_the_port():
    monitor = load("monitoring/podmonitor.yaml")[0]["spec"]
    wanted = monitor["selector"]["matchLabels"].items()
    assert wanted <= POD["metadata"]["labels"].items()
    ports = {port["name"] for port in CONTAINERS["metrics"]["ports"]}
    assert {one["port"] for one in monitor["podMetricsEndpoints"]} <= ports


def kustomize_renders_them():
    if not shutil.which("kubectl"):
        print("no kubectl here: kustomize was not asked")
        return
    made = {(one["kind"], one["metadata"]["name"]): one
            for folder in (FOLDER, FOLDER / "monitoring")
            for one in yaml.safe_load_all(said("kubectl", "kustomize", folder))}
    kinds = {kind for kind, _ in made}
    assert kinds == {"Namespace", "ConfigMap", "DaemonSet", "PodMonitor"}, kinds
    pod = made["DaemonSet", "heddle"]["spec"]["template"]["spec"]
    named = [one["configMap"]["name"] for one in pod["volumes"] if "configMap" in one]
    assert ("ConfigMap", *named) in made, named
    dashboard = made["ConfigMap", "heddle-dashboard"]["data"]["heddle.json"]
    assert json.loads(dashboard) == json.loads((ROOT / "examples/grafana/heddle.json").read_text())
    assert {one["metadata"].get("namespace", "heddle-system") for one in made.values()} == {
        made["Namespace", "heddle-system"]["metadata"]["name"]}


for check in (each_mount_has_its_volume_and_its_path_of_the_host,
              each_program_is_in_the_tree_and_knows_its_options,
              specification_names_what_the_daemonset_makes, plugin_finds_its_paths,
              heddled_takes_its_configuration, monitor_finds_the_port, kustomize_renders_them):
    print(check.__name__, flush=True)
    check()
