// Every limit that shim and daemon share, each with its reason. Changing one changes the layout:
// raise kProtocolVersion with it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle::ipc {

// Raised whenever the schema or the shared-memory layout changes incompatibly. A shim whose version
// differs from the daemon's stays unmanaged and says so; it never guesses.
inline constexpr uint32_t kProtocolVersion = 2;

// Threads of one process that launch at the same time. Each has a ring and a slot where it waits. A
// thread that finds no free ring launches unmanaged, which is counted as SELF_POOL.
inline constexpr uint32_t kThreads = 64;

// Records per ring; a power of two. 1 024 launches are over 3 ms of back-to-back submission, three
// times the daemon's longest nap while a client is active.
inline constexpr uint32_t kRingRecords = 1024;

// One record is one cache line and one Cap'n Proto segment (ipc/record.h).
inline constexpr size_t kRecordBytes = 64;

// Distinct kernel IDs of one client. Launches of further kernels are recorded as kNoKernel: they
// are gated and accounted at the default estimate, and their durations are not learned.
inline constexpr uint32_t kKernels = 8192;
inline constexpr uint32_t kNoKernel = 0xffffffff;

// Distinct kernels of a graph that the shim tells the daemon; of the others it tells the number.
inline constexpr uint32_t kGraphNodes = 64;

// Streams of one client that have a slot of their own. Further streams share slot kStreams - 1.
inline constexpr uint32_t kStreams = 256;
inline constexpr uint16_t kAllStreams = 0xffff;  // a completion that covers the whole device

// Devices of one client, and GPUs of a daemon. A launch on a further device is unmanaged, which is
// counted as SELF_POOL.
inline constexpr uint32_t kDevices = 16;
inline constexpr size_t kGpuIdBytes = 16;  // cuDeviceGetUuid

// Priorities are FIKIT's: Q0 is the highest, Q9 the lowest (FIKIT section 3.2).
inline constexpr int kPriorities = 10;
inline constexpr int kPriorityLatency = 0;  // --class latency
inline constexpr int kPriorityBatch = 9;    // --class batch
inline constexpr int kPriorityDefault = 5;

// A control message travels as one SOCK_SEQPACKET packet.
inline constexpr size_t kMessageBytes = 8 * 1024;  // client to daemon
inline constexpr size_t kReplyBytes = 160 * 1024;  // daemon to client; under the 208 KiB default
inline constexpr size_t kKernelNameBytes = 512;    // longer names are cut, after they are hashed
inline constexpr size_t kLabelBytes = 128;

// A heartbeat older than this means that the daemon is gone or stopped: waiting launches go.
inline constexpr int64_t kHeartbeatStaleNs = 500'000'000;
inline constexpr int64_t kHeartbeatPeriodNs = 100'000'000;

}  // namespace heddle::ipc
