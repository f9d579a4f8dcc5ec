#include "bench/sim/rm_kernel.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "bench/sim/driver.h"
#include "shim/driver/rm_api.h"

namespace heddle::sim {
namespace {

enum Status : uint32_t {
  kOk = 0,
  kGpuIsLost = 0x0F,
  kDuplicateName = 0x19,
  kNoPermission = 0x1B,
  kInvalidArgument = 0x1F,
  kInvalidClass = 0x22,
  kInvalidClient = 0x23,
  kNotSupported = 0x56,
  kObjectNotFound = 0x57,
};

constexpr uint64_t kSliceMostUs = 1'000'000;
constexpr uint32_t kFirstClient = 0xc1d00000;

struct Object {
  rm::Handle parent = 0;
  uint32_t of_class = 0;
  int descriptor = -1;    // of a client
  uint32_t engine = 0;    // of a channel group
  uint64_t slice_us = 0;  // of a channel group
  bool off = false;       // of a channel
};

class Kernel {
 public:
  int answer(int descriptor, uint8_t escape, uint32_t size, void* argument);

 private:
  using Key = std::pair<rm::Handle, rm::Handle>;  // client and object

  Object* find(rm::Handle client, rm::Handle object) {
    const auto found = objects_.find({client, object});
    return found != objects_.end() ? &found->second : nullptr;
  }
  Status check(int descriptor, rm::Handle client);
  template <class Request>
  Status allocate(int descriptor, Request& request);
  Status add(rm::Handle client, rm::Handle parent, rm::Handle object, uint32_t of_class,
             uint64_t parameters);
  Status release(int descriptor, const rm::Free& request);
  void drop(rm::Handle client, rm::Handle object);
  Status control(int descriptor, const rm::Control& request);
  Status set_slice(Object& group, const rm::Timeslice& slice);
  Status switch_channels(rm::Handle client, const Object& subdevice,
                         const rm::DisableChannels& list);
  bool any_off();
  Status order(CommandKind kind, uint64_t value = 0);

