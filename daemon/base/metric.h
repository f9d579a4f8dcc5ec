// One row of a table of metrics. What is counted has a row, and whatever prints it (`heddle
// status`, `ps`, `metrics`, their --json) goes through the table: a new counter is one line there.
#pragma once

#include <cstdint>
#include <variant>

namespace heddle {

enum class MetricType : uint8_t { kCounter, kGauge };

struct MetricInfo {
  const char* name;  // its key in JSON
  const char* unit;  // of the value: "us", or "" for a number
  const char* help;  // one sentence
  MetricType type;
};

// `Of` is a plain struct; the member may be of one that it derives from.
template <class Of>
struct Metric : MetricInfo {
  std::variant<uint64_t Of::*, uint32_t Of::*, double Of::*> member;
};

}  // namespace heddle
