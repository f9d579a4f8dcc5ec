"""torch.profiler (CUPTI) at work while the program runs: outputs, and what it saw launched."""

import collections

from program import finish, rounds
from torch_setting import convolutions, images, pinned, tensor_digest

torch = pinned()
LAUNCHES = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx")


def main():
    model = convolutions().eval()
    total = 0
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.no_grad():
        total = total + model(images(0))
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=activities) as trace:
            for index in rounds():
                total = total + model(images(index))
                torch.cuda.synchronize()
    seen = collections.Counter()
    for event in trace.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            seen["kernels"] += not event.name.startswith(("Memcpy", "Memset"))
        elif event.name in LAUNCHES:
            seen["launches"] += 1
    finish({"total": tensor_digest(total)}, profiled=dict(seen))


main()
