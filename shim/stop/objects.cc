#include "shim/stop/objects.h"

#include <string.h>

#include <utility>

#include "shim/link/log.h"

namespace heddle::shim {
namespace {

template <class Request>
Request copy(const void* argument) {
  Request request;
  memcpy(&request, argument, sizeof request);
  return request;
}

// Copies an object's parameters. False: there are none, or fewer bytes. A size of 0 means the size
// that the class has.
template <class Parameters>
bool read(const rm::Alloc& made, Parameters& out) {
  if (made.parameters == 0 || (made.size != 0 && made.size < sizeof out)) return false;
  memcpy(&out, reinterpret_cast<const void*>(made.parameters), sizeof out);
  return true;
}

// All channel classes end in 6f, also those that are newer than this build.
constexpr bool may_be_channel(uint32_t of_class) { return (of_class & 0xff) == 0x6f; }

}  // namespace

// ---- requests that the driver has carried out ---------------------------------------------------

void Objects::observe(int fd, unsigned long request, const void* argument) {
  if (argument == nullptr) return;
  if (request == rm::request_of<rm::Transfer>(rm::kTransfer)) {
    const auto outer = copy<rm::Transfer>(argument);
    if (outer.request == 0 || outer.escape > 0xff || outer.size > _IOC_SIZEMASK) return;
    request = _IOC(_IOC_READ | _IOC_WRITE, rm::kType, outer.escape, outer.size);
    argument = reinterpret_cast<const void*>(outer.request);
  }
  switch (request) {
    case rm::request_of<rm::Alloc>(rm::kAlloc): {
      const auto made = copy<rm::Alloc>(argument);
      if (made.status == 0) allocated(fd, made);
      break;
    }
    case rm::request_of<rm::AllocWithRights>(rm::kAlloc): {
      const auto made = copy<rm::AllocWithRights>(argument);
      if (made.status != 0) break;
      allocated(fd, {made.client, made.parent, made.object, made.of_class, made.parameters,
                     made.size, made.status});
      break;
    }
    case rm::request_of<rm::Free>(rm::kFree): {
      const auto freed = copy<rm::Free>(argument);
      const Held held(lock_);
      if (freed.status == 0) drop(freed.client, freed.object);
      break;
    }
    case rm::request_of<rm::Control>(rm::kControl): {
      const auto done = copy<rm::Control>(argument);
      if (done.status == 0) controlled(done);
      break;
    }
    case rm::request_of<rm::Duplicate>(rm::kDuplicate): {
      const auto made = copy<rm::Duplicate>(argument);
      if (made.status == 0) duplicated(made);
      break;
    }
  }
}

void Objects::allocated(int fd, const rm::Alloc& made) {
  const Held held(lock_);
  switch (made.of_class) {
    case rm::kRoot:
    case rm::kRootNonPriv:
    case rm::kRootClient:
      add({Kind::kClient, made.object, 0, made.object, 0, 0, fd, file_id(fd)});
      break;
    case rm::kDevice: {
      rm::DeviceParameters parameters;
      if (!is(made.client, made.client, Kind::kClient) || !read(made, parameters)) break;
      add({Kind::kDevice, made.client, made.client, made.object, parameters.device, 0, -1, {}});
      break;
    }
    case rm::kSubdevice: {
      const Object* const device = find(made.client, made.parent);
      if (device == nullptr || device->kind != Kind::kDevice) break;
      add({Kind::kSubdevice, made.client, made.parent, made.object, device->device, 0, -1, {}});
      break;
    }
    case rm::kChannelGroup:
      group_allocated(made);
      break;
    default:
      if (may_be_channel(made.of_class)) channel_allocated(made);
  }
}

void Objects::group_allocated(const rm::Alloc& made) {
  rm::GroupParameters parameters;
  const Object* const device = find(made.client, made.parent);
  if (device == nullptr || device->kind != Kind::kDevice || !read(made, parameters)) {
    return end(ipc::kStopUnknownClass, made.parent);
  }
  const Kind kind = rm::is_compute(parameters.engine) ? Kind::kGroup : Kind::kOtherGroup;
  add({kind, made.client, made.parent, made.object, device->device, 0, -1, {}});
}

void Objects::channel_allocated(const rm::Alloc& made) {
  const Object* const group = find(made.client, made.parent);
  if (group != nullptr && group->kind == Kind::kOtherGroup) return;
  if (group == nullptr || group->kind != Kind::kGroup || !rm::is_channel(made.of_class)) {
    return end(ipc::kStopUnknownClass, made.of_class);
  }
  add({Kind::kChannel, made.client, made.parent, made.object, group->device, 0, -1, {}});
}

void Objects::controlled(const rm::Control& done) {
  if (done.command != rm::kSetTimeslice && done.command != rm::kDisableChannels) return;
  const Held held(lock_);
  if (done.command == rm::kDisableChannels) return end(ipc::kStopOwnUse, done.object);
  Object* const group = find(done.client, done.object);
  if (group == nullptr || group->kind != Kind::kGroup || done.parameters == 0 ||
      done.size != sizeof(rm::Timeslice)) {
    return;
  }
  group->slice_us = copy<rm::Timeslice>(reinterpret_cast<const void*>(done.parameters)).us;
  changed(group->kind);
}

// Most duplicates are of memory, between the driver's own clients: those are harmless.
void Objects::duplicated(const rm::Duplicate& made) {
  const Held held(lock_);
  const Object* const source = find(made.source_client, made.source);
  const bool of_ours =
      source != nullptr && (source->kind == Kind::kClient || source->kind == Kind::kGroup ||
                            source->kind == Kind::kChannel);
  const bool of_others = !is(made.source_client, made.source_client, Kind::kClient);
  const bool into_ours =
      is(made.client, made.parent, Kind::kGroup) || is(made.client, made.parent, Kind::kChannel);
  if (of_ours || of_others || into_ours) end(ipc::kStopShared, made.source);
}

// ---- the table; the lock is held ----------------------------------------------------------------

Objects::Object* Objects::find(rm::Handle client, rm::Handle handle) {
  for (Object& object : objects_) {
    if (object.kind != Kind::kNone && object.client == client && object.handle == handle) {
      return &object;
    }
  }
  return nullptr;
}

bool Objects::is(rm::Handle client, rm::Handle handle, Kind kind) {
  const Object* const object = find(client, handle);
  return object != nullptr && object->kind == kind;
}

void Objects::add(const Object& added) {
  drop(added.client, added.handle);
  for (Object& object : objects_) {
    if (object.kind != Kind::kNone) continue;
    object = added;
    return changed(added.kind);
  }
  end(ipc::kStopTooMany, added.handle);
}

// An object's children go with it. The recursion ends because each call removes an object first.
void Objects::drop(rm::Handle client, rm::Handle handle) {
  Object* const dropped = find(client, handle);
  if (dropped == nullptr) return;
  changed(std::exchange(*dropped, {}).kind);
  for (const Object& object : objects_) {
    if (object.kind != Kind::kNone && object.client == client && object.parent == handle) {
      drop(client, object.handle);
    }
  }
}

void Objects::end(ipc::StopAble reason, uint32_t what) {
  if (never_ != ipc::kStopNotSaid) return;
  if (what != 0) log_line("what runs here is not stopped: %u (ipc/stop.h), %#x", reason, what);
  never_ = reason;
  changed(Kind::kGroup);
}

void Objects::changed(Kind kind) {
  if (kind >= Kind::kSubdevice) version_.fetch_add(1, std::memory_order_release);
}

// Whether the first `before` objects have a subdevice of the same client and GPU.
bool Objects::has_subdevice(const Object& of, size_t before) {
  for (size_t i = 0; i < before; ++i) {
    const Object& object = objects_[i];
    if (object.kind == Kind::kSubdevice && object.client == of.client &&
        object.device == of.device) {
      return true;
    }
  }
  return false;
}

Objects::Target Objects::target(const Object& object) {
  const Object* const client = find(object.client, object.client);
  if (client == nullptr) return {-1, {}, object.client, object.handle};
  return {client->fd, client->file, object.client, object.handle};
}

// ---- for the lever ------------------------------------------------------------------------------

ipc::StopAble Objects::able() {
  const Held held(lock_);
  if (never_ != ipc::kStopNotSaid) return never_;
  size_t channels = 0;
  const Object* first = nullptr;
  bool several = false, out_of_reach = false;
  for (const Object& object : objects_) {
    if (object.kind != Kind::kGroup && object.kind != Kind::kChannel) continue;
    if (first == nullptr) first = &object;
    several |= object.device != first->device;
    channels += object.kind == Kind::kChannel;
    out_of_reach |= !has_subdevice(object, kObjects);
  }
  if (channels == 0) return ipc::kStopNoChannels;
  if (several) return ipc::kStopSeveralGpus;
  if (channels > rm::kChannelsMost) return ipc::kStopTooMany;
  return out_of_reach ? ipc::kStopUnknownClass : ipc::kStopYes;
}

void Objects::forbid(ipc::StopAble reason) {
  const Held held(lock_);
  end(reason);
}

bool Objects::next_channels(Cursor& at, Target& subdevice, rm::DisableChannels& request) {
  const Held held(lock_);
  for (; at.subdevice < kObjects; ++at.subdevice, at.channel = 0) {
    const Object& by = objects_[at.subdevice];
    // One subdevice of a client and GPU reaches all of the client's channels there.
    if (by.kind != Kind::kSubdevice || has_subdevice(by, at.subdevice)) continue;
    request.count = 0;
    for (; at.channel < kObjects && request.count < rm::kChannelsMost; ++at.channel) {
      const Object& object = objects_[at.channel];
      if (object.kind != Kind::kChannel || object.client != by.client ||
          object.device != by.device) {
        continue;
      }
      request.clients[request.count] = object.client;
      request.channels[request.count++] = object.handle;
    }
    if (request.count == 0) continue;
    subdevice = target(by);
    return true;
  }
  return false;
}

bool Objects::next_group(size_t& at, Target& group, uint64_t& slice_us) {
  const Held held(lock_);
  while (at < kObjects) {
    const Object& object = objects_[at++];
    if (object.kind != Kind::kGroup) continue;
    group = target(object);
    slice_us = object.slice_us;
    return true;
  }
  return false;
}

void Objects::note_slice(const Target& of, uint64_t us) {
  const Held held(lock_);
  Object* const group = find(of.client, of.object);
  if (group != nullptr && group->kind == Kind::kGroup && group->slice_us == 0) group->slice_us = us;
}

void Objects::lose_client(rm::Handle client) {
  const Held held(lock_);
  drop(client, client);
}

void Objects::forget() {
  lock_.forget();
  never_ = ipc::kStopNotSaid;
  for (Object& object : objects_) object = {};
  version_.fetch_add(1, std::memory_order_release);
}

}  // namespace heddle::shim
