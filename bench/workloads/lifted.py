"""One kernel of a captured CUDA graph, lifted into a graph of many repetitions of itself: a steady
load for pairs.py. ctypes on libcuda, CUDA 13.0's layouts; a driver's error is a GpuError that
names the call and the code.
"""

import ctypes
import time
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_ulonglong, c_void_p

CHUNK_US = 2000  # of one launch of a lifted graph, alone
STUCK_S = 8  # a launch that takes longer will never end
KERNEL_NODE = 0  # CU_GRAPH_NODE_TYPE_KERNEL
SM_RESOURCE = 1  # CU_DEV_RESOURCE_TYPE_SM
STATIC_SMEM, REGISTERS = 1, 4  # CUfunction_attribute
NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
WITH_DEFAULT_STREAM = 1  # CU_GREEN_CTX_DEFAULT_STREAM
CLUSTER = 4  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
NOT_READY = 600
ENDS_THE_CONTEXT = (700, 702, 710, 714, 715, 716, 717, 718, 719)  # illegal address to launch failed
GROUP_SMS = 8  # as heddle splits a device
TIMED_REPEATS = 20  # to find out how long a kernel takes


class GpuError(Exception):
    """What the driver refused: the call and the code's name."""


class Stuck(GpuError):
    """A launch that does not end, or an error that ends the context: both happen to kernels that
    run out of their order in the model. The process cannot go on, not even be torn down in
    order."""


class KernelParams(ctypes.Structure):  # CUDA_KERNEL_NODE_PARAMS_v2, 72 bytes
    _fields_ = [("func", c_void_p), ("grid", c_uint * 3), ("block", c_uint * 3),
                ("smem", c_uint), ("params", c_void_p), ("extra", c_void_p), ("kern", c_void_p),
                ("ctx", c_void_p)]


class Resource(ctypes.Structure):  # CUdevResource_v1, 144 bytes
    _fields_ = [("type", c_int), ("padding", ctypes.c_ubyte * 92), ("sm_count", c_uint),
                ("rest", ctypes.c_ubyte * 44)]


assert ctypes.sizeof(KernelParams) == 72 and ctypes.sizeof(Resource) == 144

P = c_void_p
CALLS = {
    "cuInit": (c_uint,),
    "cuDeviceGet": (P, c_int),
    "cuCtxGetCurrent": (P,),
    "cuCtxSetCurrent": (P,),
    "cuDevicePrimaryCtxRetain": (P, c_int),
    "cuDeviceGetDevResource": (c_int, P, c_int),
    "cuDevSmResourceSplitByCount": (P, P, P, P, c_uint, c_uint),
    "cuDevResourceGenerateDesc": (P, P, c_uint),
    "cuGreenCtxCreate": (P, P, c_int, c_uint),
    "cuCtxFromGreenCtx": (P, P),
    "cuGraphGetNodes": (P, P, P),
    "cuGraphNodeGetType": (P, P),
    "cuGraphKernelNodeGetParams_v2": (P, P),
    "cuGraphKernelNodeSetParams_v2": (P, P),
    "cuGraphKernelNodeGetAttribute": (P, c_int, P),
    "cuGraphKernelNodeCopyAttributes": (P, P),
    "cuGraphCreate": (P, c_uint),
    "cuGraphAddKernelNode_v2": (P, P, P, c_size_t, P),
    "cuGraphInstantiateWithFlags": (P, P, c_ulonglong),
    "cuGraphUpload": (P, P),
    "cuGraphLaunch": (P, P),
    "cuGraphDestroy": (P,),
    "cuGraphExecDestroy": (P,),
    "cuKernelGetFunction": (P, P),
    "cuFuncGetName": (P, P),
    "cuFuncGetAttribute": (P, c_int, P),
    "cuOccupancyMaxActiveBlocksPerMultiprocessor": (P, P, c_int, c_size_t),
    "cuStreamCreate": (P, c_uint),
    "cuEventCreate": (P, c_uint),
    "cuEventRecord": (P, P),
    "cuEventQuery": (P,),
    "cuEventElapsedTime_v2": (P, P, P),
    "cuProfilerStart": (),
    "cuProfilerStop": (),
}


