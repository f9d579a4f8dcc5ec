// The reader of profiles (share/doc/heddle/daemon/profile/README.md). Every complaint is FILE:LINE.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <limits>
#include <unordered_set>

#include "daemon/base/toml.h"
#include "daemon/core/estimator.h"
#include "daemon/profile/profile.h"

namespace heddle::profiles {
namespace {

constexpr double kLongestUs = 1e9;

// One table, key by key; keeps the file's first complaint. finish() refuses what nobody asked for.
class Table {
 public:
  Table(const toml::table& table, const std::string& file, std::string& error)
      : table_(table), file_(file), error_(error) {}

  bool has(std::string_view key) const { return table_.get(key) != nullptr; }

  uint32_t line(std::string_view key) const {
    const toml::node* node = table_.get(key);
    return node != nullptr ? node->source().begin.line : table_.source().begin.line;
  }

  std::string text(std::string_view key) {
    const toml::node* node = need(key);
    if (node != nullptr && !node->is_string()) bad(key, "a text in quotes");
    return node != nullptr ? node->value<std::string>().value_or("") : "";
  }

  double number(std::string_view key, double most) {
    const toml::node* node = need(key);
    if (node == nullptr) return 0;
    const double value = node->value<double>().value_or(-1);
    if (node->is_number() && value >= 0 && value <= most) return value;
    bad(key, "a number from 0 to " + std::to_string(static_cast<uint64_t>(most)));
    return 0;
  }

  uint32_t count(std::string_view key, uint32_t least = 0) {
    const double value = number(key, std::numeric_limits<uint32_t>::max());
    if (value == std::floor(value) && value >= least) return static_cast<uint32_t>(value);
    bad(key, "a whole number from " + std::to_string(least));
    return 0;
  }

  uint64_t key(std::string_view key) {
    const std::string digits = text(key);
    const bool good = digits.size() == 16 && std::all_of(digits.begin(), digits.end(), isxdigit);
    if (!good) bad(key, "16 hexadecimal digits in quotes");
    return good ? std::stoull(digits, nullptr, 16) : 0;
  }

  core::Summary summary(std::string_view key, bool required) {
    core::Summary s{};
    if (!required && table_.get(key) == nullptr) return s;
    const toml::node* node = need(key);
    if (node == nullptr) return s;
    if (!node->is_table()) {
      bad(key, "{ mean = 12.5, p50 = 12.1, p90 = 14.0, count = 32 }, in microseconds");
      return s;
    }
    Table inner(*node->as_table(), file_, error_);
    s.mean_us = static_cast<float>(inner.number("mean", kLongestUs));
    s.p50_us = static_cast<float>(inner.number("p50", kLongestUs));
    s.p90_us = static_cast<float>(inner.number("p90", kLongestUs));
    s.count = inner.count("count", required ? 0 : 1);
    if (s.p90_us < s.p50_us) inner.bad("p90", "no less than p50");
    inner.finish();
    return s;
  }

  std::vector<core::DurationAfter> after(std::string_view key) {
    std::vector<core::DurationAfter> all;
    if (table_.get(key) == nullptr) return all;
    const toml::array* array = need(key)->as_array();
    const bool tables = array != nullptr && array->size() <= core::DurationEstimate::kContextsMax &&
                        array->is_homogeneous<toml::table>();
    if (!tables) {
      bad(key, "[{ kernels = \"0123456789abcdef\", mean = 12.5, count = 32 }], 16 at most");
      return all;
    }
    for (const toml::node& item : *array) {
      Table inner(*item.as_table(), file_, error_);
      const uint64_t before = inner.key("kernels");
      const double mean_us = inner.number("mean", kLongestUs);
      all.push_back({before, static_cast<float>(mean_us), inner.count("count", 1)});
      if (!core::Context(before).known()) inner.bad("kernels", "four kernels' digits, none 0");
      inner.finish();
    }
    return all;
  }

  ipc::KernelMetrics metrics(std::string_view key) {
    ipc::KernelMetrics all{};
    if (table_.get(key) == nullptr) return all;
    const toml::node* node = need(key);
    if (!node->is_table()) {
      bad(key,
          "{ ipc = 1.9, dram_pct = 40.0 }, of the metrics that "
          "share/doc/heddle/daemon/profile/README.md lists");
      return all;
    }
    Table inner(*node->as_table(), file_, error_);
    for (size_t i = 0; i < ipc::kKernelMetricCount; ++i) {
      const char* metric = ipc::kKernelMetrics[i].key;
      if (inner.table_.get(metric) != nullptr) all.set(i, inner.number(metric, kLongestUs));
    }
    inner.finish();
    return all;
  }

  const toml::node* need(std::string_view key) {
    known_.push_back(key);
    const toml::node* node = table_.get(key);
    if (node == nullptr) problem(table_.source(), std::string(key) + " is missing");
    return node;
  }

  void bad(std::string_view key, const std::string& wanted) {
    if (const toml::node* node = table_.get(key)) {
      problem(node->source(), std::string(key) + " must be " + wanted);
    }
  }

  void problem(const toml::source_region& where, const std::string& what) {
    if (!error_.empty()) return;
    error_ = file_ + ":" + std::to_string(std::max<uint32_t>(where.begin.line, 1)) + ": " + what +
             "; mend it as share/doc/heddle/daemon/profile/README.md says, or remove the file and "
             "measure anew";
  }

  void finish() {
    for (const auto& [key, node] : table_) {
      if (std::find(known_.begin(), known_.end(), key.str()) != known_.end()) continue;
      problem(key.source(), "unknown key " + std::string(key.str()));
    }
  }

