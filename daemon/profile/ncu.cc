#include "daemon/profile/ncu.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <locale>
#include <optional>
#include <sstream>
#include <tuple>

namespace heddle::profiles {
namespace {

constexpr NcuMetric kMetrics[] = {
    {"ipc", "sm__inst_issued.avg.per_cycle_active", "inst/cycle"},
    {"fma_pct", "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active", "%"},
    {"fp64_pct", "sm__inst_executed_pipe_fp64.avg.pct_of_peak_sustained_active", "%"},
    {"tensor_pct", "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active", "%"},
    {"smem_pct", "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum.pct_of_peak_sustained_elapsed",
     "%"},
    {"l1_hit_pct", "l1tex__t_sector_hit_rate.pct", "%"},
    {"l2_pct", "lts__throughput.avg.pct_of_peak_sustained_elapsed", "%"},
    {"l2_hit_pct", "lts__t_sector_hit_rate.pct", "%"},
    {"dram_pct", "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", "%"},
    {"sm_active_pct", "sm__cycles_active.avg.pct_of_peak_sustained_elapsed", "%"},
    {"occupancy_pct", "sm__warps_active.avg.pct_of_peak_sustained_active", "%"},
    {"tensor_active_pct", "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active", "%"},
    {"dram_read_mb", "dram__bytes_read.sum", "byte", 1e-6},
    {"dram_write_mb", "dram__bytes_write.sum", "byte", 1e-6},
    {"l2_write_mb", "lts__t_sectors_op_write.sum", "sector", 32e-6},
};

// What else is collected: it says which kernel it was. Units differ with --print-units.
constexpr const char* kDuration = "gpu__time_duration.sum";
constexpr const char* kRegisters = "launch__registers_per_thread";
constexpr const char* kStaticSmem = "launch__shared_mem_per_block_static";
constexpr const char* kDynamicSmem = "launch__shared_mem_per_block_dynamic";

struct UnitFactor {
  std::string_view unit;
  double factor;
};
constexpr UnitFactor kToUs[] = {{"ns", 1e-3}, {"nsecond", 1e-3}, {"us", 1},  {"usecond", 1},
                                {"ms", 1e3},  {"msecond", 1e3},  {"s", 1e6}, {"second", 1e6}};
constexpr UnitFactor kToBytes[] = {{"byte/block", 1}, {"byte", 1},          {"Kbyte/block", 1e3},
                                   {"Kbyte", 1e3},    {"Mbyte/block", 1e6}, {"Mbyte", 1e6}};
constexpr UnitFactor kToRegisters[] = {{"register/thread", 1}, {"", 1}};

constexpr const char* kHowTo =
    "; write it with heddle profile collect-metrics, or LC_ALL=C ncu --csv --page raw "
    "--print-units base --print-kernel-base mangled --metrics ...";

struct Value {
  std::string text, unit;
  uint32_t line = 0;
};

struct Launch {
  std::string name;
  uint32_t grid_blocks = 0, block_threads = 0, line = 0;
  std::map<std::string, Value, std::less<>> values;  // by Nsight Compute's names
};

using Row = std::vector<std::string>;

// One line of CSV, its quotes removed.
Row split(std::string_view line) {
  Row row(1);
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quoted && c == '"' && i + 1 < line.size() && line[i + 1] == '"') {
      row.back() += c;
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      row.emplace_back();
    } else if (c != '\r') {
      row.back() += c;
    }
  }
  return row;
}

// "(132, 1, 1)", or a number.
std::optional<uint32_t> product(std::string_view text) {
  uint64_t all = 1;
  bool any = false;
  for (size_t i = 0; i < text.size();) {
    if (isdigit(static_cast<unsigned char>(text[i])) == 0) {
      ++i;
      continue;
    }
    uint32_t n = 0;
    const auto [end, error] = std::from_chars(text.data() + i, text.data() + text.size(), n);
    if (error != std::errc()) return std::nullopt;
    i = static_cast<size_t>(end - text.data());
    all *= n;
    any = true;
    if (all > UINT32_MAX) return std::nullopt;
  }
  return any ? std::optional(static_cast<uint32_t>(all)) : std::nullopt;
}

// With commas between thousands at most.
std::optional<double> number(std::string text) {
  const size_t comma = text.rfind(',');
  if (comma != text.npos) {
    const size_t end = std::min(text.find('.', comma), text.size());
    if (end - comma != 4 || text.find('.') < comma) return std::nullopt;
    std::erase(text, ',');
  }
  std::istringstream in(text);
  in.imbue(std::locale::classic());
  double value = 0;
  return in >> value && in.eof() && std::isfinite(value) ? std::optional(value) : std::nullopt;
}

bool is_missing(const std::string& text) {
  return text.empty() || text == "n/a" || text == "N/A" || text == "nan" || text == "-nan" ||
         text.starts_with("(!)");
}

