// A server on its own thread, under a policy that tests open and shut; used by the server's tests.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "daemon/cli/daemon.h"
#include "daemon/server/server.h"
#include "tests/folder.h"
#include "tests/integration/fake_client.h"

namespace heddle::testing {

using nlohmann::json;
using server::Request;

// Holds every launch until opened, then serves by priority, and notes whom it served. Shared with
// the test's thread, so that it outlives generations.
struct Valve {
  std::atomic<bool> open{false};
  std::atomic<uint32_t> served{0};
  std::array<std::atomic<int>, 16> order{};
  std::atomic<bool> faulty{false}, stuck{false};  // at each ask, in init
  std::atomic<bool> chooses{false};               // Policy::chooses_per_launch
  std::atomic<int> faults{0};                     // at so many asks
  std::atomic<int> starts{1'000'000};             // so many inits more do not fail
};

class ValvePolicy : public core::Policy {
 public:
  explicit ValvePolicy(Valve& valve) : valve_(valve) { chooses_per_launch = valve.chooses; }
  std::string_view name() const override { return "valve"; }
  core::HookResult init(core::Gpu&) override {
    const bool starts = !valve_.stuck && valve_.starts-- > 0;
    return starts ? core::HookResult::kDefault : core::HookResult::kFault;
  }
  core::AllowanceVerdict client_init(core::Gpu&, core::ClientId) override {
    return {core::HookResult::kDecided, false, core::Allowance::kGated};
  }
  core::AllowanceVerdict client_active(core::Gpu&, core::ClientId) override {
    return {core::HookResult::kDecided, false, core::Allowance::kGated};
  }
  core::AllowanceVerdict client_idle(core::Gpu&, core::ClientId) override {
    return {core::HookResult::kDecided, false, core::Allowance::kGated};
  }
  core::EnqueueVerdict enqueue(core::Gpu& gpu, core::LaunchId id) override {
    if (valve_.faulty || (valve_.faults > 0 && valve_.faults-- > 0))
      return {core::HookResult::kFault, false};
    core::LaunchView view;
    gpu.launch(id, view);
    gpu.queue_insert(gpu.queue_create("all"), id, view.priority);
    return {core::HookResult::kDecided, false};
  }
  core::DispatchVerdict dispatch(core::Gpu& gpu) override {
    core::DispatchVerdict verdict;
    verdict.result = core::HookResult::kDecided;
    if (!valve_.open) return verdict;
    verdict.run = gpu.queue_peek(gpu.queue_create("all"));
    core::LaunchView view;
    if (gpu.launch(verdict.run, view)) valve_.order[valve_.served++ % 16] = view.priority;
    return verdict;
  }

 private:
  Valve& valve_;
};

// Policies of one file in a directory: its first word is the policy.
class FileStore : public server::PolicyStore {
 public:
  FileStore(std::string directory, Valve& valve)
      : directory_(std::move(directory)), valve_(valve) {}

  Result<server::Generation> load(const std::string& name, bool) override {
    server::Generation generation;
    generation.name = generation.hash = name;
    if (name == "valve") {
      generation.make = [this]() -> Result<std::unique_ptr<core::Policy>> {
        return std::make_unique<ValvePolicy>(valve_);
      };
    } else if (name != "builtin") {
      return fail(name + ":1: no such policy");
    }
    return generation;
  }
  Result<server::Generation> candidate(const std::string& name) override {
    return load(name, false);
  }
  Result<server::Generation> with_params(const std::string& name, const Params&) override {
    return load(name, true);
  }
  Result<server::Generation> without_params(const std::string& name,
                                            const std::vector<std::string>&) override {
    return load(name, true);
  }
  Result<server::Generation> past(uint64_t number) override {
    return number < ran_.size() ? load(ran_[number], true) : fail("no such generation");
  }
  void look() override {}
  uint64_t adopted(const server::Generation& generation, bool) override {
    const std::lock_guard lock(mutex_);
    ran_.push_back(generation.name);
    return ran_.size() - 1;
  }
  std::optional<Result<server::Generation>> changed() override {
    std::ifstream file(directory_ + "/current.lua");
    std::string word;
    file >> word;
    if (word.empty() || word == seen_) return std::nullopt;
    seen_ = word;
    return load(word, true);
  }
  void quarantine(const server::Generation& generation, const std::string&) override {
    quarantined_ = generation.hash;
  }
  void good(const server::Generation& generation) override { good_ = generation; }
  std::optional<server::Generation> last_good() override {
    if (!good_ || good_->hash == quarantined_) return std::nullopt;
    return good_;
  }
  Result<void> remember() override { return {}; }
  std::vector<std::string> directories() override { return {directory_}; }
  json list() override { return json::array({"builtin", "valve"}); }
  json status() const override { return {{"quarantined", quarantined_}}; }
  json history() const override {
    const std::lock_guard lock(mutex_);
    return ran_;
  }
  json show() const override { return {{"text", "return policy"}}; }
  json describe(const core::Policy&) const override { return {{"fault", "it is faulty"}}; }
  json describe_ended(const core::Policy& policy) const override { return describe(policy); }

