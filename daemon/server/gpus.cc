#include "daemon/server/gpus.h"

#include <algorithm>
#include <bit>
#include <filesystem>
#include <fstream>

#include "daemon/profile/gpu_model.h"

namespace heddle::server {
namespace {

constexpr GpuId kUnknown{};

GpuNumbers::Numbers bit(uint8_t number) { return GpuNumbers::Numbers{1} << number; }

// "KEY:  VALUE": the value, if that is the line's key.
std::optional<std::string> value_of(const std::string& line, const std::string& key) {
  if (line.rfind(key + ":", 0) != 0) return std::nullopt;
  const size_t at = line.find_first_not_of(" \t", key.size() + 1);
  if (at == std::string::npos) return std::nullopt;
  return line.substr(at, line.find_last_not_of(" \t") + 1 - at);
}

}  // namespace

void GpuNumbers::keep(std::span<const GpuId> gpus) {
  for (uint8_t i = 0; i < std::min<size_t>(gpus.size(), ids_.size()); ++i) {
    ids_[i] = gpus[i];
    kept_ |= bit(i);
  }
}

// The client's own number if that is free, as it is if all clients see all GPUs.
uint8_t GpuNumbers::find(const GpuId& id, uint8_t device, Numbers held) const {
  if (id == kUnknown) return device;
  const auto known = std::find(ids_.begin(), ids_.end(), id);
  if (known != ids_.end()) return static_cast<uint8_t>(known - ids_.begin());
  if (ids_[device] == kUnknown) return device;
  for (const bool unused : {true, false}) {
    for (uint8_t number = 0; number < ipc::kDevices; ++number) {
      if ((held & bit(number)) == 0 && (!unused || ids_[number] == kUnknown)) return number;
    }
  }
  return kNoGpu;
}

DeviceMap GpuNumbers::map(std::span<const GpuId> devices, Numbers held, Numbers own,
                          bool privileged) {
  DeviceMap map = same_numbers();
  Numbers mine = 0;
  // Half of the rest for each user, so that a few users cannot take all numbers.
  const int left = static_cast<int>(ipc::kDevices) - std::popcount((held & ~own) | kept_);
  for (uint8_t device = 0; device < ipc::kDevices; ++device) {
    const GpuId& id = device < devices.size() ? devices[device] : kUnknown;
    uint8_t& number = map[device];
    number = find(id, device, held | mine | kept_);
    const bool is_new = number != kNoGpu && id != kUnknown && ids_[number] != id;
    const bool many = std::popcount((own | mine) & ~kept_) >= (left + 1) / 2;
    if (number == kNoGpu || (mine & bit(number)) != 0 || (is_new && many && !privileged)) {
      number = kNoGpu;  // no number is free, it is used twice, or the user has enough
      continue;
    }
    if (is_new) ids_[number] = id;
    mine |= bit(number);
  }
  return map;
}

std::string GpuNumbers::text(uint8_t number) const {
  const GpuId& id = ids_[number];
  if (id == kUnknown) return "";
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "GPU-";
  for (size_t i = 0; i < id.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += kDigits[id[i] >> 4];
    text += kDigits[id[i] & 0xf];
  }
  return text;
}

std::string installed_gpu_models() {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  return (self.parent_path().parent_path() / "share/heddle/gpu").string();
}

void use_gpu_model(core::Scheduler& scheduler, const std::string& directory, const std::string& gpu,
                   Log& log) {
  Result<core::DeviceModel> model = profiles::find_gpu_model(directory, gpu);
  if (!model) {
    log.info(kSomeClient, "gpu_model_unknown",
             {{"gpu", gpu},
              {"reason", model.error().message},
              {"hint", "until then prices of promises are an H100's"}});
    return;
  }
  log.info(kSomeClient, "gpu_model", {{"gpu", gpu}, {"model", model->gpu}});
  scheduler.set_device_model(*model);
}

std::optional<GpuId> parse_gpu_id(const std::string& text) {
  if (text.rfind("GPU-", 0) != 0) return std::nullopt;
  std::string digits = text.substr(4);
  std::erase(digits, '-');
  const auto is_hex = [](unsigned char c) { return isxdigit(c) != 0; };
  GpuId id{};
  if (digits.size() != 2 * id.size() || !std::all_of(digits.begin(), digits.end(), is_hex)) {
    return std::nullopt;
  }
  for (size_t i = 0; i < id.size(); ++i) {
    id[i] = static_cast<uint8_t>(std::stoul(digits.substr(2 * i, 2), nullptr, 16));
  }
  return id;
}

std::vector<DriverGpu> driver_gpus(const std::string& directory) {
  std::error_code error;
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<DriverGpu> gpus;
  for (const auto& path : paths) {
    std::ifstream file(path / "information");
    DriverGpu gpu;
    std::optional<GpuId> id;
    for (std::string line; std::getline(file, line);) {
      if (const auto model = value_of(line, "Model")) gpu.model = *model;
      if (const auto uuid = value_of(line, "GPU UUID")) id = parse_gpu_id(*uuid);
    }
    if (!id) continue;
    gpu.id = *id;
    gpus.push_back(std::move(gpu));
  }
  return gpus;
}

bool has_model(const std::vector<DriverGpu>& gpus, const std::string& name) {
  return std::any_of(gpus.begin(), gpus.end(), [&name](const DriverGpu& gpu) {
    return name == gpu.model || name.rfind(gpu.model + " MIG ", 0) == 0;
  });
}

}  // namespace heddle::server