class Parser {
 public:
  Parser(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  Result<NcuReport> parse() {
    read_rows();
    if (error_.empty() && columns_.empty()) problem(1, "has no header of ncu --csv");
    if (error_.empty() && launches_.empty()) problem(line_, "has no kernel");
    NcuReport report;
    if (error_.empty()) report = join();
    if (!error_.empty()) return fail(error_);
    return report;
  }

 private:
  void problem(uint32_t line, const std::string& what) {
    if (error_.empty()) error_ = file_ + ":" + std::to_string(line) + ": " + what + kHowTo;
  }

  int column(std::string_view name) const {
    const auto it = std::find(columns_.begin(), columns_.end(), name);
    return it != columns_.end() ? static_cast<int>(it - columns_.begin()) : -1;
  }

  void read_rows() {
    while (!text_.empty() && error_.empty()) {
      const size_t end = std::min(text_.find('\n'), text_.size());
      const std::string_view line = text_.substr(0, end);
      text_.remove_prefix(std::min(end + 1, text_.size()));
      ++line_;
      if (columns_.empty()) {
        // Before the header: what ncu and the program printed.
        Row row = split(line);
        if (row[0] == "ID" && std::find(row.begin(), row.end(), "Kernel Name") != row.end()) {
          columns_ = std::move(row);
        }
      } else if (!line.empty() && !line.starts_with("==") && line != "\r") {
        take(split(line));
      }
    }
  }

  void take(const Row& row) {
    if (row.size() != columns_.size()) {
      return problem(line_, "has " + std::to_string(row.size()) + " columns, the header " +
                                std::to_string(columns_.size()));
    }
    const int metric = column("Metric Name");
    const std::string& id = row[0];
    if (metric < 0 && id.empty()) {  // the second row of --page raw
      units_ = row;
      return;
    }
    Launch* launch = launch_of(row, id);
    if (launch == nullptr) return;
    if (metric >= 0) {
      const int unit = column("Metric Unit"), value = column("Metric Value");
      if (unit < 0 || value < 0) return problem(line_, "has no Metric Unit or Metric Value");
      launch->values[row[static_cast<size_t>(metric)]] = {row[static_cast<size_t>(value)],
                                                          row[static_cast<size_t>(unit)], line_};
      return;
    }
    if (units_.empty()) return problem(line_, "has no row of units below its header");
    for (size_t i = 0; i < row.size(); ++i) {
      if (columns_[i].find("__") != std::string::npos) {
        launch->values[columns_[i]] = {row[i], units_[i], line_};
      }
    }
  }

  // The row's launch; rows of one ID are one.
  Launch* launch_of(const Row& row, const std::string& id) {
    const int process = column("Process ID");
    const std::string key = (process >= 0 ? row[static_cast<size_t>(process)] : "") + "/" + id;
    const auto [it, fresh] = by_id_.emplace(key, launches_.size());
    if (!fresh) return &launches_[it->second];
    const int grid = column("Grid Size"), block = column("Block Size");
    Launch launch;
    launch.name = row[static_cast<size_t>(column("Kernel Name"))];
    launch.line = line_;
    if (launch.name.find_first_of("(<>& ") != std::string::npos) {
      problem(line_, "kernel names are demangled, the driver's are not");
      return nullptr;
    }
    const auto grid_blocks = grid >= 0 ? product(row[static_cast<size_t>(grid)]) : std::nullopt;
    const auto block_threads = block >= 0 ? product(row[static_cast<size_t>(block)]) : std::nullopt;
    if (!grid_blocks || !block_threads) {
      problem(line_, "has no Grid Size or Block Size such as (132, 1, 1)");
      return nullptr;
    }
    launch.grid_blocks = *grid_blocks;
    launch.block_threads = *block_threads;
    launches_.push_back(std::move(launch));
    return &launches_.back();
  }

  // The value, times the factor of its unit; nothing if it is missing.
  std::optional<double> value_of(const Launch& launch, std::string_view name,
                                 std::span<const UnitFactor> units) {
    const auto it = launch.values.find(name);
    if (it == launch.values.end() || is_missing(it->second.text)) return std::nullopt;
    const Value& v = it->second;
    const auto unit = std::find_if(units.begin(), units.end(),
                                   [&](const UnitFactor& u) { return u.unit == v.unit; });
    if (unit == units.end()) {
      problem(v.line, std::string(name) + " is in \"" + v.unit + "\", wanted is \"" +
                          std::string(units[0].unit) + "\"");
      return std::nullopt;
    }
    const std::optional<double> value = number(v.text);
    if (!value || *value < 0) {
      problem(v.line, std::string(name) + " is no number: " + v.text);
      return std::nullopt;
    }
    return *value * unit->factor;
  }

  NcuKernel kernel_of(const Launch& launch) {
    NcuKernel k;
    k.name = launch.name;
    k.grid_blocks = launch.grid_blocks;
    k.block_threads = launch.block_threads;
    k.duration_us = value_of(launch, kDuration, kToUs).value_or(0);
    k.registers = static_cast<uint32_t>(value_of(launch, kRegisters, kToRegisters).value_or(0));
    k.static_smem_bytes =
        static_cast<uint32_t>(value_of(launch, kStaticSmem, kToBytes).value_or(0));
    k.dynamic_smem_bytes = std::llround(value_of(launch, kDynamicSmem, kToBytes).value_or(-1));
    if (k.duration_us > 0) k.metrics.emplace("us_profiled", k.duration_us);
    for (const NcuMetric& m : kMetrics) {
      const UnitFactor unit[] = {{m.unit, m.factor}};
      if (const auto value = value_of(launch, m.ncu, unit)) {
        k.metrics.emplace(m.key, *value);
      } else {
        k.missing.emplace_back(m.key);
      }
    }
    return k;
  }

  NcuReport join() {
    NcuReport report;
    std::map<std::tuple<std::string, uint32_t, uint32_t, int64_t>, std::vector<NcuKernel>> all;
    std::vector<decltype(all)::key_type> order;
    for (const Launch& launch : launches_) {
      NcuKernel k = kernel_of(launch);
      const auto key = std::tuple(k.name, k.grid_blocks, k.block_threads, k.dynamic_smem_bytes);
      if (!all.contains(key)) order.push_back(key);
      all[key].push_back(std::move(k));
    }
    for (const auto& key : order) {
      std::vector<NcuKernel>& same = all[key];
      std::stable_sort(same.begin(), same.end(), [](const NcuKernel& a, const NcuKernel& b) {
        return a.duration_us < b.duration_us;
      });
      NcuKernel middle = same[(same.size() - 1) / 2];
      middle.launches = static_cast<uint32_t>(same.size());
      middle.shortest_us = same.front().duration_us;
      middle.longest_us = same.back().duration_us;
      report.kernels.push_back(std::move(middle));
    }
    for (const NcuMetric& m : kMetrics) {
      const bool none = std::all_of(report.kernels.begin(), report.kernels.end(),
                                    [&](const NcuKernel& k) { return !k.metrics.contains(m.key); });
      if (none) report.missing.emplace_back(m.key);
    }
    return report;
  }

  std::string_view text_;
  const std::string& file_;
  std::string error_;
  uint32_t line_ = 0;
  Row columns_, units_;
  std::vector<Launch> launches_;
  std::map<std::string, size_t> by_id_;
};

}  // namespace

