// A trace: what the core of each device was told and what it decided, in order. `heddle record`
// writes one; `heddle trace`, the virtual-time simulator and tests read it. This file is the whole
// format; encoder.h writes it, reader.h reads it.
//
//   file    = "HEDDLETR" version:u16 reserved:u16 length:u32 header record* end
//   header  = a JSON document of `length` bytes: what Header says
//   record  = kind:u8 length:varint body
//   end     = a record of kind kEnd. A file without it was cut short.
//
// Fixed-width numbers are little-endian; varint is LEB128, signed numbers as zigzag; text is
// varint bytes; f32 is IEEE 754. A body begins with the time since the record before it (signed
// varint, ns; the first counts from 0 of CLOCK_MONOTONIC), then device:u8, and then:
//
//   kAttached    client task profile_runs pid uid share:f32 slo_ms:f32 request:f32 limit:f32
//                slowdown_max:f32
//                slowdown_p99_max:f32 issue_max:f32 l2_max:f32 dram_max:f32 flags:u8 priority:u8
//                sm_set groups, of each its sms, made_sets name:text label:text
//                flags: bit 0 fail_closed, bit 1 introduced, bit 2 gates
//   kDetached, kTick, kGatesLeft  client
//   kUnobserved, kObserved       client launches        not in what `heddle record` writes
//   kStops       client able off:u8 took_us:f32
//   kMemory      client bytes parked:u8
//   kRow         client launches kernel backlog_us:f32  of what was launched before it began
//   kTerms       client share:f32 slo_ms:f32 request:f32 limit:f32 slowdown_max:f32
//                slowdown_p99_max:f32 issue_max:f32 l2_max:f32 dram_max:f32 priority:u8
//   kKernel      client index id:u64 grid block dynamic_smem static_smem registers blocks_per_sm
//                flags:u8 name:text metrics     flags: bit 1 introduced
//   kNodes       client graph others, how many; of each kernel count
//   kProfile     client kernel_id:u64, then of its duration, gap while launching and gap after a
//                synchronize each: mean_us:f32 p50_us:f32 p90_us:f32 count; before:u64 metrics
//                metrics: how many; of each its place in ipc/kernel_facts.h and its value:f64
//   kPosted, kAsked, kWithdrawn, kRecalled  client stream_seq kernel ask_seq stream thread
//                flags:u8               unmovable x 64 + kind x 16 + admission; + 128 at a gate:
//                may_follow unit_us:f32
//   kWaiting, kCompleted, kStreamEnd  client stream_seq duration_us:f32 stream evidence:u8
//   kGrant       client decider:u8 ask_seq thread launch_priority:signed sm_set
//   kAllowance      client decider:u8 managed:u8 launch_priority:signed allowed:u8 sm_set ring
//                sizes                  managed: + 2 gates_soon, + 4 kernels_ask, + 8 gates_inside
//   kHint        client kernel predicted_us:f32 measure:u8 size:u8 raised:u8 launch_priority:signed
//   kStop        client off:u8 slice_us
//   kPark        client off:u8
//   kDevice      JSON text: the scheduler's configuration, and fresh: it had seen no event before;
//                once more, not fresh: its mode (mps, switch_us) is another from here on
//   kPolicy      JSON text: {name, path, hash, params}; "builtin" has no path
//   kBypass      on:u8
//   kLost        count: so many records are missing here, because the reader of the ring was slow
//   kEnd         records lost                   the file's records before it, of which kLost's sum
//
// "Introduced" clients and kernels were there before the recording began: the core was told then.
// Another version is refused. A trace of fresh cores, without kLost, replays exactly (replay.h).
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <variant>

#include "daemon/core/decision.h"
#include "daemon/core/event.h"
#include "daemon/core/scheduler.h"

namespace heddle::trace {

inline constexpr char kMagic[8] = {'H', 'E', 'D', 'D', 'L', 'E', 'T', 'R'};
inline constexpr uint16_t kVersion = 18;
inline constexpr uint32_t kHeaderMax = 1 << 20;

// Events are numbered as core::EventKind is.
enum Kind : uint8_t {
  kGrant = 0x20,
  kAllowance = 0x21,
  kHint = 0x22,
  kStop = 0x23,
  kPark = 0x24,
  kDevice = 0x30,
  kPolicy = 0x31,
  kBypass = 0x32,
  kLost = 0x33,
  kEnd = 0x3f,
};

// Who recorded where. `extra` holds what a later heddle adds; readers keep what they do not know.
struct Header {
  std::string heddle;                                // version
  std::string gpu;                                   // as NVML names it, "unknown" without NVML
  std::string driver;                                // its version, or "unknown"
  std::string mode;                                  // "mps" or "timeslice"
  std::string started;                               // date and time, ISO 8601, UTC
  nlohmann::json clients = nlohmann::json::array();  // at the start: {id, label, exe, priority}
};

struct EventRecord {
  core::Event event;
  bool introduced = false;
};

struct DeviceRecord {
  core::Config config;
  core::TimeNs at = 0;
  bool fresh = true;  // the core had seen nothing before
};

struct PolicyRecord {
  uint8_t device = 0;
  core::TimeNs at = 0;
  std::string name, path, hash;
  nlohmann::json params = nlohmann::json::object();
};

struct BypassRecord {
  uint8_t device = 0;
  core::TimeNs at = 0;
  bool on = false;
};

struct LostRecord {
  uint64_t count = 0;
};

using Record =
    std::variant<EventRecord, core::Decision, DeviceRecord, PolicyRecord, BypassRecord, LostRecord>;

}  // namespace heddle::trace