  const pid_t process_ = getpid();
  std::mutex mutex_;  // held as long as a call takes: a real one has a lock over all GPUs
  std::map<Key, Object> objects_;
};

// The owner does it, and answers when a real call would return.
Status Kernel::order(CommandKind kind, uint64_t value) {
  Command command;
  command.kind = kind;
  command.value = value;
  return driver().link.order(command) ? kOk : kGpuIsLost;
}

Status Kernel::check(int descriptor, rm::Handle client) {
  if (getpid() != process_) return kNoPermission;
  const Object* object = find(client, client);
  return object != nullptr && object->descriptor == descriptor ? kOk : kInvalidClient;
}

template <class Request>
Status Kernel::allocate(int descriptor, Request& request) {
  const uint32_t of_class = request.of_class;
  if (of_class == rm::kRoot || of_class == rm::kRootNonPriv || of_class == rm::kRootClient) {
    if (getpid() != process_) return kNoPermission;
    if (request.object == 0)
      request.object = kFirstClient | (static_cast<uint32_t>(process_) & 0xffff);
    while (find(request.object, request.object) != nullptr) request.object += 0x10000;
    objects_[{request.object, request.object}] = {0, of_class, descriptor};
    return kOk;
  }
  const Status status = check(descriptor, request.client);
  if (status != kOk) return status;
  return add(request.client, request.parent, request.object, of_class, request.parameters);
}

Status Kernel::add(rm::Handle client, rm::Handle parent, rm::Handle object, uint32_t of_class,
                   uint64_t parameters) {
  const Object* above = find(client, parent);
  if (above == nullptr) return kObjectNotFound;
  if (object == 0) return kInvalidArgument;
  if (find(client, object) != nullptr) return kDuplicateName;
  Object made{parent, of_class};
  if (of_class == rm::kDevice) {
    const auto* of = reinterpret_cast<const rm::DeviceParameters*>(parameters);
    if (of == nullptr || of->device != 0 || parent != client) return kInvalidArgument;
  } else if (of_class == rm::kSubdevice) {
    if (above->of_class != rm::kDevice) return kInvalidArgument;
  } else if (of_class == rm::kChannelGroup) {
    const auto* of = reinterpret_cast<const rm::GroupParameters*>(parameters);
    if (of == nullptr || above->of_class != rm::kDevice) return kInvalidArgument;
    made.engine = of->engine;
  } else if (rm::is_channel(of_class)) {
    if (above->of_class != rm::kChannelGroup) return kInvalidArgument;
  } else {
    return kInvalidClass;
  }
  objects_[{client, object}] = made;
  return kOk;
}

Status Kernel::release(int descriptor, const rm::Free& request) {
  const Status status = check(descriptor, request.client);
  if (status != kOk) return status;
  if (find(request.client, request.object) == nullptr) return kObjectNotFound;
  const bool stood = any_off();
  drop(request.client, request.object);
  return stood && !any_off() ? order(CommandKind::kGoOn) : kOk;
}

void Kernel::drop(rm::Handle client, rm::Handle object) {
  std::vector<rm::Handle> children;
  for (const auto& [key, other] : objects_) {
    if (key.first == client && other.parent == object) children.push_back(key.second);
  }
  for (const rm::Handle child : children) drop(client, child);
  objects_.erase({client, object});
}

Status Kernel::control(int descriptor, const rm::Control& request) {
  const Status status = check(descriptor, request.client);
  if (status != kOk) return status;
  Object* object = find(request.client, request.object);
  if (object == nullptr) return kObjectNotFound;
  const bool is_group = object->of_class == rm::kChannelGroup;
  const auto parameters = static_cast<uintptr_t>(request.parameters);
  if (parameters == 0) return kInvalidArgument;
  switch (request.command) {
    case rm::kSetTimeslice:
      if (!is_group || request.size != sizeof(rm::Timeslice)) return kInvalidArgument;
      return set_slice(*object, *reinterpret_cast<const rm::Timeslice*>(parameters));
    case rm::kGetTimeslice:
      if (!is_group || request.size != sizeof(rm::Timeslice)) return kInvalidArgument;
      reinterpret_cast<rm::Timeslice*>(parameters)->us = object->slice_us;
      return kOk;
    case rm::kDisableChannels:
      if (request.size != sizeof(rm::DisableChannels)) return kInvalidArgument;
      return switch_channels(request.client, *object,
                             *reinterpret_cast<const rm::DisableChannels*>(parameters));
    default:
      return kNotSupported;
  }
}

Status Kernel::set_slice(Object& group, const rm::Timeslice& slice) {
  if (slice.us == 0 || slice.us > kSliceMostUs) return kInvalidArgument;
  group.slice_us = slice.us;
  return rm::is_compute(group.engine) ? order(CommandKind::kSlice, slice.us * 1'000) : kOk;
}

Status Kernel::switch_channels(rm::Handle client, const Object& subdevice,
                               const rm::DisableChannels& list) {
  const char* stops = getenv("HEDDLE_SIM_STOPS");
  if (stops != nullptr && strcmp(stops, "0") == 0) return kNotSupported;
  if (subdevice.of_class != rm::kSubdevice || list.count > rm::kChannelsMost || list.event != 0) {
    return kInvalidArgument;
  }
  for (uint32_t i = 0; i < list.count; ++i) {
    const Object* channel = find(list.clients[i], list.channels[i]);
    if (list.clients[i] != client || channel == nullptr) return kObjectNotFound;
    if (!rm::is_channel(channel->of_class)) return kInvalidArgument;
  }
  for (uint32_t i = 0; i < list.count; ++i) {
    find(list.clients[i], list.channels[i])->off = list.disable != 0;
  }
  return order(any_off() ? CommandKind::kStop : CommandKind::kGoOn);
}

// Of the compute channels: kernels stand.
bool Kernel::any_off() {
  return std::any_of(objects_.begin(), objects_.end(), [&](const auto& entry) {
    if (!entry.second.off) return false;
    const Object* group = find(entry.first.first, entry.second.parent);
    return group != nullptr && rm::is_compute(group->engine);
  });
}

int Kernel::answer(int descriptor, uint8_t escape, uint32_t size, void* argument) {
  const std::lock_guard lock(mutex_);
  if (escape == rm::kFree && size == sizeof(rm::Free)) {
    auto& request = *static_cast<rm::Free*>(argument);
    request.status = release(descriptor, request);
  } else if (escape == rm::kControl && size == sizeof(rm::Control)) {
    auto& request = *static_cast<rm::Control*>(argument);
    request.status = control(descriptor, request);
  } else if (escape == rm::kAlloc && size == sizeof(rm::Alloc)) {
    auto& request = *static_cast<rm::Alloc*>(argument);
    request.status = allocate(descriptor, request);
  } else if (escape == rm::kAlloc && size == sizeof(rm::AllocWithRights)) {
    auto& request = *static_cast<rm::AllocWithRights*>(argument);
    request.status = allocate(descriptor, request);
  } else if (escape == rm::kDuplicate && size == sizeof(rm::Duplicate)) {
    static_cast<rm::Duplicate*>(argument)->status = kNotSupported;
  } else {
    errno = EINVAL;
    return -1;
  }
  return 0;
}

}  // namespace

int answer_ioctl(int descriptor, unsigned long request, void* argument) {
  struct stat file;
  if (fstat(descriptor, &file) != 0) return -1;
  static Kernel* const kernel = new Kernel;  // of the process that first asks something of it
  if (!S_ISCHR(file.st_mode) || _IOC_TYPE(request) != rm::kType) {
    errno = ENOTTY;
    return -1;
  }
  auto escape = static_cast<uint8_t>(_IOC_NR(request));
  auto size = static_cast<uint32_t>(_IOC_SIZE(request));
  if (escape == rm::kTransfer && size == sizeof(rm::Transfer)) {
    const auto& wrapped = *static_cast<const rm::Transfer*>(argument);
    escape = static_cast<uint8_t>(wrapped.escape);
    size = wrapped.size;
    argument = reinterpret_cast<void*>(wrapped.request);
  }
  return kernel->answer(descriptor, escape, size, argument);
}

}  // namespace heddle::sim