 private:
  const toml::table& table_;
  const std::string& file_;
  std::string& error_;
  std::vector<std::string_view> known_;
};

Neighbour read_neighbour(Table& in) {
  Neighbour n;
  const std::string channel = in.text("channel");
  const auto& names = core::kChannelNames;
  const auto name = std::find(names.begin(), names.end(), channel);
  if (name == names.end())
    in.bad("channel", "one that share/doc/heddle/daemon/profile/README.md lists");
  else
    n.channel = static_cast<core::Channel>(name - names.begin());
  n.spec = in.text("spec");
  n.use = in.number("use", kLongestUs);
  n.slowdown = in.number("slowdown", kLongestUs);
  n.stretched = in.number("stretched", kLongestUs);
  in.finish();
  return n;
}

Probe read_probe(Table& in, const std::string& file, std::string& error) {
  Probe probe;
  probe.busy = in.number("busy", 1);
  if (probe.busy <= 0) in.bad("busy", "more than 0");
  probe.metrics = in.metrics("metrics");
  const toml::node* node = in.need("beside");
  const toml::array* array = node != nullptr ? node->as_array() : nullptr;
  if (array == nullptr || array->size() > kNeighboursMax ||
      !(array->empty() || array->is_homogeneous<toml::table>())) {
    in.bad("beside",
           "[{ channel = \"dram\", spec = \"dram\", use = 0.9, slowdown = 1.1, stretched = 1.2 }], "
           "256 at most");
  } else {
    for (const toml::node& item : *array) {
      Table inner(*item.as_table(), file, error);
      probe.beside.push_back(read_neighbour(inner));
    }
  }
  in.finish();
  return probe;
}

core::KernelProfile read_kernel(Table& in) {
  core::KernelProfile k{};
  ipc::KernelFacts& f = k.facts;
  f.id = in.key("id");
  const std::string name = in.text("name");
  if (name.size() >= sizeof f.name) {
    in.bad("name", "of " + std::to_string(sizeof f.name - 1) + " bytes at most");
  }
  std::memcpy(f.name, name.data(), std::min(name.size(), sizeof f.name - 1));
  for (const ipc::KernelFact& fact : ipc::kKernelFacts) f.*fact.member = in.count(fact.key);
  k.after = in.after("duration_us_after");
  k.duration = in.summary("duration_us", true);
  k.gap_launching = in.summary("gap_launching_us", false);
  k.gap_synchronized = in.summary("gap_synchronized_us", false);
  f.metrics = in.metrics("metrics");
  in.finish();
  return k;
}

void read_kernels(const toml::node& node, const std::string& file, Table& root, std::string& error,
                  core::TaskProfile& out) {
  const toml::array* array = node.as_array();
  if (array == nullptr || array->size() > kKernelsMax) {
    return root.bad("kernel", "[[kernel]] tables, 65536 at most");
  }
  std::unordered_set<uint64_t> ids;
  for (const toml::node& item : *array) {
    if (!item.is_table()) return root.problem(item.source(), "a kernel must be a [[kernel]] table");
    Table table(*item.as_table(), file, error);
    const core::KernelProfile k = read_kernel(table);
    if (!ids.insert(k.facts.id).second) table.bad("id", "of a kernel that is not there before");
    if (!error.empty()) return;
    out.kernels.push_back(k);
  }
}

// The version is read first: another one may mean anything else by the rest.
Profile read(const toml::table& root, const std::string& file, std::string& error) {
  Profile p;
  Table in(root, file, error);
  const uint32_t version = in.count("version");
  if (error.empty() && version != kVersion) in.bad("version", std::to_string(kVersion));
  if (!error.empty()) return p;
  p.file = file;
  p.gpu = in.text("gpu");
  p.driver = in.text("driver");
  p.gpu_line = in.line("gpu");
  p.driver_line = in.line("driver");
  const toml::node* task = in.need("task");
  if (task != nullptr && !task->is_table()) in.bad("task", "a [task] table");
  if (task != nullptr && task->is_table()) {
    Table t(*task->as_table(), file, error);
    p.task.task = t.key("key");
    p.label = t.text("label");
    p.command = t.text("command");
    if (t.has("uid")) p.uid = t.count("uid");
    p.task.runs = t.count("runs", 1);
    p.measured = t.text("measured");
    t.finish();
  }
  if (in.has("probe")) {
    const toml::node* probe = in.need("probe");
    if (probe->is_table()) {
      Table t(*probe->as_table(), file, error);
      p.probe = read_probe(t, file, error);
    } else {
      in.bad("probe", "a [probe] table");
    }
  }
  if (const toml::node* kernels = in.need("kernel")) {
    read_kernels(*kernels, file, in, error, p.task);
  }
  in.finish();
  return p;
}

}  // namespace

Result<Profile> parse(std::string_view text, const std::string& file) {
  std::string error;
  try {
    Profile profile = read(parse_toml(text, file), file, error);
    if (error.empty()) return profile;
  } catch (const toml::parse_error& e) {
    error = file + ":" + std::to_string(std::max<uint32_t>(e.source().begin.line, 1)) + ": " +
            std::string(e.description()) + "; mend it, or remove the file and measure anew";
  }
  // One line, whatever the file's keys are.
  std::replace_if(
      error.begin(), error.end(), [](unsigned char c) { return iscntrl(c) != 0; }, '?');
  return fail(std::move(error));
}

}  // namespace heddle::profiles
