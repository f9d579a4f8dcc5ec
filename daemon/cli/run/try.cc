#include "daemon/cli/run/try.h"

#include <errno.h>
#include <unistd.h>

#include <cstring>
#include <iostream>

#include "daemon/cli/child.h"
#include "daemon/cli/daemon.h"

namespace heddle::cli {

void add_try(CLI::App& app, const std::vector<std::string>& command, int& exit_code) {
  CLI::App* sub = app.add_subcommand(
      "try", "Does heddle help? try [...] -- SERVICE -- JOB: alone, shared as it is, under heddle");
  sub->prefix_command()->set_help_flag();
  sub->callback([sub, &command, &exit_code] {
    const std::string script = own_folder().parent_path() / "libexec/heddle/try.py";
    std::vector<std::string> words = {"python3", script};
    for (const std::string& word : sub->remaining()) words.push_back(word);
    if (!command.empty()) words.emplace_back("--");
    words.insert(words.end(), command.begin(), command.end());
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    if (access(script.c_str(), R_OK) == 0) execvp(arguments[0], arguments.data());
    std::cerr << "heddle: try: " << (access(script.c_str(), R_OK) == 0 ? words[0] : script) << ": "
              << std::strerror(errno) << "; install python3 and heddle-bench\n";
    exit_code = kFailed;
  });
}

}  // namespace heddle::cli
