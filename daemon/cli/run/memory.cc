#include "daemon/cli/run/memory.h"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "daemon/cli/doctor/probe.h"
#include "ipc/memory.h"
#include "ipc/socket.h"

namespace heddle::cli {
namespace {

using nlohmann::json;

// How many of `total` devices a CUDA_VISIBLE_DEVICES leaves: those before the first absent one.
size_t count_visible(const std::string& list, size_t total) {
  size_t count = 0;
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    const std::string item = list.substr(at, end - at);
    const bool index = !item.empty() && item.size() <= 3 &&
                       item.find_first_not_of("0123456789") == std::string::npos;
    const bool uuid = item.rfind("GPU-", 0) == 0 || item.rfind("MIG-", 0) == 0;
    if (!uuid && !(index && std::stoul(item) < total)) break;
    ++count;
    at = end + 1;
  }
  return count;
}

// Bytes on every GPU; 0 where a percentage is of GPUs that differ, or of unknown ones.
uint64_t bytes_of(const ipc::MemoryAmount& amount, const json& gpus) {
  if (amount.percent == 0) return amount.bytes;
  std::set<uint64_t> totals;
  for (const json& gpu : gpus) totals.insert(gpu.value("memory", uint64_t{0}));
  return totals.size() == 1 ? amount.of(*totals.begin()) : 0;
}

// MPS counts the context too (552 MiB on an H100), its stacks, and an own export that is imported
// again once more: it has room for that, and refuses nothing that the shim allows. No more than a
// GPU has, as far as that is known.
uint64_t mps_mib(const std::string& limit, const json& gpus) {
  constexpr uint64_t kRoomMib = 2048;
  const auto amount = ipc::parse_memory(limit);
  const uint64_t mib = amount ? bytes_of(*amount, gpus) >> 20 : 0;
  if (mib == 0) return 0;
  uint64_t most = 0;
  for (const json& gpu : gpus) most = std::max(most, gpu.value("memory", uint64_t{0}) >> 20);
  return most != 0 ? std::min(mib + kRoomMib, most) : mib + kRoomMib;
}

std::string value_of(uint64_t mib, size_t devices) {
  std::string text;
  for (size_t i = 0; i < devices; ++i) {
    text += (i == 0 ? "" : ",") + std::to_string(i) + '=' + std::to_string(mib) + 'M';
  }
  return text;
}

// As the shim decides it (shim/link/helper.cc).
bool mps_answers(const json& mps) {
  if (!mps.is_object()) return false;
  const std::string control = mps.value("directory", "") + "/control";
  return access(control.c_str(), F_OK) == 0 && !ipc::is_stale_socket(control.c_str());
}

// CUDA_VISIBLE_DEVICES of a process; "" if it has none, or the caller may not see it.
std::string visible_of(int pid) {
  constexpr std::string_view kName = "CUDA_VISIBLE_DEVICES=";
  if (pid <= 0) return "";
  std::ifstream in("/proc/" + std::to_string(pid) + "/environ");
  for (std::string entry; std::getline(in, entry, '\0');) {
    if (entry.rfind(kName, 0) == 0) return entry.substr(kName.size());
  }
  return "";
}

}  // namespace

MemoryHold hold_memory(const MemorySetting& setting) {
  MemoryHold hold{setting.daemon ? "shim" : "none", "", ""};
  if (!setting.mps) {
    if (!setting.daemon) hold.why = "no heddled answers and no MPS runs";
    return hold;
  }
  const auto with_mps = [&](const std::string& value) {
    hold.by = setting.daemon ? "shim and mps" : "mps";
    hold.why = std::string(kMpsMemoryLimit) + '=' + value;
  };
  if (!setting.given.empty()) {
    with_mps(setting.given + ", which was set before");
    return hold;
  }
  const json gpus =
      setting.nvml.is_object() ? setting.nvml.value("gpus", json::array()) : json::array();
  size_t devices = std::max<size_t>(gpus.size(), 1);  // a program that uses GPUs has a device 0
  if (!setting.mps_visible.empty()) devices = count_visible(setting.mps_visible, devices);
  if (setting.visible != nullptr) devices = count_visible(setting.visible, devices);
  const uint64_t mib = mps_mib(setting.limit, gpus);
  if (mib == 0 || devices == 0) {
    hold.why = devices == 0 ? "not by MPS: the program sees no GPU"
                            : "not by MPS: what part of a GPU has how many MiB is not known; "
                              "say --memory in GiB";
    return hold;
  }
  hold.mps_limit = value_of(mib, devices);
  with_mps(hold.mps_limit);
  return hold;
}

MemoryHold set_memory_limit(const std::string& limit, bool daemon) {
  MemorySetting setting;
  setting.limit = limit;
  setting.daemon = daemon;
  const json mps = probe_mps("", 0);
  setting.mps = mps_answers(mps);
  setting.visible = getenv("CUDA_VISIBLE_DEVICES");
  if (const char* given = getenv(kMpsMemoryLimit); given != nullptr) setting.given = given;
  if (setting.mps && setting.given.empty()) {
    setting.mps_visible = visible_of(mps.value("pid", 0));
    setting.nvml = probe_gpu().value("nvml", json());
  }
  MemoryHold hold = hold_memory(setting);
  if (!hold.mps_limit.empty()) setenv(kMpsMemoryLimit, hold.mps_limit.c_str(), 1);
  return hold;
}

}  // namespace heddle::cli
