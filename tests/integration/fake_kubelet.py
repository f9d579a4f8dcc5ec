"""The kubelet's side of the device plugin protocol, over its real sockets."""

import threading
from concurrent import futures

import deviceplugin_pb2 as api
import deviceplugin_pb2_grpc as services
import grpc

PATIENCE_S = 20


class Plugin:
    """What the kubelet keeps of a plugin that registered."""

    def __init__(self, kubelet, request):
        self.request = request
        self.channel = grpc.insecure_channel(f"unix://{kubelet.folder / request.endpoint}")
        self.calls = services.DevicePluginStub(self.channel)
        self.health = {}
        self.told = 0

    def watch(self, changed):
        try:
            for answer in self.calls.ListAndWatch(api.Empty(), wait_for_ready=True):
                with changed:
                    self.health = {device.ID: device.health for device in answer.devices}
                    self.told += 1
                    changed.notify_all()
        except (grpc.RpcError, ValueError):  # it ended, or this kubelet did
            pass


class Kubelet(services.RegistrationServicer):
    def __init__(self, folder):
        self.folder = folder
        self.changed = threading.Condition()
        self.refuses, self.refused = "", False
        self.plugins = {}  # by resource
        self.server = None

    def start(self):
        for old in self.folder.iterdir():  # as the real one does
            old.unlink(missing_ok=True)
        self.plugins = {}
        self.server = grpc.server(futures.ThreadPoolExecutor(4))
        services.add_RegistrationServicer_to_server(self, self.server)
        self.server.add_insecure_port(f"unix://{self.folder / 'kubelet.sock'}")
        self.server.start()

    def stop(self):
        self.server.stop(grace=None).wait()
        for plugin in self.plugins.values():
            plugin.channel.close()

    def Register(self, request, context):
        with self.changed:
            if self.refuses:
                self.refused = True
                self.changed.notify_all()
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, self.refuses)
            plugin = self.plugins[request.resource_name] = Plugin(self, request)
            self.changed.notify_all()
        threading.Thread(target=plugin.watch, args=[self.changed], daemon=True).start()
        return api.Empty()

    def wait_until(self, holds, what):
        with self.changed:
            assert self.changed.wait_for(holds, PATIENCE_S), what
