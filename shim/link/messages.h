// The control messages that a shim sends, as packets: a Cap'n Proto message with its segment
// table, built in place. Nothing here allocates or fails: texts that are too long are cut.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "ipc/kernel_id.h"
#include "ipc/limits.h"
#include "ipc/sm_set.h"
#include "shim/driver/driver_api.h"

namespace heddle::shim {

struct AttachFacts {
  std::string_view label;
  std::string_view command;
  int priority = -1;
  uint32_t driver_version = 0;
  uint32_t device_count = 0;
  uint32_t sm_count = 0;
  bool mps = false, mode_told = false;
  std::string_view gpu_name;
  std::string_view sms;
  uint16_t sm_groups[ipc::kSmGroups] = {};
  size_t sm_group_count = 0;
  CUuuid gpu_ids[ipc::kDevices] = {};
  size_t gpu_id_count = 0;
  uint64_t made_sets[ipc::kDevices] = {};  // pack_made
  uint64_t memory_total[ipc::kDevices] = {};
  uint64_t memory_held[ipc::kDevices] = {};
  std::string_view memory;
  std::string_view run;
  bool mps_memory_limit = false;
  bool streams_wait = false;
  float issue_max = 0, l2_max = 0, dram_max = 0;
  bool park = false;  // HEDDLE_PARK
};

struct MemoryNeed {
  int device = 0;
  uint32_t number = 0;
  uint64_t bytes = 0;
  bool release = false;
};

// A kernel of a graph, and how many of its nodes launch it.
struct GraphNode {
  uint32_t kernel = 0;  // index
  uint32_t count = 0;
};

struct KernelFacts {
  uint64_t id = 0;
  std::string_view name;
  ipc::LaunchShape shape;
  uint32_t index = 0;
  uint32_t registers = 0;
  uint32_t static_smem_bytes = 0;
  uint32_t blocks_per_sm = 0;
  uint32_t graph_nodes = 0;            // 0: no graph
  std::span<const GraphNode> nodes{};  // ipc::kGraphNodes at most
  uint32_t other_nodes = 0;            // kernel nodes beyond those
};

struct alignas(8) Packet {
  std::byte bytes[ipc::kMessageBytes];
  size_t size = 0;

  std::span<const std::byte> span() const { return {bytes, size}; }
};

std::string_view command_line();  // of this process; one thread at a time
void build_attach(Packet& packet, const AttachFacts& facts);  // with the present time
void build_kernel(Packet& packet, const KernelFacts& facts);
void build_need(Packet& packet, const MemoryNeed& need);

}  // namespace heddle::shim
