// What CLI11 does not say: which word is no command, and that a program follows `--`.
#pragma once

#include <CLI/CLI.hpp>
#include <CLI/Validators.hpp>

#include <iostream>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/nearest.h"
#include "daemon/cli/daemon.h"

namespace heddle::cli {

inline int usage(const std::string& what, const char* remedy = "; see heddle --help") {
  std::cerr << "heddle: " << what << remedy << '\n';
  return kUsage;
}

// "no command 'foo'; did you mean ...": of the first word where a command's name is wanted, "" if
// that is one. `words` are without the program.
inline std::string unknown_command(const CLI::App& app, std::span<char* const> words) {
  const CLI::App* at = &app;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (word == "--socket") ++i;
    if (word.starts_with('-')) continue;
    std::vector<std::string> names;
    const CLI::App* next = nullptr;
    for (const CLI::App* sub : at->get_subcommands({})) {
      if (sub->get_name() == word) next = sub;
      if (!sub->get_group().empty()) names.push_back(sub->get_name());
    }
    if (next == nullptr) {
      if (names.empty()) return "";
      const std::vector<std::string_view> known(names.begin(), names.end());
      return "no command '" + std::string(word) + "'" + did_you_mean(word, known);
    }
    at = next;
  }
  return "";
}

// Commands whose description ends in -- CMD run a program.
class UsageFormatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App* app, std::string name) const override {
    std::string text = CLI::Formatter::make_usage(app, name);
    if (app->get_description().find("-- CMD") == std::string::npos) return text;
    return text.insert(text.find_last_not_of('\n') + 1, " -- CMD [ARGS...]");
  }
};

// Numbers and lengths of time on the command line: 90s, 10m, 8h.
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
