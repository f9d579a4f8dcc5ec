// The driver's objects of this process that a stop needs: clients, devices, channel groups and the
// channels on which kernels run. Learned from the requests that libcuda makes.
//
// Any thread that makes such an object enters here, behind its request; so does the lever. No
// launch does. The lock is held for a look through the table alone. What is unknown is never
// stopped: a channel that cannot be placed ends the stops of the process.
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
  // A request that ioctl() has carried out, as the driver left it. It may have been refused.
  void observe(int fd, unsigned long request, const void* argument);

  // Whether what is known can be stopped.
  ipc::StopAble able();
  // For good, for this reason; the first one stays.
  void forbid(ipc::StopAble reason);
  // Moves whenever something that a stop concerns changes.
  uint32_t version() const { return version_.load(std::memory_order_acquire); }

  // Where a request goes: to an object of a client, on the descriptor that the client came by.
  struct Target {
    int fd;
    FileId file;
    rm::Handle client, object;
  };
  // Channels of one client and GPU, as many as one request takes. `at` begins as {}; false: no
  // more.
  struct Cursor {
    size_t subdevice = 0, channel = 0;
  };
  bool next_channels(Cursor& at, Target& subdevice, rm::DisableChannels& request);
  // Groups of such channels, with the slice that the program or its driver set; 0: not known.
  bool next_group(size_t& at, Target& group, uint64_t& slice_us);
  void note_slice(const Target& group, uint64_t us);
  // Its descriptor is closed, and with it all that it had.
  void lose_client(rm::Handle client);

  void forget();  // in a forked child

 private:
  // Stops concern the last three.
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
  void end(ipc::StopAble reason, uint32_t what = 0);  // a class or handle, for the log
  void changed(Kind kind);
  bool has_subdevice(const Object& object, size_t before);
  Target target(const Object& object);

  Spin lock_;
  std::atomic<uint32_t> version_{0};
  ipc::StopAble never_ = ipc::kStopNotSaid;
  Object objects_[kObjects]{};
};

}  // namespace heddle::shim
