// Lengths of time on the command line: 90s, 10m, 8h.
#pragma once

#include <CLI/Validators.hpp>
#include <map>
#include <string>

namespace heddle::cli {

inline CLI::AsNumberWithUnit as_seconds() {
  const std::map<std::string, double> units{{"s", 1}, {"m", 60}, {"h", 3600}};
  return CLI::AsNumberWithUnit(units, CLI::AsNumberWithUnit::CASE_SENSITIVE, "TIME");
}

}  // namespace heddle::cli
