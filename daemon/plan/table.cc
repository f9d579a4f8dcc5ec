#include "daemon/plan/table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <map>

#include "daemon/base/files.h"
#include "daemon/plan/mig.h"

namespace heddle::plan {
namespace {

constexpr const char* kRemedy = "; see profiles/jobs/README.md for the format";

struct Row {
  std::string at;  // "file:line: "
  std::vector<std::string> cells;

  // The number in a cell; NaN if it is none.
  double number(size_t column) const {
    double value = NAN;
    const std::string& cell = cells[column];
    const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    return error == std::errc() && end == cell.data() + cell.size() ? value : NAN;
  }
};

std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> cells(1);
  for (char c : line) {
    if (c == ',') {
      cells.emplace_back();
    } else if (c != '\r') {
      cells.back() += c;
    }
  }
  return cells;
}

// The rows below a header that must be this one. Every cell from `numbers` on is a number >= 0.
Result<std::vector<Row>> read_csv(const std::string& path, const std::string& header,
                                  size_t numbers) {
  const auto text = read_file(path, kRemedy + 2);
  if (!text) return tl::unexpected<Error>(text.error());
  std::istringstream file(*text);
  std::string line;
  if (!std::getline(file, line)) return fail(path + ": is empty" + kRemedy);
  const std::vector<std::string> columns = split(line);
  if (columns != split(header)) return fail(path + ":1: the header must be " + header + kRemedy);
  std::vector<Row> rows;
  for (size_t number = 2; std::getline(file, line); ++number) {
    Row row{path + ":" + std::to_string(number) + ": ", split(line)};
    if (row.cells == std::vector<std::string>{""}) continue;
    if (row.cells.size() != columns.size()) {
      return fail(row.at + std::to_string(row.cells.size()) + " cells, not " +
                  std::to_string(columns.size()) + kRemedy);
    }
    for (size_t i = numbers; i < columns.size(); ++i) {
      if (const double value = row.number(i); !(value >= 0 && value < 1e9)) {
        return fail(row.at + columns[i] + " must be a number from 0 on, not '" + row.cells[i] +
                    "'" + kRemedy);
      }
    }
    rows.push_back(std::move(row));
  }
  if (rows.empty()) return fail(path + ": has no rows below its header" + kRemedy);
  return rows;
}

Result<size_t> slice_of(const Row& row, double compute) {
  const auto found = std::find(kSliceSizes.begin(), kSliceSizes.end(), compute);
  if (found == kSliceSizes.end()) {
    return fail(row.at + "a slice has 1, 2, 3, 4 or 7 compute slices" + kRemedy);
  }
  return static_cast<size_t>(found - kSliceSizes.begin());
}

// The least that a process can have needed: what fitted n times took at most an nth of the slice.
double memory_bound(const JobCurve& curve, const GpuModel& gpu) {
  double least = gpu.memory_gib;
  for (size_t size = 0; size < kSliceSizes.size(); ++size) {
    for (const SliceProfile& profile : gpu.profiles) {
      if (profile.compute != kSliceSizes[size] || profile.wide) continue;
      for (size_t n = 0; n < kProcessesMost; ++n) {
        if (curve.pace[size][n] > 0) {
          least = std::min(least, profile.memory_gib / static_cast<double>(n + 1));
        }
      }
    }
  }
  return least;
}

Result<std::vector<JobCurve>> read_parvagpu_model(const std::string& path, const GpuModel& gpu) {
  const auto rows = read_csv(path, "Mig instance,Batch size,Workload Number,Throughput,Latency", 0);
  if (!rows) return fail(rows.error().message);
  std::map<double, JobCurve> by_batch;
  const Row* last = nullptr;
  for (const Row& row : *rows) {
    const auto size = slice_of(row, row.number(0));
    if (!size) return fail(size.error().message);
    const double n = row.number(2);
    if (n != std::floor(n) || n < 1 || n > static_cast<double>(kProcessesMost)) {
      return fail(row.at + "Workload Number must be 1 to 5" + kRemedy);
    }
    const double batch = row.number(1);
    if (batch != std::floor(batch) || batch < 1) {
      return fail(row.at + "Batch size must be a whole number from 1 on" + kRemedy);
    }
    const bool copy = last != nullptr && last->cells[3] == row.cells[3] &&
                      last->cells[4] == row.cells[4] && last->cells[1] == row.cells[1];
    last = &row;
    if (row.number(3) > 0 && !copy) {
      by_batch[batch].pace[*size][static_cast<size_t>(n) - 1] = row.number(3);
    }
  }
  double best = 0;
  for (const auto& [batch, curve] : by_batch) best = std::max(best, curve.pace.back()[0]);
  std::vector<JobCurve> curves;
  for (auto& [batch, curve] : by_batch) {
    const double alone = curve.pace.back()[0];
    if (alone <= 0) continue;  // nothing to compare with
    curve.model = std::filesystem::path(path).stem().string();
    curve.batch = static_cast<uint32_t>(batch);
    curve.alone_ms = 1000 * batch / alone;
    curve.use.sm = alone / best;
    curve.memory_gib = memory_bound(curve, gpu);
    for (auto& row : curve.pace) {
      for (double& rate : row) rate = rate > 0 ? rate / alone : kNotMeasured;
    }
    curves.push_back(curve);
  }
  return curves;
}

// Reads cells of one row; keeps the first complaint.
struct Cells {
  const Row& row;
  std::string complaint;

