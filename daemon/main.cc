// heddled: joins the server and the Lua policies.
//
// Exit codes: 0 stopped by SIGTERM or SIGINT; 1 could not start (socket in use, no permission);
// 2 bad command line or configuration.
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <thread>

#include "daemon/base/files.h"
#include "daemon/base/owners.h"
#include "daemon/base/printable_output.h"
#include "daemon/base/version.h"
#include "daemon/policy/culprit.h"
#include "daemon/policy_store.h"
#include "daemon/server/rules.h"
#include "daemon/server/server.h"

namespace heddle {
namespace {

constexpr const char* kSystemConfig = "/etc/heddle/heddled.toml";

// bin/heddled beside share/heddle/policies, as `cmake --install` lays it out.
std::string installed_policies() {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  return (self.parent_path().parent_path() / "share/heddle/policies").string();
}

// Why this process does not get the directory until it ends, "" if it does. The lock is a file that
// only its owner can open: anybody could lock the directory. One that just ends is waited for.
std::string lock_problem(const std::string& state) {
  const std::string file = state + "/lock";
  const int held = open(file.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (held < 0) return file + ": cannot be opened: " + strerror(errno) + "; mend it";
  for (int tries = 20; flock(held, LOCK_EX | LOCK_NB) != 0;) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return file + ": cannot be locked: " + strerror(errno) + "; mend it";
    if (--tries == 0) {
      return state + ": another heddled keeps its state there, and may serve the same GPUs; " +
             "stop one of the two";
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return "";
}

// Why nothing may be kept there, "" if it may.
std::string state_problem(const std::string& state) {
  if (state.empty()) return "";
  std::string problem = ownership_problem(state);
  if (problem.empty()) problem = lock_problem(state);
  if (!problem.empty()) problem += ", then restart heddled: until then it remembers nothing";
  return problem;
}

Result<server::Config> read_config(const std::string& file, const std::string& socket,
                                   const std::string& policy, const std::string& state) {
  Result<server::Config> config = server::Config{};
  if (!file.empty()) {
    config = server::load_config(file);
  } else {
    config = server::load_config(kSystemConfig, true);
    if (config && config->conf_d == 0 && access(kSystemConfig, F_OK) != 0) config->file.clear();
  }
  if (!config) return config;
  if (!socket.empty()) config->socket = socket;
  if (!policy.empty()) config->policy.name = policy;
  if (config->profiles.directory.empty() && std::filesystem::is_directory(state)) {
    config->profiles.directory = state + "/profiles";
  }
  config->state = state;
  server::fill_directories(config->mps);
  if (config->policy.directory.empty()) config->policy.directory = installed_policies();
  return config;
}

// Three descriptors a client: the usual soft limit of 1 024 would be short of kClientsMax.
void raise_descriptor_limit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

int run(const std::string& file, const std::string& socket, const std::string& policy,
        bool check_only) {
  std::string state = state_directory();
  std::error_code error;
  if (!state.empty()) std::filesystem::create_directories(state, error);
  const std::string state_error = check_only ? "" : state_problem(state);
  if (!state_error.empty()) state.clear();
  Result<server::Config> config = read_config(file, socket, policy, state);
  if (!config) {
    std::cerr << "heddled: " << config.error().message << '\n';
    return 2;
  }
  if (check_only) {
    for (const std::string& warning : config->warnings) std::cerr << "heddled: " << warning << '\n';
    // The daemon would start all the same, and the built-in decide.
    const auto loaded = FilePolicyStore(config->policy).load(config->policy.name, true);
    if (!loaded) std::cerr << "heddled: [policy] " << loaded.error().message << '\n';
    bool sound = loaded && config->warnings.empty();
    for (const server::Rule& rule : config->rules) {
      if (!loaded) continue;
      for (const std::string& text : server::unkept_texts(rule, *loaded)) {
        std::cerr << "heddled: " << text << '\n';
        sound = false;
      }
    }
    return sound ? 0 : 2;
  }
  if (config->socket.empty() && geteuid() == 0) mkdir("/run/heddle", 0755);  // systemd makes it too

  raise_descriptor_limit();
  signal(SIGPIPE, SIG_IGN);  // whoever reads the log may end first
  server::Log log(config->log_level);
  config->state_error = state_error;
  if (!state_error.empty()) log.warning("state_refused", {{"error", state_error}});
  const std::string quarantined = state.empty() ? "" : state + "/quarantined";
  if (!state.empty()) policy::name_culprit_in(quarantined);
  FilePolicyStore store(config->policy, quarantined);
  Result<std::unique_ptr<server::Server>> made = server::Server::make(*config, store, log);
  if (!made) {
    std::cerr << "heddled: " << made.error().message << '\n';
    return 1;
  }
  server::Server& server = **made;
  server.handle_signals({[&] { return read_config(file, socket, policy, state); },
                         [&](const server::Config& again) { store.configure(again.policy); }});
  server.run();
  return 0;
}

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) {
  heddle::keep_output_printable();
  // Large blocks go back to the system when they are freed, whatever was freed before.
  mallopt(M_MMAP_THRESHOLD, 128 << 10);
  CLI::App app("heddled: shares one GPU between programs that know nothing of each other");
  app.set_version_flag("--version", std::string("heddled ") + heddle::version_text());
  std::string file, socket, policy;
  bool check_only = false;
  app.add_option("--config", file,
                 "configuration (default: /etc/heddle/heddled.toml if there is one)");
  app.add_option("--socket", socket, "overrides [daemon] socket");
  app.add_option("--policy", policy, "overrides [policy] name");
  app.add_flag("--check", check_only, "check the configuration and its policy, and exit");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return heddle::run(file, socket, policy, check_only);
}
