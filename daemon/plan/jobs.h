// The set of jobs that `heddle plan jobs` is asked about: a TOML file of [[job]]s.
#pragma once

#include <string>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/plan/table.h"

namespace heddle::plan {

struct JobEntry {
  std::string name;
  bool online = false;
  JobCurve curve;  // of `like`, or made of what the file says
};

// `table`: what `like` may name; nullptr if there is none. Errors name the file and the line.
Result<std::vector<JobEntry>> parse_job_set(const std::string& text, const std::string& file,
                                            const JobTable* table);
Result<std::vector<JobEntry>> read_job_set(const std::string& file, const JobTable* table);

}  // namespace heddle::plan
