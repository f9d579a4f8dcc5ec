// Numbers and lengths of time on the command line: 90s, 10m, 8h.
#pragma once

#include <CLI/Validators.hpp>
#include <map>
#include <string>

namespace heddle::cli {

inline constexpr double kDayS = 86'400;

inline CLI::AsNumberWithUnit as_seconds() {
  const std::map<std::string, double> units{{"s", 1}, {"m", 60}, {"h", 3600}};
  return CLI::AsNumberWithUnit(units, CLI::AsNumberWithUnit::CASE_SENSITIVE, "TIME");
}

// CLI::Range takes NaN, which is neither below nor above anything: it would never end.
inline CLI::Validator between(double least, double most) {
  const CLI::Range range(least, most);
  return CLI::Validator(
      [range](std::string& text) {
        double value = 0;
        const bool number = CLI::detail::lexical_cast(text, value) && value == value;
        return number ? range(text) : "Value " + text + " is not a number";
      },
      range.get_description());
}

}  // namespace heddle::cli
