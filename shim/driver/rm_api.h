// Requests to NVIDIA's kernel module on /dev/nvidiactl: those of libcuda that the shim looks at,
// and the three that it makes itself. They are no interface of CUDA's. Names and layouts are those
// of NVIDIA's open kernel modules (MIT, src/common/sdk/nvidia/inc: nvos.h, class/, ctrl/), seen to
// work with driver 580.159.04.
#pragma once

#include <sys/ioctl.h>

#include <cstdint>

namespace heddle::rm {

using Handle = uint32_t;

inline constexpr uint8_t kType = 'F';
enum Escape : uint8_t {
  kFree = 0x29,
  kControl = 0x2A,
  kAlloc = 0x2B,
  kDuplicate = 0x34,
  kTransfer = 0xD3,  // another request, whose size _IOC has no room for, or of any size
};

// The answer is in `status`; 0 is OK. ioctl() itself returns 0 for a refused request, too.
struct Free {  // NVOS00_PARAMETERS; what has the object as a parent goes with it
  Handle client, parent, object;
  uint32_t status;
};
struct Control {  // NVOS54_PARAMETERS
  Handle client, object;
  uint32_t command, flags;
  uint64_t parameters;
  uint32_t size, status;
};
struct Alloc {  // NVOS21_PARAMETERS; of a client, `client` is 0 or its own handle
  Handle client, parent, object;
  uint32_t of_class;
  uint64_t parameters;
  uint32_t size, status;
};
struct AllocWithRights {  // NVOS64_PARAMETERS, under the same number
  Handle client, parent, object;
  uint32_t of_class;
  uint64_t parameters, rights;
  uint32_t size, flags, status, unused;
};
struct Duplicate {  // NVOS55_PARAMETERS
  Handle client, parent, object, source_client, source;
  uint32_t flags, status;
};
struct Transfer {  // nv_ioctl_xfer_t
  uint32_t escape, size;
  uint64_t request;
};
static_assert(sizeof(Free) == 16 && sizeof(Control) == 32 && sizeof(Alloc) == 32);
static_assert(sizeof(AllocWithRights) == 48 && sizeof(Duplicate) == 28 && sizeof(Transfer) == 16);

template <class Request>
constexpr unsigned long request_of(Escape escape) {
  return _IOC(_IOC_READ | _IOC_WRITE, kType, escape, sizeof(Request));
}

enum Class : uint32_t {
  kRoot = 0x0,         // NV01_ROOT, and NV01_ROOT_NON_PRIV, NV01_ROOT_CLIENT:
  kRootNonPriv = 0x1,  // the objects that are clients
  kRootClient = 0x41,
  kDevice = 0x80,          // NV01_DEVICE_0
  kSubdevice = 0x2080,     // NV20_SUBDEVICE_0
  kChannelGroup = 0xa06c,  // KEPLER_CHANNEL_GROUP_A
};
// Channels are xx6f: KEPLER_CHANNEL_GPFIFO_A, ... HOPPER_CHANNEL_GPFIFO_A (c86f), BLACKWELL's
// (c96f, ca6f).
constexpr bool is_channel(uint32_t of_class) {
  switch (of_class) {
    case 0xa06f:
    case 0xa16f:
    case 0xb06f:
    case 0xc06f:
    case 0xc36f:
    case 0xc46f:
    case 0xc56f:
    case 0xc86f:
    case 0xc96f:
    case 0xca6f:
      return true;
    default:
      return false;
  }
}

// Of a kChannelGroup's Alloc::parameters: NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS.
struct GroupParameters {
  Handle error, ecc_error, address_space;
  uint32_t engine;  // NV2080_ENGINE_TYPE_*
};
// NV2080_ENGINE_TYPE_GR0 to GR7: kernels run there.
constexpr bool is_compute(uint32_t engine) { return engine >= 1 && engine <= 8; }
// Of a kDevice's: NV0080_ALLOC_PARAMETERS begins with it.
struct DeviceParameters {
  uint32_t device;
};

// On a channel group: how long it has the GPU before another group that wants it gets its turn.
inline constexpr uint32_t kSetTimeslice = 0xa06c0103;  // NVA06C_CTRL_CMD_SET_TIMESLICE
inline constexpr uint32_t kGetTimeslice = 0xa06c0104;
struct Timeslice {
  uint64_t us;
};

// On a subdevice of the process's own: stops its channels, also in the middle of a kernel, until
// they are enabled again.
inline constexpr uint32_t kDisableChannels = 0x2080110b;  // NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS
inline constexpr uint32_t kChannelsMost = 64;
struct DisableChannels {
  uint8_t disable;  // 0: they go on
  uint32_t count;
  uint8_t only_scheduling, rewind;
  uint64_t event;  // 0: the call returns once they stand
  Handle clients[kChannelsMost], channels[kChannelsMost];
};
static_assert(sizeof(GroupParameters) == 16 && sizeof(DisableChannels) == 536);

}  // namespace heddle::rm
