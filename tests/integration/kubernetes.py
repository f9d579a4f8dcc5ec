#!/usr/bin/python3
"""heddle-device-plugin and a kubelet of our own, over the real protocol, from an installed tree."""

import contextlib
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLUGIN, HEDDLE = ROOT / "dist/bin/heddle-device-plugin", ROOT / "dist/bin/heddle"
sys.dont_write_bytecode = True
sys.path.append(str(ROOT / "dist/share/heddle/kubernetes"))
try:
    import deviceplugin_pb2 as api
    import fake_kubelet
    import grpc
except ImportError as error:
    print(f"{error}: tests/setup.sh installs gRPC, cmake --install the plugin")
    sys.exit(77)

GPUS = [f"GPU-{digit * 8}-{digit * 4}-{digit * 4}-{digit * 4}-{digit * 12}" for digit in "0a"]
LATENCY, BATCH = "heddle.io/latency", "heddle.io/batch"


class Host:
    """A folder with what the plugin looks at on a node."""

    def __init__(self, folder):
        self.gpus, self.cdi = folder / "gpus", folder / "heddle.json"
        self.socket, self.plugins = folder / "run/heddle.sock", folder / "device-plugins"
        self.plugins.mkdir()
        self.socket.parent.mkdir()
        for gpu in GPUS:
            self.add_gpu(gpu)
        self.add_gpu("GPU-????????-????-????-????-????????????")  # not looked at yet
        self.write_cdi()
        self.kubelet = fake_kubelet.Kubelet(self.plugins)

    def add_gpu(self, uuid):
        (self.gpus / uuid.replace("?", "x")).mkdir(parents=True)
        (self.gpus / uuid.replace("?", "x") / "information").write_text(
            f"Model: \t\t NVIDIA H200\nGPU UUID: \t {uuid}\n")

    def write_cdi(self):
        subprocess.run([HEDDLE, "--socket", self.socket, "cdi", "--output", self.cdi], check=True,
                       capture_output=True)

    @contextlib.contextmanager
    def plugin(self, *arguments, stderr=None):
        command = ["/usr/bin/python3", PLUGIN, "--gpus", self.gpus, "--cdi", self.cdi,
                   "--kubelet", self.plugins, "--period", "0.02", *arguments]
        process = subprocess.Popen(command, stderr=stderr, text=True)
        try:
            yield process
            process.terminate()
            assert process.wait(20) == 0
            assert not list(self.plugins.glob("heddle-*")), "a plugin that ends leaves no socket"
        finally:
            process.kill()

    def wait_for(self, health, resource=BATCH):
        """Until each GPU of `health` is what it says there."""
        def holds():
            plugin = self.kubelet.plugins.get(resource)
            seen = {}
            for slot, state in (plugin.health if plugin else {}).items():
                seen.setdefault(slot.rpartition("-")[0], set()).add(state)
            return seen == {gpu: {state} for gpu, state in health.items()}
        self.kubelet.wait_until(holds, f"{resource} is not {health}")


def allocate(plugin, *slots):
    request = api.AllocateRequest(container_requests=[
        api.ContainerAllocateRequest(devices_ids=slots)])
    return plugin.calls.Allocate(request, timeout=20).container_responses[0]


def healthy(*gpus):
    return {gpu: "Healthy" for gpu in gpus}


def registers_a_resource_for_each_class(host):
    host.kubelet.start()
    with host.plugin("--latency-slots", "2", "--batch-slots", "3"):
        for resource, slots in ((LATENCY, 2), (BATCH, 3)):
            host.wait_for(healthy(*GPUS), resource)
            plugin = host.kubelet.plugins[resource]
            assert plugin.request.version == "v1beta1"
            assert len(plugin.health) == slots * len(GPUS)
            assert max(map(len, plugin.health)) <= 63
            assert plugin.calls.GetDevicePluginOptions(api.Empty()) == plugin.request.options
            assert not plugin.request.options.pre_start_required
    host.kubelet.stop()


def registers_again_when_the_kubelet_restarts(host):
    with host.plugin() as process:  # before there is one
        for _ in range(3):
            host.kubelet.start()
            host.wait_for(healthy(*GPUS), LATENCY)
            host.wait_for(healthy(*GPUS))
            host.kubelet.stop()
        assert process.poll() is None


def registers_once_a_kubelet_takes_it(host):
    host.kubelet.start()
    host.kubelet.refuses = "not now"
    with host.plugin():
        host.kubelet.wait_until(lambda: host.kubelet.refused, "no attempt")
        host.kubelet.refuses = ""
        host.wait_for(healthy(*GPUS))
    host.kubelet.stop()


def allocates_a_thousand_times(host):
    host.kubelet.start()
    with host.plugin():
        for resource in (LATENCY, BATCH):
            host.wait_for(healthy(*GPUS), resource)
            plugin = host.kubelet.plugins[resource]
            slots = sorted(plugin.health)
            for i in range(500):
                slot = slots[i % len(slots)]
                answer = allocate(plugin, slot)
                assert [device.name for device in answer.cdi_devices] == [
                    f"nvidia.com/gpu={slot.rpartition('-')[0]}",
                    f"heddle/client={resource.partition('/')[2]}"]
                assert not answer.envs and not answer.mounts
        both = allocate(plugin, *(f"{gpu}-0" for gpu in GPUS), f"{GPUS[0]}-1")
        assert [device.name for device in both.cdi_devices] == [
            *(f"nvidia.com/gpu={gpu}" for gpu in GPUS), "heddle/client=batch"]
        try:
            allocate(plugin, "GPU-none-0")
            raise AssertionError("a GPU that is not here was given")
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    host.kubelet.stop()


