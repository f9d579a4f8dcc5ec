#include "daemon/server/messages.h"

#include <capnp/message.h>
#include <capnp/serialize.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "ipc/gate.h"
#include "ipc/heddle.capnp.h"
#include "ipc/limits.h"
#include "ipc/sm_set.h"

namespace heddle::server {
namespace {

constexpr int kNestingMax = 8;
constexpr size_t kParamsMax = 64;
constexpr double kTrialMaxS = 30 * 86'400;
constexpr double kSlowdownMost = 100;
constexpr uint64_t kMemoryMost = uint64_t{1} << 48;  // so that sums cannot overflow

std::string cut(capnp::Text::Reader text, size_t most) {
  return std::string(text.cStr(), std::min<size_t>(text.size(), most));
}

void decode_memory(wire::Attach::Reader in, AttachMessage& out) {
  const auto copy = [&](auto list, auto& to) {
    const size_t known = std::min<size_t>(list.size(), out.device_count);
    for (size_t i = 0; i < known; ++i) {
      to[i] = std::min(list[static_cast<unsigned>(i)], kMemoryMost);
    }
  };
  copy(in.getMemoryTotal(), out.memory_total);
  copy(in.getMemoryHeld(), out.memory_held);
  out.memory = cut(in.getMemory(), ipc::kLabelBytes);
  out.run = cut(in.getRun(), ipc::kLabelBytes);
  out.mps_memory_limit = in.getMpsMemoryLimit();
  out.counts_memory = in.getMemoryTotal().size() > 0;
  out.parks = in.getPark() == wire::Park::BY_RULE || in.getPark() == wire::Park::ASKED;
  out.park_asked = in.getPark() == wire::Park::ASKED;
}

// A part outside of 0 to 1 is no limit.
float part_of_peak(float part) { return part > 0 && part < 1 ? std::max(part, 0.01F) : 0; }

AttachMessage decode_attach(wire::Attach::Reader in) {
  AttachMessage out;
  out.protocol_version = in.getProtocolVersion();
  out.label = cut(in.getLabel(), ipc::kLabelBytes);
  out.command = cut(in.getCommand(), ipc::kMessageBytes);
  out.priority = in.getPriority();
  out.streams_wait = in.getStreamsWait();
  out.driver_version = in.getDriverVersion();
  out.device_count = std::clamp(in.getDeviceCount(), 1u, ipc::kDevices);
  out.sm_count = std::min(in.getSmCount(), 4096u);
  out.mps = in.getMps();
  out.mode_told = in.getModeTold();
  out.gpu_name = cut(in.getGpuName(), ipc::kLabelBytes);
  out.sms = cut(in.getSms(), ipc::kLabelBytes);
  for (const uint16_t width : in.getSmGroups()) {
    if (out.sm_groups.size() < ipc::kSmGroups) out.sm_groups.push_back(width);
  }
  for (const uint64_t made : in.getMadeSets()) {
    if (out.made_sets.size() < ipc::kDevices) out.made_sets.push_back(ipc::unpack_made(made));
  }
  const capnp::Data::Reader ids = in.getGpuIds();
  out.gpu_ids.resize(std::min<size_t>(out.device_count, ids.size() / ipc::kGpuIdBytes));
  for (size_t i = 0; i < out.gpu_ids.size(); ++i) {
    std::memcpy(&out.gpu_ids[i], ids.begin() + i * ipc::kGpuIdBytes, ipc::kGpuIdBytes);
  }
  decode_memory(in, out);
  out.channel_max = {part_of_peak(in.getIssueMax()), part_of_peak(in.getL2Max()),
                     part_of_peak(in.getDramMax())};
  out.clocks = {in.getMonotonicNs(), in.getWallNs()};
  return out;
}

Result<Message> decode_need(wire::MemoryNeed::Reader in) {
  const MemoryNeed out{in.getDevice(), in.getNumber(), in.getBytes(), in.getRelease()};
  if (out.device >= ipc::kDevices || out.bytes > kMemoryMost)
    return fail("message: no such memory");
  return out;
}

uint32_t product(uint32_t x, uint32_t y, uint32_t z) {
  constexpr uint64_t kMost = std::numeric_limits<uint32_t>::max();
  const uint64_t xy = std::min(kMost, uint64_t{x} * y);
  return static_cast<uint32_t>(std::min<uint64_t>(kMost, xy * std::min<uint64_t>(z, 1u << 31)));
}

core::NodesBody decode_nodes(wire::RegisterKernel::Reader in) {
  constexpr uint32_t kCountMost = std::numeric_limits<uint16_t>::max();
  core::NodesBody out{};
  out.graph = in.getIndex();
  uint64_t others = in.getOtherNodes();  // and those beyond the room for nodes
  for (const wire::GraphNode::Reader node : in.getNodes()) {
    const bool kept = out.count < out.kMost && node.getKernel() < ipc::kKernels;
    const uint32_t count = kept ? std::min(node.getCount(), kCountMost) : 0;
    others += node.getCount() - count;
    if (kept) {
      out.nodes[out.count++] = {static_cast<uint16_t>(node.getKernel()),
                                static_cast<uint16_t>(count)};
    }
  }
  out.others =
      static_cast<uint32_t>(std::min<uint64_t>(others, std::numeric_limits<uint32_t>::max()));
  return out;
}

KernelMessage decode_kernel(wire::RegisterKernel::Reader in) {
  KernelMessage message{{}, decode_nodes(in)};
  core::KernelBody& out = message.kernel;
  out.index = in.getIndex();
  out.id = in.getId();
  out.grid_blocks = product(in.getGridX(), in.getGridY(), in.getGridZ());
  out.block_threads = product(in.getBlockX(), in.getBlockY(), in.getBlockZ());
  out.dynamic_smem_bytes = in.getDynamicSmemBytes();
  out.static_smem_bytes = in.getStaticSmemBytes();
  out.registers = in.getRegistersPerThread();
  out.max_blocks_per_sm = std::min(in.getMaxBlocksPerSm(), 64u);
  const std::string name = cut(in.getName(), sizeof out.name - 1);
  std::memcpy(out.name, name.data(), name.size());
  return message;
}

Result<Message> decode_request(wire::Request::Reader in) {
  Request out;
  switch (in.which()) {
    case wire::Request::PS:
      out.kind = Request::Kind::kPs;
      break;
    case wire::Request::PS_AFTER:
      out.kind = Request::Kind::kPs;
      out.client = in.getPsAfter();
      break;
    case wire::Request::STATUS:
      out.kind = Request::Kind::kStatus;
      break;
    case wire::Request::POLICY_LIST:
      out.kind = Request::Kind::kPolicyList;
      break;
    case wire::Request::POLICY_LOAD:
      out.kind = Request::Kind::kPolicyLoad;
      out.policy = cut(in.getPolicyLoad(), ipc::kMessageBytes);
      break;
    case wire::Request::POLICY_SET: {
      out.kind = Request::Kind::kPolicySet;
      out.policy = cut(in.getPolicySet().getPolicy(), ipc::kMessageBytes);
      const auto params = in.getPolicySet().getParams();
      if (params.size() > kParamsMax) return fail("request: too many parameters; at most 64");
      for (const auto param : params) {
        out.params.emplace_back(cut(param.getName(), ipc::kMessageBytes),
                                cut(param.getValue(), ipc::kMessageBytes));
      }
      break;
    }
    case wire::Request::BYPASS:
      out.kind = Request::Kind::kBypass;
      out.bypass = in.getBypass();
      break;
    case wire::Request::EFFECTIVE:
      out.kind = Request::Kind::kEffective;
      out.priority = in.getEffective().getPriority();
      out.label = cut(in.getEffective().getLabel(), ipc::kLabelBytes);
      out.command = cut(in.getEffective().getCommand(), ipc::kMessageBytes);
      break;
    case wire::Request::RECORD:
      out.kind = Request::Kind::kRecord;
      break;
    case wire::Request::PROFILE:
      out.kind = Request::Kind::kProfile;
      out.client = in.getProfile();
      break;
    case wire::Request::MPS:
      out.kind = Request::Kind::kMps;
      if (in.getMps() > wire::MpsOrder::STOP) return fail("request: not an order for MPS");
      out.mps = static_cast<Request::MpsOrder>(in.getMps());
      break;
    case wire::Request::POLICY_HISTORY:
      out.kind = Request::Kind::kPolicyHistory;
      break;
    case wire::Request::POLICY_ROLLBACK:
      out.kind = Request::Kind::kPolicyRollback;
      out.generation = in.getPolicyRollback();
      break;
    case wire::Request::POLICY_SHOW:
      out.kind = Request::Kind::kPolicyShow;
      break;
    case wire::Request::POLICY_KEEP:
      out.kind = Request::Kind::kPolicyKeep;
      break;
    case wire::Request::POLICY_TRY:
      out.kind = Request::Kind::kPolicyLoad;
      out.policy = cut(in.getPolicyTry().getPolicy(), ipc::kMessageBytes);
      out.for_s = in.getPolicyTry().getSeconds();
      if (!(out.for_s > 0 && out.for_s <= kTrialMaxS)) {
        return fail("request: a policy is loaded for 30 days at most");
      }
      break;
    case wire::Request::POLICY_RESET:
      out.kind = Request::Kind::kPolicySet;
      out.reset = true;
      out.policy = cut(in.getPolicyReset().getPolicy(), ipc::kMessageBytes);
      if (in.getPolicyReset().getParams().size() > kParamsMax) {
        return fail("request: too many parameters; at most 64");
      }
      for (const auto param : in.getPolicyReset().getParams()) {
        out.params.emplace_back(cut(param, ipc::kMessageBytes), "");
      }
      break;
    case wire::Request::POLICY_SHADOW:
      out.kind = Request::Kind::kPolicyShadow;
      out.policy = cut(in.getPolicyShadow(), ipc::kMessageBytes);
      break;
    case wire::Request::POLICY_SHADOW_TOLD:
      out.kind = Request::Kind::kPolicyShadowTold;
      break;
    case wire::Request::POLICY_SHADOW_STOP:
      out.kind = Request::Kind::kPolicyShadowStop;
      break;
    case wire::Request::POLICY_PROMOTE:
      out.kind = Request::Kind::kPolicyPromote;
      out.slowdown_max = in.getPolicyPromote().getSlowdown();
      out.for_s = in.getPolicyPromote().getSeconds();
      if (!(out.for_s > 0 && out.for_s <= kTrialMaxS) ||
          !(out.slowdown_max > 1 && out.slowdown_max <= kSlowdownMost)) {
        return fail("request: promote takes a slowdown above 1 and at most 30 days");
      }
      break;
    case wire::Request::EXPLAIN:
      out.kind = Request::Kind::kExplain;
      out.client = in.getExplain();
      break;
    default:
      return fail("request: this daemon does not know it; use the heddle of the same version");
  }
  return out;
}

// Calls `read` with the message in `packet`; an exception of the decoder becomes an error.
template <class T, class Read>
Result<T> decode(std::span<const std::byte> packet, Read&& read) {
  if (packet.size() % sizeof(capnp::word) != 0) return fail("message: not whole words");
  try {
    capnp::ReaderOptions limits;
    limits.traversalLimitInWords = 2 * packet.size() / sizeof(capnp::word) + 64;
    limits.nestingLimit = kNestingMax;
    capnp::FlatArrayMessageReader reader(
        kj::arrayPtr(reinterpret_cast<const capnp::word*>(packet.data()),
                     packet.size() / sizeof(capnp::word)),
        limits);
    return read(reader.getRoot<wire::Message>());
  } catch (const kj::Exception& exception) {
    return fail(std::string("message: malformed: ") + exception.getDescription().cStr());
  }
}

std::vector<std::byte> to_bytes(capnp::MessageBuilder& message) {
  const kj::Array<capnp::word> words = capnp::messageToFlatArray(message);
  const kj::ArrayPtr<const kj::byte> bytes = words.asBytes();
  std::vector<std::byte> out(bytes.size());
  std::memcpy(out.data(), bytes.begin(), bytes.size());
  return out;
}

void fill_request(wire::Request::Builder out, const Request& in) {
  switch (in.kind) {
    case Request::Kind::kPs:
      return in.client == 0 ? out.setPs() : out.setPsAfter(in.client);
    case Request::Kind::kStatus:
      return out.setStatus();
    case Request::Kind::kPolicyList:
      return out.setPolicyList();
    case Request::Kind::kRecord:
      return out.setRecord();
    case Request::Kind::kProfile:
      return out.setProfile(in.client);
    case Request::Kind::kMps:
      return out.setMps(static_cast<wire::MpsOrder>(in.mps));
    case Request::Kind::kPolicyLoad: {
      if (in.for_s == 0) return out.setPolicyLoad(in.policy.c_str());
      auto trial = out.initPolicyTry();
      trial.setPolicy(in.policy.c_str());
      return trial.setSeconds(in.for_s);
    }
    case Request::Kind::kPolicyHistory:
      return out.setPolicyHistory();
    case Request::Kind::kPolicyRollback:
      return out.setPolicyRollback(in.generation);
    case Request::Kind::kPolicyShow:
      return out.setPolicyShow();
    case Request::Kind::kPolicyKeep:
      return out.setPolicyKeep();
    case Request::Kind::kPolicyShadow:
      return out.setPolicyShadow(in.policy.c_str());
    case Request::Kind::kPolicyShadowTold:
      return out.setPolicyShadowTold();
    case Request::Kind::kPolicyShadowStop:
      return out.setPolicyShadowStop();
    case Request::Kind::kPolicyPromote: {
      auto promote = out.initPolicyPromote();
      promote.setSlowdown(in.slowdown_max);
      return promote.setSeconds(in.for_s);
    }
    case Request::Kind::kExplain:
      return out.setExplain(in.client);
    case Request::Kind::kBypass:
      return out.setBypass(in.bypass);
    case Request::Kind::kPolicySet: {
      if (in.reset) {
        auto group = out.initPolicyReset();
        group.setPolicy(in.policy.c_str());
        auto names = group.initParams(static_cast<unsigned>(in.params.size()));
        for (unsigned i = 0; i < names.size(); ++i) names.set(i, in.params[i].first.c_str());
        return;
      }
      auto group = out.initPolicySet();
      group.setPolicy(in.policy.c_str());
      auto params = group.initParams(static_cast<unsigned>(in.params.size()));
      for (unsigned i = 0; i < params.size(); ++i) {
        params[i].setName(in.params[i].first.c_str());
        params[i].setValue(in.params[i].second.c_str());
      }
      return;
    }
    case Request::Kind::kEffective: {
      auto group = out.initEffective();
      group.setPriority(static_cast<int8_t>(in.priority));
      group.setLabel(in.label.c_str());
      group.setCommand(in.command.c_str());
      return;
    }
  }
}

}  // namespace

Result<Message> decode_message(std::span<const std::byte> packet) {
  return decode<Message>(packet, [](wire::Message::Reader message) -> Result<Message> {
    switch (message.which()) {
      case wire::Message::ATTACH:
        return decode_attach(message.getAttach());
      case wire::Message::REGISTER_KERNEL:
        return decode_kernel(message.getRegisterKernel());
      case wire::Message::MEMORY_NEED:
        return decode_need(message.getMemoryNeed());
      case wire::Message::REQUEST:
        return decode_request(message.getRequest());
      default:
        return fail("message: not one that a daemon takes");
    }
  });
}

std::vector<std::byte> encode_reply(const Reply& in) {
  capnp::MallocMessageBuilder message;
  auto reply = message.initRoot<wire::Message>().initReply();
  reply.setOk(in.ok);
  reply.setError(in.error.c_str());
  reply.setJson(in.json.c_str());
  std::vector<std::byte> packet = to_bytes(message);
  if (packet.size() <= ipc::kReplyBytes) return packet;
  return encode_reply({false, "the answer is too long for one packet", "{}"});
}

std::vector<std::byte> encode_request(const Request& request) {
  capnp::MallocMessageBuilder message;
  fill_request(message.initRoot<wire::Message>().initRequest(), request);
  return to_bytes(message);
}

Result<Reply> decode_reply(std::span<const std::byte> packet) {
  return decode<Reply>(packet, [](wire::Message::Reader message) -> Result<Reply> {
    if (!message.isReply()) return fail("message: not a reply");
    const auto reply = message.getReply();
    return Reply{reply.getOk(), reply.getError().cStr(), reply.getJson().cStr()};
  });
}

}  // namespace heddle::server