class Driver:
    """The calls above; any code but success, and those allowed, is raised by name."""

    def __init__(self, path="libcuda.so.1"):
        try:
            self.library = ctypes.CDLL(path)
        except OSError as error:
            raise GpuError(f"{path} cannot be loaded: {error}; this needs a host with an NVIDIA "
                           "GPU and its driver") from error
        for name, arguments in CALLS.items():
            try:
                getattr(self.library, name).argtypes = arguments
            except AttributeError as error:
                raise GpuError(f"{path} has no {name}; a driver of CUDA 13.0 has") from error
        self.library.cuGetErrorName.argtypes = (c_int, P)

    def name_of(self, code):
        text = c_char_p()
        self.library.cuGetErrorName(code, byref(text))
        return text.value.decode() if text.value else f"error {code}"

    def call(self, name, *arguments, allowed=()):
        code = getattr(self.library, name)(*arguments)
        if code != 0 and code not in allowed:
            kind = Stuck if code in ENDS_THE_CONTEXT else GpuError
            raise kind(f"{name}: {self.name_of(code)}")
        return code

    def get(self, name, *arguments, kind=c_void_p):
        """For calls whose first parameter is what they return."""
        out = kind()
        self.call(name, byref(out), *arguments)
        return out.value


class Kernel:
    """A kernel node of a graph that must stay alive. `facts` goes into the result."""

    def __init__(self, node, params, function, facts):
        self.node, self.params, self.function, self.facts = node, params, function, facts

    @property
    def key(self):
        f = self.facts
        return f["name"], tuple(f["grid"]), tuple(f["block"]), f["dynamic_smem_bytes"]


class Lifted:
    """A graph of `repeats` of one kernel, one after the other, and the stream it runs on."""

    def __init__(self, executable, stream, repeats):
        self.executable, self.stream, self.repeats = executable, stream, repeats