def gives_a_label_with_its_slots(host):
    host.kubelet.start()
    with host.plugin("--label", "quarter=4"):
        resource = "heddle.io/quarter"
        host.wait_for(healthy(*GPUS), resource)
        plugin = host.kubelet.plugins[resource]
        assert len(plugin.health) == 4 * len(GPUS)
        answer = allocate(plugin, f"{GPUS[0]}-3")
        assert dict(answer.envs) == {"HEDDLE_LABEL": "quarter"}
        assert [device.name for device in answer.cdi_devices] == [
            f"nvidia.com/gpu={GPUS[0]}", "heddle/client=batch"]
    host.kubelet.stop()
    for wrong in ("batch=1", "Quarter=1", "quarter", "quarter=some"):
        said = subprocess.run(["/usr/bin/python3", PLUGIN, "--label", wrong], timeout=10, text=True,
                              capture_output=True)
        assert said.returncode == 2 and "--label" in said.stderr, said


def names_gpus_for_nvidias_runtime_where_they_have_no_cdi_devices(host):
    host.kubelet.start()
    with host.plugin("--gpu-kind", ""):
        host.wait_for(healthy(*GPUS))
        answer = allocate(host.kubelet.plugins[BATCH], f"{GPUS[1]}-0", f"{GPUS[0]}-0")
        assert dict(answer.envs) == {"NVIDIA_VISIBLE_DEVICES": ",".join(GPUS)}
        assert [device.name for device in answer.cdi_devices] == ["heddle/client=batch"]
    host.kubelet.stop()


def prefers_gpus_with_most_slots_left(host):
    def asked(available, required, size):
        request = api.PreferredAllocationRequest(container_requests=[
            api.ContainerPreferredAllocationRequest(
                available_deviceIDs=available, must_include_deviceIDs=required,
                allocation_size=size)])
        answer = host.kubelet.plugins[BATCH].calls.GetPreferredAllocation(request)
        return list(answer.container_responses[0].deviceIDs)

    host.kubelet.start()
    with host.plugin():
        host.wait_for(healthy(*GPUS))
        first, second = ([f"{gpu}-{slot}" for slot in range(4)] for gpu in GPUS)
        assert asked(first[:1] + second, [], 1) == second[:1]
        assert set(asked(first[:1] + second, [], 2)) == {first[0], second[0]}
        assert asked(first + second, first[2:3], 2) == [first[2], second[0]]
        assert len(asked(first + second, [], 9)) == 8
    host.kubelet.stop()


def tells_what_a_pod_would_miss(host):
    host.kubelet.start()
    ill = {gpu: "Unhealthy" for gpu in GPUS}
    with host.plugin():  # no heddled listens
        host.wait_for(healthy(*GPUS))
        shutil.rmtree(host.gpus / GPUS[0])
        host.wait_for({GPUS[0]: "Unhealthy", **healthy(GPUS[1])})
        host.add_gpu(GPUS[0])
        host.wait_for(healthy(*GPUS))
        host.cdi.unlink()
        host.wait_for(ill)
        host.write_cdi()
        host.wait_for(healthy(*GPUS))
    host.kubelet.stop()


def waits_for_heddled_where_it_was_told_to(host):
    host.kubelet.start()
    with host.plugin("--need-daemon"):
        host.wait_for({gpu: "Unhealthy" for gpu in GPUS})
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as daemon:
            daemon.bind(str(host.socket))
            daemon.listen(4096)  # nobody accepts
            host.wait_for(healthy(*GPUS))
        host.wait_for({gpu: "Unhealthy" for gpu in GPUS})
    host.kubelet.stop()


def many_watches_leave_threads_for_other_calls(host):
    host.kubelet.start()
    with host.plugin():
        host.wait_for(healthy(*GPUS))
        plugin = host.kubelet.plugins[BATCH]
        watches = []
        for _ in range(12):
            watches.append(plugin.calls.ListAndWatch(api.Empty(), timeout=20))
            assert len(next(watches[-1]).devices) == 8  # the newest is always answered
        assert allocate(plugin, f"{GPUS[0]}-0").cdi_devices
        assert not list(watches[0]), "the oldest ended, and says so"
        shutil.rmtree(host.gpus / GPUS[0])
        assert next(watches[-1]).devices, "the newest goes on"
    host.kubelet.stop()


def says_that_no_gpu_is_listed(host):
    shutil.rmtree(host.gpus)
    with host.plugin(stderr=subprocess.PIPE) as process:
        line = process.stderr.readline()
        assert f"no GPU is listed in {host.gpus}" in line, line


def says_what_to_install_without_grpc(host):
    (host.plugins / "grpc.py").write_text("raise ImportError")
    done = subprocess.run(["/usr/bin/python3", PLUGIN, "--help"], capture_output=True, text=True,
                          timeout=20, env={"PYTHONPATH": str(host.plugins)})
    assert done.returncode == 1 and "install python3-grpcio" in done.stderr, done
    assert "Traceback" not in done.stderr, done


for check in (registers_a_resource_for_each_class, registers_again_when_the_kubelet_restarts,
              registers_once_a_kubelet_takes_it, allocates_a_thousand_times,
              gives_a_label_with_its_slots,
              names_gpus_for_nvidias_runtime_where_they_have_no_cdi_devices,
              prefers_gpus_with_most_slots_left, tells_what_a_pod_would_miss,
              waits_for_heddled_where_it_was_told_to, many_watches_leave_threads_for_other_calls,
              says_that_no_gpu_is_listed, says_what_to_install_without_grpc):
    print(f"plugin {check.__name__}", flush=True)
    with tempfile.TemporaryDirectory(prefix="heddle-k8s-") as folder:
        check(Host(pathlib.Path(folder)))
