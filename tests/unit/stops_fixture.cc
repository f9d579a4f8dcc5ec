#include "tests/unit/stops_fixture.h"

#include <sys/stat.h>

#include <utility>

#include "shim/link/log.h"

namespace heddle::shim {
namespace {

Guarded page{};
std::mutex lock;
std::vector<Asked> all;
int refusals = 0;

int fake_ioctl(int fd, unsigned long request, void* argument) {
  const std::lock_guard held(lock);
  EXPECT_EQ(request, rm::request_of<rm::Control>(rm::kControl));
  auto& control = *static_cast<rm::Control*>(argument);
  const auto parameters = reinterpret_cast<void*>(control.parameters);
  Asked asked{fd, control.client, control.object, control.command};
  if (control.command == rm::kDisableChannels) {
    EXPECT_EQ(control.size, sizeof(rm::DisableChannels));
    const auto& channels = *static_cast<const rm::DisableChannels*>(parameters);
    asked.off = channels.disable != 0;
    asked.channels.assign(channels.channels, channels.channels + channels.count);
    for (size_t i = 0; i < channels.count; ++i) EXPECT_EQ(channels.clients[i], control.client);
  } else {
    EXPECT_EQ(control.size, sizeof(rm::Timeslice));
    auto& slice = *static_cast<rm::Timeslice*>(parameters);
    if (control.command == rm::kGetTimeslice) slice.us = 1'500;
    asked.us = slice.us;
  }
  all.push_back(asked);
  control.status = refusals > 0 ? 0x56 : 0;
  refusals -= refusals > 0;
  return 0;
}

}  // namespace

// What these take from the rest of the shim.
constinit std::atomic<Guarded*> guarded{&page};
extern "C" uint32_t heddle_shim_bypass;
uint32_t heddle_shim_bypass = 0;
bool make_guard_page() { return true; }
void log_line(const char*, ...) {}
FileId file_id(int fd) {
  struct stat file;
  if (fstat(fd, &file) != 0) return {};
  return {file.st_dev, file.st_ino};
}

Stops::Stops() : fd_(open("/dev/null", O_RDWR | O_CLOEXEC)) {
  page.objects = 0;  // as a process that has none yet
  page.initialized = 1;
  driver_ioctl = fake_ioctl;
  refuse(0);
  asked();
}
Stops::~Stops() { close(fd_); }

void Stops::refuse(int requests) {
  const std::lock_guard held(lock);
  refusals = requests;
}

std::vector<Asked> Stops::asked() {
  const std::lock_guard held(lock);
  return std::exchange(all, {});
}

void Stops::alloc(rm::Handle client, rm::Handle parent, rm::Handle object, uint32_t of_class,
                  const void* parameters, uint32_t size, uint32_t status) {
  observe(rm::kAlloc, rm::Alloc{client, parent, object, of_class,
                                reinterpret_cast<uint64_t>(parameters), size, status});
}

void Stops::make_device(rm::Handle client, rm::Handle device, uint32_t number) {
  const rm::DeviceParameters parameters{number};
  alloc(client, client, device, rm::kDevice, &parameters, sizeof parameters);
}

void Stops::make_group(rm::Handle device, rm::Handle group, uint32_t engine) {
  const rm::GroupParameters parameters{0, 0, 0, engine};
  alloc(1, device, group, rm::kChannelGroup, &parameters);
}

void Stops::make_context() {
  alloc(0, 0, 1, rm::kRootClient);
  make_device(1, 2, 0);
  alloc(1, 2, 3, rm::kSubdevice);
  make_group(2, 4, kGr0);
  set_slice(4, 2'048);
  for (const rm::Handle channel : {5, 6}) alloc(1, 4, channel, kHopperChannel);
  make_group(2, 7, kCopy0);
  alloc(1, 7, 8, kHopperChannel);
}

void Stops::free(rm::Handle object) { observe(rm::kFree, rm::Free{1, 0, object, 0}); }

void Stops::set_slice(rm::Handle group, uint64_t us, uint32_t status) {
  const rm::Timeslice slice{us};
  observe(rm::kControl, rm::Control{1, group, rm::kSetTimeslice, 0,
                                    reinterpret_cast<uint64_t>(&slice), sizeof slice, status});
}

void Stops::order(ipc::StopOrder order, uint32_t device) {
  control_->devices[device].stop = ipc::pack_stop(order);
  control_->stop_order.fetch_add(1);
}

}  // namespace heddle::shim