  double number(size_t column, const char* name, double above, double most) {
    const double value = row.number(column);
    if (value > above && value <= most) return value;
    char text[120];
    snprintf(text, sizeof text, " must be a number above %g, %g at most, not '", above, most);
    if (complaint.empty()) complaint = row.at + name + text + row.cells[column] + "'" + kRemedy;
    return 1;
  }
  uint32_t batch(size_t column, const char* name) {
    const double value = number(column, name, 0, 1e6);
    if (value == std::floor(value)) return static_cast<uint32_t>(value);
    if (complaint.empty()) complaint = row.at + name + " must be a whole number" + kRemedy;
    return 1;
  }
  // The place of a job in the table.
  size_t job(const JobTable& table, size_t model, const char* name) {
    const std::string wanted = row.cells[model] + "/" + std::to_string(batch(model + 1, name));
    if (const JobCurve* found = table.find(wanted)) {
      return static_cast<size_t>(found - table.curves.data());
    }
    if (complaint.empty()) complaint = row.at + wanted + " is not in jobs.csv; add its row";
    return 0;
  }
};

// What follows from its paces alone.
Result<void> complete(JobCurve& job, const std::string& file) {
  if (job.shares.empty() || job.shares.rbegin()->first < 1) {
    return fail(
        file + ": " + job.name() +
        " has no sample alone on all SMs (share 1); measure it with `heddle-bench collect`");
  }
  for (auto at = job.shares.begin(); job.use.sm < 0; ++at) {
    if (at->second < kFullPace) continue;
    job.use.sm = at->first;
    if (at == job.shares.begin()) break;
    const auto below = std::prev(at);
    const double part = (kFullPace - below->second) / (at->second - below->second);
    job.use.sm = below->first + part * (at->first - below->first);
  }
  for (size_t size = 0; size < kSliceSizes.size(); ++size) {
    job.pace[size][0] = job.alone_at(static_cast<double>(kSliceSizes[size]) / kComputeSlices);
  }
  return {};
}

}  // namespace

double between(const std::map<double, double>& points, double at) {
  const auto above = points.lower_bound(at);
  if (above == points.end()) return points.rbegin()->second;
  if (above == points.begin() || above->first == at) return above->second;
  const auto below = std::prev(above);
  const double part = (at - below->first) / (above->first - below->first);
  return below->second + part * (above->second - below->second);
}

double JobCurve::alone_at(double share) const {
  if (shares.empty()) return use.sm > 0 ? std::min(1.0, share / use.sm) : 1;
  const auto& [least, pace_there] = *shares.begin();
  return share < least ? pace_there * share / least : between(shares, share);
}

const JobCurve* JobTable::find(const std::string& name) const {
  const auto found =
      std::find_if(curves.begin(), curves.end(), [&](auto& c) { return c.name() == name; });
  return found == curves.end() ? nullptr : &*found;
}

size_t size_index(uint32_t compute) {
  size_t index = 0;
  while (index + 1 < kSliceSizes.size() && kSliceSizes[index + 1] <= compute) ++index;
  return index;
}

Result<JobTable> read_parvagpu(const std::string& directory) {
  JobTable table{"ParvaGPU, A100-80GB", "a100-80gb", {}, {}};
  for (const std::string& path : files_of({directory}, ".csv", Depth::kDirectory)) {
    auto curves = read_parvagpu_model(path, *gpu_model(table.gpu));
    if (!curves) return fail(curves.error().message);
    table.curves.insert(table.curves.end(), curves->begin(), curves->end());
  }
  if (table.curves.empty()) return fail(directory + ": holds no *.csv" + kRemedy);
  return table;
}