class Gpu:
    """PLACES are where a kernel may run: all SMs, or the first or second half of their groups."""

    def __init__(self, library="libcuda.so.1"):
        self.driver = Driver(library)
        self.driver.call("cuInit", 0)
        self.device = self.driver.get("cuDeviceGet", 0, kind=c_int)
        self.context = self.driver.get("cuCtxGetCurrent")
        if not self.context:
            self.context = self.driver.get("cuDevicePrimaryCtxRetain", self.device)
            self.driver.call("cuCtxSetCurrent", self.context)
        self.streams = [self.driver.get("cuStreamCreate", NON_BLOCKING) for _ in range(2)]
        self.events = []
        self.sms, self.contexts = self.split()
        self.clock = time.monotonic

    def split(self):
        """SMs of each place, and the context of a node there. Made before anything is in flight:
        cuGreenCtxCreate waits for what runs."""
        d = self.driver
        whole, count, rest = Resource(), c_uint(), Resource()
        d.call("cuDeviceGetDevResource", self.device, byref(whole), SM_RESOURCE)
        d.call("cuDevSmResourceSplitByCount", None, byref(count), byref(whole), None, 0, GROUP_SMS)
        groups = (Resource * count.value)()
        d.call("cuDevSmResourceSplitByCount", groups, byref(count), byref(whole), byref(rest), 0,
               GROUP_SMS)
        all_groups = [groups[i] for i in range(count.value)]
        halves = {"first": all_groups[:count.value // 2], "second": all_groups[count.value // 2:]}
        if rest.type == SM_RESOURCE and rest.sm_count > 0:
            halves["second"].append(rest)
        self.groups = count.value
        sms, contexts = {"all": whole.sm_count}, {"all": self.context}
        for place, chosen in halves.items():
            array = (Resource * len(chosen))(*chosen)
            description = d.get("cuDevResourceGenerateDesc", array, len(chosen))
            green = d.get("cuGreenCtxCreate", description, self.device, WITH_DEFAULT_STREAM)
            contexts[place] = d.get("cuCtxFromGreenCtx", green)
            sms[place] = sum(group.sm_count for group in chosen)
        return sms, contexts

    def kernels(self, graph):
        """Of a CUgraph, each kernel in each launch configuration once, with how often it is
        there."""
        found = {}
        for kernel in self.kernel_nodes(graph):
            found.setdefault(kernel.key, kernel).facts["nodes"] += 1
        return list(found.values())

    def kernel_nodes(self, graph):
        """Each kernel node of a CUgraph, in the order it was captured in."""
        d, count = self.driver, c_size_t()
        d.call("cuGraphGetNodes", graph, None, byref(count))
        nodes = (c_void_p * count.value)()
        d.call("cuGraphGetNodes", graph, nodes, byref(count))
        for index in range(count.value):
            kind = c_int()
            d.call("cuGraphNodeGetType", nodes[index], byref(kind))
            if kind.value == KERNEL_NODE:
                yield self.kernel(nodes[index], index)

    def kernel(self, node, index):
        d, params = self.driver, KernelParams()
        d.call("cuGraphKernelNodeGetParams_v2", node, byref(params))
        function = params.func or d.get("cuKernelGetFunction", params.kern)
        threads = params.block[0] * params.block[1] * params.block[2]
        cluster = (c_uint * 16)()  # CUlaunchAttributeValue, 64 bytes
        d.call("cuGraphKernelNodeGetAttribute", node, CLUSTER, byref(cluster))

        def attribute(which):
            out = c_int()
            d.call("cuFuncGetAttribute", byref(out), which, function)
            return out.value

        name = d.get("cuFuncGetName", function, kind=c_char_p)
        facts = {"node": index, "nodes": 0, "name": name.decode(errors="replace"),
                 "grid": list(params.grid), "block": list(params.block),
                 "grid_blocks": params.grid[0] * params.grid[1] * params.grid[2],
                 "block_threads": threads, "registers": attribute(REGISTERS),
                 "static_smem_bytes": attribute(STATIC_SMEM), "dynamic_smem_bytes": params.smem,
                 "cluster": list(cluster[:3]),
                 "blocks_per_sm": d.get("cuOccupancyMaxActiveBlocksPerMultiprocessor", function,
                                        threads, params.smem, kind=c_int)}
        return Kernel(node, params, function, facts)

    def lift(self, kernel, place, repeats, stream):
        """`stream` is 0 or 1: of two that run beside each other each has its own."""
        d = self.driver
        moved = None
        if place != "all":
            if not kernel.params.kern:
                raise GpuError(f"{kernel.facts['name']}: has no CUkernel, so it cannot be put on "
                               "chosen SMs")
            moved = KernelParams.from_buffer_copy(kernel.params)
            moved.func, moved.ctx = None, self.contexts[place]
        graph, last = d.get("cuGraphCreate", 0), None
        try:
            for _ in range(repeats):
                node = c_void_p()
                before = (c_void_p * 1)(last)
                d.call("cuGraphAddKernelNode_v2", byref(node), graph, before if last else None,
                       1 if last else 0, byref(kernel.params))
                # Between contexts the driver copies no attributes: the node moves afterwards.
                d.call("cuGraphKernelNodeCopyAttributes", node, kernel.node)
                if moved:
                    d.call("cuGraphKernelNodeSetParams_v2", node, byref(moved))
                last = node.value
            executable = d.get("cuGraphInstantiateWithFlags", graph, 0)
        finally:
            d.call("cuGraphDestroy", graph)
        d.call("cuGraphUpload", executable, self.streams[stream])
        return Lifted(executable, self.streams[stream], repeats)

    def drop(self, lifted):
        self.driver.call("cuGraphExecDestroy", lifted.executable)

    def mark(self, stream):
        event = self.events.pop() if self.events else self.driver.get("cuEventCreate", 0)
        self.driver.call("cuEventRecord", event, stream)
        return event

    def launch(self, lifted):
        """Launches it once; the event of its end."""
        self.driver.call("cuGraphLaunch", lifted.executable, lifted.stream)
        return self.mark(lifted.stream)

    def ended(self, event):
        return self.driver.call("cuEventQuery", event, allowed=(NOT_READY,)) == 0

    def us(self, begin, end):
        ms = c_float()
        self.driver.call("cuEventElapsedTime_v2", byref(ms), begin, end)
        return ms.value * 1e3

    def forget(self, event):
        self.events.append(event)

    def wait(self, event):
        since = self.clock()
        while not self.ended(event):
            if self.clock() - since > STUCK_S:
                raise Stuck(f"a launch did not end in {STUCK_S} s")

    def timed(self, kernel):
        """Microseconds of one repetition alone on all SMs, behind one launch to warm up."""
        lifted = self.lift(kernel, "all", TIMED_REPEATS, 0)
        warm = self.launch(lifted)
        begin = self.mark(lifted.stream)
        end = self.launch(lifted)
        self.wait(end)
        us = self.us(begin, end) / TIMED_REPEATS
        for event in (warm, begin, end):
            self.forget(event)
        self.drop(lifted)
        return us
