#include "daemon/plan/jobs.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>

#include "daemon/base/files.h"
#include "daemon/base/toml.h"

namespace heddle::plan {
namespace {

constexpr const char* kKeys[] = {"name",   "kind",          "like",   "memory_gib",
                                 "sm_pct", "bandwidth_pct", "l2_pct", "iteration_ms"};

class JobReader {
 public:
  JobReader(const std::string& file, const JobTable* table) : file_(file), table_(table) {}

  JobEntry read(const toml::table& job) {
    JobEntry entry;
    for (const auto& [key, node] : job) {
      if (std::find(std::begin(kKeys), std::end(kKeys), key.str()) == std::end(kKeys)) {
        problem(key.source(), "unknown key " + std::string(key.str()) +
                                  "; a job has name, kind, like, memory_gib, sm_pct, "
                                  "bandwidth_pct, l2_pct and iteration_ms");
      }
    }
    entry.name = text(job, "name", "");
    if (entry.name.empty()) problem(job.source(), "a job needs a name; add name = \"...\"");
    const std::string kind = text(job, "kind", "offline");
    entry.online = kind == "online";
    if (kind != "online" && kind != "offline") {
      problem(job["kind"].node()->source(), "kind must be \"online\" or \"offline\"");
    }
    if (job.contains("like")) {
      like(job, entry);
    } else {
      for (auto& row : entry.curve.pace) row[0] = 1;  // its memory says where it fits
    }
    UseOfGpu& use = entry.curve.use;
    number(job, "memory_gib", 1, entry.curve.memory_gib, 0.001, 1000);
    number(job, "sm_pct", 100, use.sm, 1, 100);
    number(job, "bandwidth_pct", 100, use.bandwidth, 0, 100);
    number(job, "l2_pct", 100, use.l2, 0, 100);
    number(job, "iteration_ms", 1, entry.curve.alone_ms, 1e-3, 1e7);
    if (entry.curve.memory_gib <= 0 || use.sm < 0 || entry.curve.alone_ms <= 0) {
      problem(job.source(), entry.name +
                                " needs memory_gib, sm_pct and iteration_ms, measured alone on the "
                                "whole GPU; or like = \"MODEL/BATCH\"");
    }
    return entry;
  }

  void problem(const toml::source_region& where, const std::string& what) {
    if (!error_.empty()) return;
    error_ = file_ + ":" + std::to_string(std::max<uint32_t>(where.begin.line, 1)) + ": " + what;
  }
  const std::string& error() const { return error_; }

 private:
  std::string text(const toml::table& job, const char* key, const char* otherwise) {
    const toml::node* node = job.get(key);
    if (node != nullptr && !node->is_string()) {
      problem(node->source(), std::string(key) + " must be a string");
    }
    return job[key].value_or(std::string(otherwise));
  }

  void like(const toml::table& job, JobEntry& entry) {
    const std::string name = text(job, "like", "");
    const JobCurve* curve = table_ != nullptr ? table_->find(name) : nullptr;
    if (curve != nullptr) {
      entry.curve = *curve;
      return;
    }
    std::string remedy = "; name a table with --data";
    if (table_ != nullptr) {
      std::vector<std::string> names;
      for (const JobCurve& c : table_->curves) names.push_back(c.name());
      remedy = "; such as " + names.front() + ", MODEL/BATCH";
    }
    problem(job["like"].node()->source(), "no table has '" + name + "'" + remedy);
  }

  void number(const toml::table& job, const char* key, double unit, double& value, double least,
              double most) {
    const toml::node* node = job.get(key);
    if (node == nullptr) return;
    const double read = node->value<double>().value_or(NAN);
    if (node->is_number() && read >= least && read <= most) {
      value = read / unit;
      return;
    }
    std::ostringstream wanted;
    wanted << key << " must be a number from " << least << " to " << most;
    problem(node->source(), wanted.str());
  }

  std::string file_;
  const JobTable* table_;
  std::string error_;
};

}  // namespace

Result<std::vector<JobEntry>> parse_job_set(const std::string& text, const std::string& file,
                                            const JobTable* table) {
  JobReader reader(file, table);
  std::vector<JobEntry> jobs;
  std::set<std::string> names;
  try {
    const toml::table root = parse_toml(text, file);
    for (const auto& [key, node] : root) {
      if (key.str() != "job") {
        reader.problem(key.source(),
                       "unknown key " + std::string(key.str()) + "; jobs are [[job]] tables");
      }
    }
    const toml::array* list = root["job"].as_array();
    if (list == nullptr || list->empty()) return fail(file + ":1: has no [[job]]; add one");
    for (const toml::node& node : *list) {
      if (!node.is_table()) {
        reader.problem(node.source(), "a job must be a table: write [[job]]");
        continue;
      }
      jobs.push_back(reader.read(*node.as_table()));
      if (!names.insert(jobs.back().name).second) {
        reader.problem(node.source(), jobs.back().name + " is there twice; give it another name");
      }
    }
  } catch (const toml::parse_error& error) {
    return fail(file + ":" + std::to_string(error.source().begin.line) + ": " +
                std::string(error.description()) + "; mend the TOML");
  }
  if (!reader.error().empty()) return fail(reader.error());
  return jobs;
}

Result<std::vector<JobEntry>> read_job_set(const std::string& file, const JobTable* table) {
  const auto text = read_file(file, "check the path");
  return text ? parse_job_set(*text, file, table) : tl::unexpected<Error>(text.error());
}

}  // namespace heddle::plan
