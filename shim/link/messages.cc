#include "shim/link/messages.h"

#include <capnp/message.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>

#include "ipc/heddle.capnp.h"
#include "shim/link/session.h"

namespace heddle::shim {
namespace {

// The longest command line that is sent; label and framing fit beside it in a packet.
constexpr size_t kCommandBytes = 4096;

template <class Init>
void set_text(std::string_view text, size_t most, Init&& init) {
  const size_t length = std::min(text.size(), most);
  capnp::Text::Builder out = init(static_cast<unsigned>(length));
  if (length > 0) memcpy(out.begin(), text.data(), length);
}

// Builds a message of one segment, with its segment table in front.
template <class Fill>
void build(Packet& packet, size_t room, Fill&& fill) {
  memset(packet.bytes, 0, room);
  auto* words = reinterpret_cast<capnp::word*>(packet.bytes);
  capnp::FlatMessageBuilder message(kj::arrayPtr(words + 1, room / sizeof(capnp::word) - 1));
  fill(message.initRoot<wire::Message>());
  const uint32_t table[2] = {0, static_cast<uint32_t>(message.getSegmentsForOutput()[0].size())};
  memcpy(packet.bytes, table, sizeof table);
  packet.size = (1 + table[1]) * sizeof(capnp::word);
}

}  // namespace

void build_attach(Packet& packet, const AttachFacts& facts) {
  build(packet, sizeof packet.bytes, [&](wire::Message::Builder message) {
    auto attach = message.initAttach();
    attach.setProtocolVersion(ipc::kProtocolVersion);
    set_text(facts.label, ipc::kLabelBytes, [&](unsigned n) { return attach.initLabel(n); });
    set_text(facts.command, kCommandBytes, [&](unsigned n) { return attach.initCommand(n); });
    attach.setPriority(static_cast<int8_t>(facts.priority));
    attach.setDriverVersion(facts.driver_version);
    attach.setDeviceCount(facts.device_count);
    attach.setSmCount(facts.sm_count);
    attach.setMps(facts.mps);
    attach.setModeTold(facts.mode_told);
    set_text(facts.gpu_name, ipc::kLabelBytes, [&](unsigned n) { return attach.initGpuName(n); });
    set_text(facts.sms, ipc::kLabelBytes, [&](unsigned n) { return attach.initSms(n); });
    auto groups = attach.initSmGroups(static_cast<unsigned>(facts.sm_group_count));
    for (unsigned i = 0; i < groups.size(); ++i) groups.set(i, facts.sm_groups[i]);
    auto ids = attach.initGpuIds(static_cast<unsigned>(facts.gpu_id_count * ipc::kGpuIdBytes));
    if (ids.size() > 0) memcpy(ids.begin(), facts.gpu_ids, ids.size());
    const auto devices = static_cast<unsigned>(facts.gpu_id_count);
    auto total = attach.initMemoryTotal(devices);
    auto held = attach.initMemoryHeld(devices);
    auto made = attach.initMadeSets(devices);
    for (unsigned i = 0; i < devices; ++i) {
      total.set(i, facts.memory_total[i]);
      held.set(i, facts.memory_held[i]);
      made.set(i, facts.made_sets[i]);
    }
    set_text(facts.memory, ipc::kLabelBytes, [&](unsigned n) { return attach.initMemory(n); });
    set_text(facts.run, ipc::kLabelBytes, [&](unsigned n) { return attach.initRun(n); });
    attach.setMpsMemoryLimit(facts.mps_memory_limit);
    attach.setStreamsWait(facts.streams_wait);
    attach.setIssueMax(facts.issue_max);
    attach.setL2Max(facts.l2_max);
    attach.setDramMax(facts.dram_max);
    attach.setPark(facts.park ? wire::Park::ASKED : wire::Park::BY_RULE);
    attach.setMonotonicNs(static_cast<uint64_t>(now_ns()));
    attach.setWallNs(static_cast<uint64_t>(now_ns(CLOCK_REALTIME)));
  });
}

void build_kernel(Packet& packet, const KernelFacts& facts) {
  constexpr size_t kRoom = 2 * ipc::kKernelNameBytes + (ipc::kGraphNodes + 1) * sizeof(GraphNode);
  build(packet, kRoom, [&](wire::Message::Builder message) {
    auto kernel = message.initRegisterKernel();
    kernel.setIndex(facts.index);
    kernel.setId(facts.id);
    set_text(facts.name, ipc::kKernelNameBytes, [&](unsigned n) { return kernel.initName(n); });
    const bool graph = facts.graph_nodes > 0;
    kernel.setGridX(graph ? facts.graph_nodes : facts.shape.grid[0]);
    kernel.setGridY(graph ? 1 : facts.shape.grid[1]);
    kernel.setGridZ(graph ? 1 : facts.shape.grid[2]);
    kernel.setBlockX(graph ? 0 : facts.shape.block[0]);
    kernel.setBlockY(facts.shape.block[1]);
    kernel.setBlockZ(facts.shape.block[2]);
    kernel.setDynamicSmemBytes(facts.shape.dynamic_smem_bytes);
    kernel.setClusterBlocks(facts.shape.cluster_blocks);
    kernel.setRegistersPerThread(facts.registers);
    kernel.setStaticSmemBytes(facts.static_smem_bytes);
    kernel.setMaxBlocksPerSm(facts.blocks_per_sm);
    kernel.setIsGraph(graph);
    if (!graph) return;
    auto nodes = kernel.initNodes(static_cast<unsigned>(facts.nodes.size()));
    for (unsigned i = 0; i < nodes.size(); ++i) {
      nodes[i].setKernel(facts.nodes[i].kernel);
      nodes[i].setCount(facts.nodes[i].count);
    }
    kernel.setOtherNodes(facts.other_nodes);
  });
}

void build_need(Packet& packet, const MemoryNeed& need) {
  constexpr size_t kRoom = 128;
  build(packet, kRoom, [&](wire::Message::Builder message) {
    auto out = message.initMemoryNeed();
    out.setDevice(static_cast<uint8_t>(need.device));
    out.setNumber(need.number);
    out.setBytes(need.bytes);
    out.setRelease(need.release);
  });
}

std::string_view command_line() {
  static constinit char text[4096];
  const int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  const ssize_t size = read(fd, text, sizeof text);
  close(fd);
  if (size <= 0) return {};
  const auto length = static_cast<size_t>(size) - (text[size - 1] == '\0' ? 1 : 0);
  std::replace(text, text + length, '\0', ' ');
  return {text, length};
}

}  // namespace heddle::shim
