#include "daemon/profile/gpu_model.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <sstream>
#include <variant>
#include <vector>

#include "daemon/base/files.h"
#include "daemon/base/toml.h"

namespace heddle::profiles {
namespace {

using core::DeviceModel;

struct Key {
  const char* table;
  const char* key;
  std::variant<uint32_t*, double*> value;
  double least, most;
};

// Every key of a file but version and gpu; all are required.
std::vector<Key> keys_of(DeviceModel& m) {
  return {{"sm", "total", &m.sm_total, 1, 10'000},
          {"sm", "groups", &m.sm_groups, 1, 32},
          {"sm", "threads", &m.threads_per_sm, 32, 1e5},
          {"sm", "registers", &m.registers_per_sm, 1, 1e7},
          {"sm", "smem_bytes", &m.smem_bytes_per_sm, 1, 1e8},
          {"sm", "smem_bytes_reserved", &m.smem_bytes_reserved, 0, 1e6},
          {"sm", "blocks", &m.blocks_per_sm, 1, 1024},
          {"sm", "issue_per_cycle", &m.issue_per_cycle, 0.25, 64},
          {"cache", "l1_kb", &m.l1_kb, 1, 1e6},
          {"cache", "l1_miss_cost", &m.l1_miss_cost, 1, 100},
          {"cache", "l2_mb", &m.l2_mb, 0.1, 1e6},
          {"cache", "l2_miss_cost", &m.l2_miss_cost, 1, 100},
          {"metrics", "dram_gb_s", &m.dram_gb_s, 1, 1e6},
          {"metrics", "dram_peak_pct", &m.dram_peak_pct, 1, 100},
          {"metrics", "l2_peak_pct", &m.l2_peak_pct, 1, 1000},
          {"metrics", "smem_peak_pct", &m.smem_peak_pct, 1, 1000},
          {"estimate", "launch_gap_us", &m.launch_gap_us, 0, 100},
          {"estimate", "together", &m.together, 1, 100}};
}

class Reader {
 public:
  explicit Reader(const std::string& file) : file_(file) {}

  const std::string& error() const { return error_; }

  void problem(const toml::source_region& where, const std::string& what) {
    if (!error_.empty()) return;
    error_ = file_ + ":" + std::to_string(std::max<uint32_t>(where.begin.line, 1)) + ": " + what +
             "; mend it as profiles/gpu/README.md says, or copy a model that is shipped";
  }

  const toml::table* table(const toml::table& in, const std::string& key) {
    const toml::node* node = in.get(key);
    if (node == nullptr) problem(in.source(), "[" + key + "] is missing");
    if (node != nullptr && !node->is_table()) problem(node->source(), key + " must be a table");
    return node != nullptr ? node->as_table() : nullptr;
  }

  double number(const toml::table& in, const std::string& key, double least, double most) {
    const toml::node* node = in.get(key);
    if (node == nullptr) {
      problem(in.source(), key + " is missing");
      return least;
    }
    const double value = node->value<double>().value_or(NAN);
    if (node->is_number() && value >= least && value <= most) return value;
    std::ostringstream wanted;
    wanted << key << " must be a number from " << least << " to " << most;
    problem(node->source(), wanted.str());
    return least;
  }

  void known(const toml::table& in, const std::vector<std::string>& keys) {
    for (const auto& [key, node] : in) {
      if (std::find(keys.begin(), keys.end(), key.str()) != keys.end()) continue;
      problem(key.source(), "unknown key " + std::string(key.str()));
    }
  }

 private:
  const std::string& file_;
  std::string error_;
};

void read_limits(const toml::table& root, Reader& in, DeviceModel& model) {
  const toml::table* all = in.table(root, "limit");
  if (all == nullptr) return;
  std::vector<std::string> names;
  for (size_t i = 0; i < core::kChannels; ++i) {
    names.emplace_back(core::kChannelNames[i]);
    const toml::table* one = in.table(*all, names.back());
    if (one == nullptr) return;
    model.limits[i].capacity = in.number(*one, "capacity", 0.01, 10);
    model.limits[i].sharpness = in.number(*one, "sharpness", 1, 1000);
    in.known(*one, {"capacity", "sharpness"});
  }
  in.known(*all, names);
}

void read_keys(const toml::table& root, Reader& in, DeviceModel& model) {
  const std::vector<Key> keys = keys_of(model);
  for (const Key& key : keys) {
    const toml::table* table = in.table(root, key.table);
    if (table == nullptr) return;
    const double value = in.number(*table, key.key, key.least, key.most);
    if (const auto* real = std::get_if<double*>(&key.value)) **real = value;
    if (const auto* whole = std::get_if<uint32_t*>(&key.value)) {
      if (value != std::floor(value)) {
        in.problem(table->get(key.key)->source(), std::string(key.key) + " must be a whole number");
      }
      **whole = static_cast<uint32_t>(value);
    }
  }
  for (const char* name : {"sm", "cache", "metrics", "estimate"}) {
    std::vector<std::string> names;
    for (const Key& key : keys) {
      if (std::string_view(key.table) == name) names.emplace_back(key.key);
    }
    in.known(*root.get(name)->as_table(), names);
  }
}

DeviceModel read(const toml::table& root, Reader& in) {
  DeviceModel model;
  const double version = in.number(root, "version", 1, kGpuModelVersion);
  const toml::node* gpu = root.get("gpu");
  if (gpu == nullptr || !gpu->is_string() || gpu->value<std::string>()->empty()) {
    in.problem(gpu != nullptr ? gpu->source() : root.source(),
               "gpu must be how the names of the devices begin, such as \"NVIDIA H100\"");
    return model;
  }
  model.gpu = *gpu->value<std::string>();
  if (version != kGpuModelVersion) return model;
  read_keys(root, in, model);
  read_limits(root, in, model);
  in.known(root, {"version", "gpu", "sm", "cache", "metrics", "estimate", "limit"});
  return model;
}

}  // namespace

Result<DeviceModel> parse_gpu_model(std::string_view text, const std::string& file) {
  std::string error;
  try {
    Reader in(file);
    DeviceModel model = read(parse_toml(text, file), in);
    if (in.error().empty()) return model;
    error = in.error();
  } catch (const toml::parse_error& e) {
    error = file + ":" + std::to_string(std::max<uint32_t>(e.source().begin.line, 1)) + ": " +
            std::string(e.description()) + "; mend it, or copy a model that is shipped";
  }
  std::replace_if(
      error.begin(), error.end(), [](unsigned char c) { return iscntrl(c) != 0; }, '?');
  return fail(std::move(error));
}

Result<DeviceModel> load_gpu_model(const std::string& path) {
  const auto text = read_file(path, "check the path and its permissions");
  return text ? parse_gpu_model(*text, path) : tl::unexpected<Error>(text.error());
}

Result<DeviceModel> find_gpu_model(const std::string& directory, const std::string& gpu) {
  DeviceModel best;
  bool found = false;
  for (const std::string& file : files_of({directory}, ".toml", Depth::kDirectory)) {
    Result<DeviceModel> model = load_gpu_model(file);
    if (!model) return model;
    if (!gpu.starts_with(model->gpu) || (found && model->gpu.size() <= best.gpu.size())) continue;
    best = std::move(*model);
    found = true;
  }
  if (found) return best;
  return fail(directory + ": no model of \"" + gpu +
              "\"; copy one to NAME.toml there, set gpu, and fit its constants with "
              "heddle-bench interference --fit");
}

}  // namespace heddle::profiles
