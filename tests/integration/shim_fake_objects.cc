// The objects that a real driver makes by requests of its kernel module. The application answers
// those (shim_stop_client.cc): its ioctl() comes before the C library's.
#include <fcntl.h>

#include "shim/driver/rm_api.h"
#include "tests/integration/shim_fake_driver.h"

namespace {

using namespace heddle;

constexpr rm::Handle kClient = 1, kDevice = 2, kSubdevice = 3, kGroup = 10;
constexpr uint32_t kGr0 = 1, kHopperChannel = 0xc86f;

int file = -1;

template <class Request>
int request(rm::Escape escape, Request request) {
  return ioctl(file, rm::request_of<Request>(escape), &request);
}

int alloc(rm::Handle client, rm::Handle parent, rm::Handle object, uint32_t of_class,
          const void* parameters = nullptr) {
  return request(rm::kAlloc, rm::Alloc{client, parent, object, of_class,
                                       reinterpret_cast<uint64_t>(parameters), 0, 0});
}

}  // namespace

// Nothing before it is called. With so many channels.
FAKE int fake_make_context(int channels) {
  file = open("/dev/null", O_RDWR | O_CLOEXEC);
  const rm::DeviceParameters device{0};
  const rm::GroupParameters group{0, 0, 0, kGr0};
  int error = alloc(0, 0, kClient, rm::kRootClient);
  error += alloc(kClient, kClient, kDevice, rm::kDevice, &device);
  error += alloc(kClient, kDevice, kSubdevice, rm::kSubdevice);
  error += alloc(kClient, kDevice, kGroup, rm::kChannelGroup, &group);
  for (int i = 1; i <= channels; ++i) {
    error += alloc(kClient, kGroup, kGroup + static_cast<rm::Handle>(i), kHopperChannel);
  }
  return error;
}

void end_objects() {
  if (file >= 0) request(rm::kFree, rm::Free{kClient, kClient, kDevice, 0});
}