 private:
  const std::string directory_;
  Valve& valve_;
  std::string seen_, quarantined_;
  mutable std::mutex mutex_;
  std::vector<std::string> ran_{"builtin"};  // by number
  std::optional<server::Generation> good_;
};

class ServerTest : public ::testing::Test {
 protected:
  void measure_briefly() {
    config_.core.measure_runs = 10;
    config_.core.measure_us = 0;
  }
  void SetUp() override {
    config_.socket = directory_ + "/s";
    config_.core.starvation_us = 60e6;  // a busy machine must not open the valve
    ASSERT_EQ(mkdir((directory_ + "/policies").c_str(), 0700), 0);
    store_.emplace(directory_ + "/policies", valve_);
  }
  void TearDown() override { stop(); }
  void start(const std::string& policy = "builtin") {
    config_.policy.name = policy;
    auto made = server::Server::make(config_, *store_, *log_);
    ASSERT_TRUE(made) << made.error().message;
    server_ = std::move(*made);
    thread_ = std::thread([this] { server_->run(); });
  }
  void stop() {
    if (!thread_.joinable()) return;
    server_->stop();
    thread_.join();
    server_.reset();
  }
  // Behind CaptureStderr(): all that the server logged. Its thread writes later than it answers.
  std::string end_log() {
    stop();
    log_ = std::make_unique<server::Log>(server::LogLevel::kWarning);
    return ::testing::internal::GetCapturedStderr();
  }
  json ask_daemon(Request::Kind kind) {
    Request r;
    r.kind = kind;
    const server::Reply reply = request(config_.socket, r);
    EXPECT_TRUE(reply.ok) << reply.error;
    return reply.ok ? json::parse(reply.json) : json();
  }
  // Whoever launches wakes the daemon, for longer than that remembers who launched: then one client
  // alone seems to be at work.
  static void expect_heard(FakeClient& launching) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(150);
    bool slept = false;
    while (std::chrono::steady_clock::now() < end) {
      launching.post(0, {});
      launching.complete_all(0);
      launching.ring();
      const uint32_t sleeping = launching.control().sleeping;
      ASSERT_NE(sleeping, ipc::kWakeOnAsk);
      slept |= sleeping == ipc::kWakeOnAny;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));  // so that it does sleep
    }
    EXPECT_TRUE(slept);
  }
  json load(const std::string& policy) {
    Request r;
    r.kind = Request::Kind::kPolicyLoad;
    r.policy = policy;
    const server::Reply reply = request(config_.socket, r);
    return {{"ok", reply.ok}, {"error", reply.error}};
  }
  json status() { return ask_daemon(Request::Kind::kStatus); }
  json ps() { return ask_daemon(Request::Kind::kPs)["clients"]; }
  json stats() { return status()["devices"].at(0)["stats"]; }

  const TestFolder made_;
  const std::string directory_ = made_.path();
  Valve valve_;
  std::unique_ptr<server::Log> log_ = std::make_unique<server::Log>(server::LogLevel::kWarning);
  server::Config config_;
  std::optional<FileStore> store_;
  std::unique_ptr<server::Server> server_;
  std::thread thread_;
};

}  // namespace heddle::testing
