// What the simulated driver asks of the kernel, as a real one asks NVIDIA's on /dev/nvidiactl, and
// who answers: this library itself. Requests and objects are those of shim/driver/rm_api.h.
//
// Before dlopen() returns, the library puts its own answers into its import of `ioctl`: the real
// kernel is never asked, and whoever patches that import later saves our answers and so talks to
// the simulated GPU.
#pragma once

#include <vector>

#include "shim/driver/rm_api.h"

namespace heddle::sim {

// A context's four channel groups with their 20 channels; the first is for kernels. The first call
// makes client, device and subdevice. None where there is no character device to ask by; false: the
// kernel refused. With the driver's lock held, as is the other.
bool make_channel_groups(std::vector<rm::Handle>& groups);
void free_channel_groups(const std::vector<rm::Handle>& groups);

}  // namespace heddle::sim