Result<JobTable> read_miso(const std::string& directory) {
  JobTable table{"MISO, A100-40GB", "a100-40gb", {}, {}};
  const auto slices =
      read_csv(directory + "/slices.csv", "slice,model,batch,samples,mean,median", 2);
  if (!slices) return fail(slices.error().message);
  const auto whole =
      read_csv(directory + "/whole_gpu.csv", "model,batch,memory,power,util_mem,util_sm", 1);
  if (!whole) return fail(whole.error().message);
  for (const Row& row : *whole) {
    JobCurve curve;
    curve.model = row.cells[0];
    curve.batch = static_cast<uint32_t>(row.number(1));
    curve.memory_gib = row.number(2) / 1024;
    curve.use = {row.number(5) / 100, row.number(4) / 100, kNotMeasured};
    table.curves.push_back(curve);
  }
  for (const Row& row : *slices) {
    const auto size = slice_of(row, row.cells[0].empty() ? 0 : row.cells[0][0] - '0');
    if (!size) return fail(size.error().message);
    const auto curve = std::find_if(table.curves.begin(), table.curves.end(), [&](const auto& c) {
      return c.model == row.cells[1] && c.batch == static_cast<uint32_t>(row.number(2));
    });
    if (curve == table.curves.end()) {
      return fail(row.at + row.cells[1] + " at this batch is not in whole_gpu.csv; add its row");
    }
    if (row.number(5) <= 0) return fail(row.at + "median must be above 0" + kRemedy);
    curve->pace[*size][0] = 1 / row.number(5);  // the median: a mean holds the first iteration
  }
  for (JobCurve& curve : table.curves) {
    const double alone = curve.pace.back()[0];
    curve.alone_ms = 1000 / alone;
    for (auto& row : curve.pace) {
      if (row[0] > 0) row[0] /= alone;
    }
  }
  std::erase_if(table.curves, [](const JobCurve& c) { return !c.fits(kSliceSizes.size() - 1); });
  return table;
}

Result<JobTable> read_collected(const std::string& directory) {
  JobTable table{"heddle-bench collect, " + directory, "h100-80gb", {}, {}};
  constexpr size_t kNone = 99;  // of its columns are numbers without further question
  const std::string jobs_file = directory + "/jobs.csv", samples_file = directory + "/samples.csv";
  const auto jobs = read_csv(jobs_file, "model,batch,alone_ms,memory_mib,bandwidth_pct", kNone);
  if (!jobs) return fail(jobs.error().message);
  for (const Row& row : *jobs) {
    Cells cells{row, {}};
    JobCurve curve;
    curve.model = row.cells[0];
    curve.batch = cells.batch(1, "batch");
    curve.alone_ms = cells.number(2, "alone_ms", 0, 1e9);
    curve.memory_gib = cells.number(3, "memory_mib", -1, 1e9) / 1024;
    if (!row.cells[4].empty()) {
      curve.use.bandwidth = cells.number(4, "bandwidth_pct", -1, 100) / 100;
    }
    if (!cells.complaint.empty()) return fail(cells.complaint);
    if (table.find(curve.name()) != nullptr) {
      return fail(row.at + curve.name() + " is there twice; remove one" + kRemedy);
    }
    table.curves.push_back(curve);
  }
  const auto samples = read_csv(
      samples_file, "model,batch,share,neighbour,neighbour_batch,neighbour_share,pace", kNone);
  if (!samples) return fail(samples.error().message);
  std::map<std::pair<size_t, double>, double> times;  // a job was measured alone at a share
  for (const Row& row : *samples) {
    Cells cells{row, {}};
    Beside b{cells.job(table, 0, "batch"), 0, cells.number(2, "share", 0, 1), 1,
             cells.number(6, "pace", 0, 1000)};
    const bool alone = row.cells[3].empty();
    if (!alone) {
      b.neighbour = cells.job(table, 3, "neighbour_batch");
      b.neighbour_share = cells.number(5, "neighbour_share", 0, 1);
    }
    if (!cells.complaint.empty()) return fail(cells.complaint);
    if (!alone) {
      table.beside.push_back(b);
      continue;
    }
    double& pace = table.curves[b.job].shares[b.share];
    const double count = ++times[{b.job, b.share}];
    pace += (b.pace - pace) / count;
  }
  for (JobCurve& curve : table.curves) {
    if (auto done = complete(curve, samples_file); !done) return fail(done.error().message);
  }
  return table;
}

Result<JobTable> read_jobs(const std::string& directory) {
  std::error_code error;
  if (!std::filesystem::is_directory(directory, error)) {
    return fail(directory + ": is no directory; name one such as profiles/jobs/parvagpu");
  }
  if (std::filesystem::exists(directory + "/samples.csv", error)) return read_collected(directory);
  const bool miso = std::filesystem::exists(directory + "/whole_gpu.csv", error);
  return miso ? read_miso(directory) : read_parvagpu(directory);
}

}  // namespace heddle::plan
