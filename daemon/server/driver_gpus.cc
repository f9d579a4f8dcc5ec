#include "daemon/server/driver_gpus.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace heddle::server {
namespace {

// "KEY:  VALUE": the value, if that is the line's key.
std::optional<std::string> value_of(const std::string& line, const std::string& key) {
  if (line.rfind(key + ":", 0) != 0) return std::nullopt;
  const size_t at = line.find_first_not_of(" \t", key.size() + 1);
  if (at == std::string::npos) return std::nullopt;
  return line.substr(at, line.find_last_not_of(" \t") + 1 - at);
}

}  // namespace

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
