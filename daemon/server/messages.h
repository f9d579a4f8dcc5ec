// Control messages, decoded into plain structs. A peer's packets are hostile: this limits size,
// traversal and nesting, and catches Cap'n Proto's exceptions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/core/event.h"
#include "daemon/server/gpus.h"

namespace heddle::server {

// CLOCK_MONOTONIC and CLOCK_REALTIME at one moment; zeros: not sent.
struct Clocks {
  uint64_t monotonic_ns = 0, wall_ns = 0;
};

struct AttachMessage {
  uint32_t protocol_version = 0;
  std::string label;
  std::string command;
  int priority = -1;
  uint32_t driver_version = 0;
  uint32_t device_count = 1;
  uint32_t sm_count = 0;
  std::vector<GpuId> gpu_ids;  // by device; may be fewer than devices
  bool mps = false, mode_told = false;
  std::string gpu_name;
  std::string sms;
  std::vector<uint16_t> sm_groups;
  std::vector<ipc::MadeSets> made_sets;  // by device; may be fewer than devices
  std::array<uint64_t, ipc::kDevices> memory_total{}, memory_held{};
  std::string memory;
  std::string run;
  bool mps_memory_limit = false;
  bool streams_wait = false;
  core::ChannelMax channel_max{};
  bool counts_memory = false;  // it sent memory_total
  bool parks = false;          // its shim waits for parked memory
  bool park_asked = false;     // and it allows that itself
  Clocks clocks;
};

struct MemoryNeed {
  uint32_t device = 0;
  uint32_t number = 0;
  uint64_t bytes = 0;
  bool release = false;
};

struct KernelMessage {
  core::KernelBody kernel{};
  core::NodesBody nodes{};
  bool has_nodes() const { return kernel.block_threads == 0 && nodes.count + nodes.others > 0; }
};

struct Request {
  enum class Kind : uint8_t {
    kPs,
    kStatus,
    kPolicyList,
    kPolicyLoad,
    kPolicySet,
    kBypass,
    kEffective,
    kRecord,
    kProfile,
    kMps,
    kPolicyHistory,
    kPolicyRollback,
    kPolicyShow,
    kPolicyKeep,
    kPolicyShadow,
    kPolicyShadowTold,
    kPolicyShadowStop,
    kPolicyPromote,
    kExplain
  };
  enum class MpsOrder : uint16_t { kStatus, kStart, kStop };
  Kind kind = Kind::kStatus;
  std::string policy;  // kPolicyLoad, kPolicySet, kPolicyShadow
  std::vector<std::pair<std::string, std::string>> params;
  bool reset = false;  // kPolicySet: sets `params`, or all if empty, back to the file's values
  // kPolicyLoad: then back to the present policy; 0: the new one stays. kPolicyPromote: how long it
  // is watched.
  double for_s = 0;
  double slowdown_max = 0;  // kPolicyPromote: the most that runs may be slowed
  uint64_t generation = 0;  // kPolicyRollback
  bool bypass = false;
  int priority = -1;  // kEffective
  std::string label;
  std::string command;
  core::ClientId client = 0;  // kProfile, kExplain
  MpsOrder mps = MpsOrder::kStatus;
};

using Message = std::variant<AttachMessage, KernelMessage, Request, MemoryNeed>;

// `packet` must lie at an 8-byte boundary.
Result<Message> decode_message(std::span<const std::byte> packet);

struct Reply {
  bool ok = false;
  std::string error;
  std::string json;
};

std::vector<std::byte> encode_reply(const Reply& reply);

// The command line's side.
std::vector<std::byte> encode_request(const Request& request);
Result<Reply> decode_reply(std::span<const std::byte> packet);

}  // namespace heddle::server
