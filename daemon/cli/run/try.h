// `heddle try`: does heddle help these two programs? The measuring is Python's, as its report is:
// bench/try.py, which heddle-bench installs.
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

namespace heddle::cli {

// `command` is what stands behind the first --. The script knows the options, and its own --help.
void add_try(CLI::App& app, const std::vector<std::string>& command, int& exit_code);

}  // namespace heddle::cli
