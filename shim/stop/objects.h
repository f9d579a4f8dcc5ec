// The kernel-module objects of this process that a stop needs: clients, devices, channel groups and
// the channels on which kernels run. Learned from the requests that libcuda makes.
//
// Called by threads that make such an object, after the request, and by the lever; not by launches.
// The lock is held only to search the table. A channel that cannot be placed in it ends the stops
// of the process, because nothing unknown is ever stopped.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "ipc/stop.h"
#include "shim/driver/rm_api.h"
#include "shim/link/session.h"
#include "shim/link/spin.h"

namespace heddle::shim {

class Objects {
 public:
  // Learns from a request after ioctl() returned. The driver may have refused it (`status`).
  void observe(int fd, unsigned long request, const void* argument);

  // Whether the process can be stopped, or why not.
  ipc::StopAble able();
  // Forbids stops for good. The first reason stays.
  void forbid(ipc::StopAble reason);
  // Changes whenever an object changes that concerns a stop.
  uint32_t version() const { return version_.load(std::memory_order_acquire); }

  // Where a request goes: an object of a client, on the descriptor through which that was made.
  struct Target {
    int fd;
    FileId file;
    rm::Handle client, object;
  };
  // The next channels of one client and GPU, as many as one request takes. `at` begins as {}.
  // False: there are no more.
  struct Cursor {
    size_t subdevice = 0, channel = 0;
  };
  bool next_channels(Cursor& at, Target& subdevice, rm::DisableChannels& request);
  // The next group of such channels, with the slice that the program or driver set; 0: unknown.
  bool next_group(size_t& at, Target& group, uint64_t& slice_us);
  void note_slice(const Target& group, uint64_t us);
  // The client's descriptor is closed: the client and its objects are gone.
  void lose_client(rm::Handle client);

  void forget();  // in a forked child

 private:
  // kSubdevice and later kinds concern stops.
  enum class Kind : uint8_t { kNone, kClient, kDevice, kOtherGroup, kSubdevice, kGroup, kChannel };
  struct Object {
    Kind kind;
    rm::Handle client, parent, handle;
    uint32_t device;    // the GPU's number; not of a client
    uint64_t slice_us;  // of a group
    int fd;             // of a client
    FileId file;
  };
  static constexpr size_t kObjects = 256;  // some ten contexts on eight GPUs

  void allocated(int fd, const rm::Alloc& made);
  void group_allocated(const rm::Alloc& made);
  void channel_allocated(const rm::Alloc& made);
  void controlled(const rm::Control& done);
  void duplicated(const rm::Duplicate& made);
  Object* find(rm::Handle client, rm::Handle handle);
  bool is(rm::Handle client, rm::Handle handle, Kind kind);
  void add(const Object& object);
  void drop(rm::Handle client, rm::Handle handle);
  void end(ipc::StopAble reason, uint32_t what = 0);  // `what`: a class or handle for the log
  void changed(Kind kind);
  bool has_subdevice(const Object& object, size_t before);
  Target target(const Object& object);

  Spin lock_;
  std::atomic<uint32_t> version_{0};
  ipc::StopAble never_ = ipc::kStopNotSaid;
  Object objects_[kObjects]{};
};

}  // namespace heddle::shim
