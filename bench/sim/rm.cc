#include "bench/sim/rm.h"

#include <fcntl.h>

#include "bench/sim/rm_kernel.h"
#include "shim/driver/import.h"

namespace heddle::sim {
namespace {

// One H200's context: the first group is for kernels, the others copy.
constexpr uint32_t kEngines[] = {1, 9, 10, 11};
constexpr uint32_t kComputeChannels = 8;
constexpr uint32_t kCopyChannels = 4;
constexpr uint32_t kHopperChannel = 0xc86f;
constexpr uint64_t kDriversSliceUs = 2048;

struct Opened {
  int descriptor = -1;
  rm::Handle client = 0, device = 0, subdevice = 0;
  rm::Handle last = 0x5c000000;
};
Opened opened;

template <class Request>
bool ask(rm::Escape escape, Request& request) {
  return ioctl(opened.descriptor, rm::request_of<Request>(escape), &request) == 0 &&
         request.status == 0;
}

rm::Handle make(rm::Handle parent, uint32_t of_class, void* parameters = nullptr,
                uint32_t size = 0) {
  rm::AllocWithRights request{};
  request.client = opened.client;
  request.parent = parent;
  request.object = ++opened.last;
  request.of_class = of_class;
  request.parameters = reinterpret_cast<uintptr_t>(parameters);
  request.size = size;
  return ask(rm::kAlloc, request) ? request.object : 0;
}

bool open_device() {
  if (opened.subdevice != 0) return true;
  rm::Alloc request{};
  request.of_class = rm::kRootClient;
  if (!ask(rm::kAlloc, request)) return false;
  opened.client = request.object;
  rm::DeviceParameters first{0};
  opened.device = make(opened.client, rm::kDevice, &first, sizeof first);
  opened.subdevice = make(opened.device, rm::kSubdevice);
  return opened.subdevice != 0;
}

bool fill_group(rm::Handle group, uint32_t engine) {
  const uint32_t channels = rm::is_compute(engine) ? kComputeChannels : kCopyChannels;
  for (uint32_t i = 0; i < channels; ++i) {
    if (make(group, kHopperChannel) == 0) return false;
  }
  if (!rm::is_compute(engine)) return true;
  rm::Timeslice slice{kDriversSliceUs};
  rm::Control request{};
  request.client = opened.client;
  request.object = group;
  request.command = rm::kSetTimeslice;
  request.parameters = reinterpret_cast<uintptr_t>(&slice);
  request.size = sizeof slice;
  return ask(rm::kControl, request);
}

// This is our own library and no guest: a constructor is in nobody's way.
__attribute__((constructor)) void answer_myself() {
  constexpr size_t kPlaces = 4;
  void** places[kPlaces];
  const auto answer = reinterpret_cast<void*>(&answer_ioctl);
  const size_t found = shim::find_imports(answer, "ioctl", places, kPlaces);
  for (size_t i = 0; i < found && i < kPlaces; ++i) shim::replace_import(places[i], answer);
}

}  // namespace

bool make_channel_groups(std::vector<rm::Handle>& groups) {
  // A character device, as the real one is. A container may have none.
  if (opened.descriptor < 0) opened.descriptor = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (opened.descriptor < 0) return true;
  if (!open_device()) return false;
  for (const uint32_t engine : kEngines) {
    rm::GroupParameters parameters{0, 0, 0, engine};
    const rm::Handle group = make(opened.device, rm::kChannelGroup, &parameters, sizeof parameters);
    if (group != 0) groups.push_back(group);
    if (group == 0 || !fill_group(group, engine)) {
      free_channel_groups(groups);
      groups.clear();
      return false;
    }
  }
  return true;
}

void free_channel_groups(const std::vector<rm::Handle>& groups) {
  for (const rm::Handle group : groups) {
    rm::Free request{opened.client, opened.device, group, 0};
    ask(rm::kFree, request);
  }
}

}  // namespace heddle::sim