std::span<const NcuMetric> ncu_metrics() { return kMetrics; }

Result<NcuReport> parse_ncu(std::string_view text, const std::string& file) {
  return Parser(text, file).parse();
}

size_t add_metrics(core::TaskProfile& into, const NcuReport& report) {
  size_t found = 0;
  for (core::KernelProfile& k : into.kernels) {
    ipc::KernelFacts& f = k.facts;
    const auto same =
        std::find_if(report.kernels.begin(), report.kernels.end(), [&](const NcuKernel& measured) {
          // A profile cuts long names.
          return measured.name.substr(0, sizeof f.name - 1) == f.name &&
                 measured.grid_blocks == f.grid_blocks &&
                 measured.block_threads == f.block_threads &&
                 (measured.dynamic_smem_bytes < 0 ||
                  measured.dynamic_smem_bytes == int64_t{f.dynamic_smem_bytes});
        });
    if (same == report.kernels.end()) continue;
    for (const auto& [key, value] : same->metrics) {
      const size_t metric = ipc::metric_of(key);
      if (metric < ipc::kKernelMetricCount) f.metrics.set(metric, value);
    }
    ++found;
  }
  return found;
}

std::vector<std::string> ncu_command(const std::string& ncu, const std::string& output,
                                     uint32_t skip, std::span<const std::string> command) {
  std::string metrics;
  for (const NcuMetric& m : kMetrics) metrics.append(m.ncu).append(",");
  for (const char* name : {kDuration, kRegisters, kStaticSmem}) metrics.append(name).append(",");
  metrics.append(kDynamicSmem);
  std::vector<std::string> words = {ncu,
                                    "--csv",
                                    "--page=raw",
                                    "--print-units=base",
                                    "--print-kernel-base=mangled",
                                    "--log-file=" + output,
                                    "--clock-control=none",
                                    "--cache-control=none",
                                    "--graph-profiling=node",
                                    "--target-processes=all",
                                    "--filter-mode=per-launch-config",
                                    "--launch-skip=" + std::to_string(skip),
                                    "--launch-count=1",
                                    "--metrics=" + metrics,
                                    "--"};
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

}  // namespace heddle::profiles
