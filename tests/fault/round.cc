#include "tests/fault/round.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <nlohmann/json.hpp>

#include "tests/integration/fake_client.h"

namespace heddle::fault {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using std::chrono::milliseconds;

constexpr milliseconds kPatience{20'000};
// What a busy machine may add to a bounded wait.
constexpr milliseconds kSlack{250};

const char* const kCoin = R"(
queue.create("all")
local asked = 0
return policy { name = "coin", api = 1, version = "1.0.0",
  hooks = {
    enqueue = function(k) return queue.insert("all", k, k.priority) end,
    dispatch = function(g)
      asked = asked + 1
      if asked % 3 == 0 then return IDLE end
      local k = queue.peek("all")
      if k then return RUN, k end
      return IDLE
    end } }
)";
const char* const kHold = R"(
queue.create("all")
return policy { name = "hold", api = 1, version = "1.0.0",
  hooks = {
    enqueue = function(k) return queue.insert("all", k, 0) end,
    dispatch = function() return IDLE, "held by the test" end } }
)";

// Everybody asks, and every other launch goes to some of the SMs if it can.
const char* const kFences = R"(
queue.create("all")
return policy { name = "fences", api = 1, version = "1.0.0",
  hooks = {
    client_active = function(c) return GATE end,
    enqueue = function(k) return queue.insert("all", k, 0) end,
    dispatch = function(g)
      local k = queue.peek("all")
      if not k then return IDLE end
      return RUN, k, k.fenceable and k.seq % 2 == 0 and 24 or nil
    end } }
)";

// Nobody has a window, and a launch goes two times of three.
const char* const kGated = R"(
queue.create("all")
local asked = 0
return policy { name = "gates", api = 1, version = "1.0.0",
  hooks = {
    client_init = function(c) return GATE end,
    client_active = function(c) return GATE end,
    enqueue = function(k) return queue.insert("all", k, k.priority) end,
    dispatch = function(g)
      asked = asked + 1
      local k = queue.peek("all")
      if k and asked % 3 ~= 0 then return RUN, k end
      return IDLE
    end } }
)";

bool killed(int status) { return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL; }

// Nobody outlives a campaign that is stopped.
pid_t fork_child() {
  const pid_t pid = fork();
  if (pid == 0) prctl(PR_SET_PDEATHSIG, SIGKILL);
  return pid;
}

bool reached(std::chrono::steady_clock::time_point start, int ms) {
  return ms >= 0 && std::chrono::steady_clock::now() - start >= milliseconds(ms);
}

// A thread's kernels are on one stream, in the order of its launches: whichever is lost, doubled or
// somebody else's shows.
void note_kernel(Stage::Ran& ran, uint64_t id) {
  const uint64_t thread = thread_of(id);
  if (thread < kThreads && number_of(id) == ran.kernels[thread] + 1) {
    ++ran.kernels[thread];
  } else if (ran.disorder.empty()) {
    ran.disorder = "thread " + std::to_string(thread) + " ran launch " +
                   std::to_string(number_of(id)) + " after launch " +
                   std::to_string(thread < kThreads ? ran.kernels[thread] : 0);
  }
}

}  // namespace

// ---- the stage ----------------------------------------------------------------------------------

Stage::Stage() {
  fs::copy(HEDDLE_POLICIES, at("policies"), fs::copy_options::recursive);
  std::ofstream(at("policies/coin.lua")) << kCoin;
  std::ofstream(at("policies/hold.lua")) << kHold;
  std::ofstream(at("policies/fences.lua")) << kFences;
  std::ofstream(at("policies/gates.lua")) << kGated;
  std::ofstream(at("gpu"));
  const int fd = memfd_create("heddle-board", 0);
  if (ftruncate(fd, sizeof(Board)) != 0 || dup2(fd, kBoardFd) != kBoardFd) abort();
  close(fd);
  void* board = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, kBoardFd, 0);
  if (board == MAP_FAILED) abort();
  board_ = static_cast<Board*>(board);
  setenv("HEDDLE_SIM_SOCKET", at("g").c_str(), 1);
  setenv("HEDDLE_SIM_LOG", at("gpu").c_str(), 1);
  setenv("HEDDLE_SIM_MODE", "mps", 1);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "4", 1);  // as `heddle run` asks of MPS, for SM sets
  setenv("HEDDLE_SOCKET", at("s").c_str(), 1);
  setenv("HEDDLE_REAL_LIBCUDA", HEDDLE_SIM_DRIVER, 1);
}

void Stage::read_gpu_log() {
  std::ifstream log(at("gpu"));
  log.seekg(log_offset_);
  for (std::string line; std::getline(log, line);) {
    if (line.empty() || line.back() != '}') break;  // still being written
    log_offset_ += static_cast<long>(line.size()) + 1;
    const json entry = json::parse(line, nullptr, false);
    if (!entry.is_object()) continue;
    const pid_t pid = entry.value("pid", 0);
    if (entry.contains("start_ns")) note_kernel(ran_[pid], entry.value("value", uint64_t{0}));
    if (entry.contains("exit_ns")) left_.insert(pid);
  }
}

void Stage::forget_processes() {
  ran_.clear();
  left_.clear();
}

// ---- processes ----------------------------------------------------------------------------------

void Round::start_daemon() {
  const DaemonPlan& self = plan_.daemons[std::min(incarnation_, plan_.daemons.size() - 1)];
  ++incarnation_;
  restart_at_ = Clock::time_point::max();
  daemon_ = {};
  daemon_.started = Clock::now();
  daemon_.running = true;
  daemon_.pid = fork_child();
  if (daemon_.pid == 0) be_daemon(stage_, plan_, self);
}

void Round::start_client(size_t index) {
  const ClientPlan& self = plan_.clients[index];
  Child& child = clients_[index];
  child.started = Clock::now();
  child.running = child.begun = true;
  const std::string arguments[] = {std::to_string(index), std::to_string(plan_.seed + 97 * index),
                                   std::to_string(self.threads), std::to_string(self.launches),
                                   std::to_string(self.paced_ms)};
  child.pid = fork_child();
  if (child.pid != 0) return;
  const int log = open(stage_.at("log").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  dup2(log, STDERR_FILENO);
  dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
  setenv("HEDDLE_FAULTS", self.faults.c_str(), 1);
  setenv("HEDDLE_PRIORITY", std::to_string(self.priority).c_str(), 1);
  if (!self.sms.empty()) setenv("HEDDLE_SMS", self.sms.c_str(), 1);
  setenv("HEDDLE_LOG", "stderr", 1);
  setenv("LD_PRELOAD", HEDDLE_SHIM, 1);
  execl(HEDDLE_FAULT_CLIENT, "fault_client", arguments[0].c_str(), arguments[1].c_str(),
        arguments[2].c_str(), arguments[3].c_str(), arguments[4].c_str(), nullptr);
  _exit(127);
}

void Round::start_clients() {
  for (size_t i = 0; i < clients_.size(); ++i) {
    if (!clients_[i].begun && reached(began_, plan_.clients[i].start_ms)) start_client(i);
  }
}

void Round::start_hostile() {
  hostile_.running = true;
  hostile_.pid = fork_child();
  if (hostile_.pid == 0) be_hostile(stage_, plan_);
}

void Round::reap() {
  int status;
  for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0;) {
    Child* child = pid == daemon_.pid ? &daemon_ : pid == hostile_.pid ? &hostile_ : nullptr;
    for (Child& client : clients_) {
      if (client.pid == pid) child = &client;
    }
    if (child == nullptr) continue;
    if (WIFSTOPPED(status)) {
      ++stops_;
      const size_t self = std::min(incarnation_ - 1, plan_.daemons.size() - 1);
      child->continue_at =
          Clock::now() +
          milliseconds(child == &daemon_ ? plan_.daemons[self].stop_ms : kClientStopMs);
      continue;
    }
    child->status = status;
    child->running = false;
    on_end(*child);
  }
}

void Round::on_end(Child& child) {
  if (killed(child.status)) ++kills_;
  if (&child != &daemon_) return;
  if (!killed(child.status)) problem_ = "the daemon ended by itself";
  restart_at_ = Clock::now() + milliseconds(plan_.restart_ms);
}

void Round::continue_stopped(Child& child) {
  if (child.running && Clock::now() >= child.continue_at) {
    child.continue_at = Clock::time_point::max();
    kill(child.pid, SIGCONT);
  }
}

bool Round::keep_running() {
  reap();
  continue_stopped(daemon_);
  start_clients();
  bool any = hostile_.running && plan_.hostile != Hostile::kMute;  // who leaves when told to
  for (size_t i = 0; i < clients_.size(); ++i) {
    Child& client = clients_[i];
    continue_stopped(client);
    any |= !client.begun;
    if (!client.running) continue;
    any = true;
    if (reached(client.started, plan_.clients[i].kill_at_ms)) kill(client.pid, SIGKILL);
  }
  const DaemonPlan& self = plan_.daemons[std::min(incarnation_ - 1, plan_.daemons.size() - 1)];
  if (daemon_.running && reached(daemon_.started, self.kill_at_ms)) kill(daemon_.pid, SIGKILL);
  if (!daemon_.running && Clock::now() >= restart_at_) start_daemon();
  return any;
}

void Round::kill_all() {
  for (Child* child : {&daemon_, &hostile_}) {
    if (child->running) kill(child->pid, SIGKILL);
    if (child->running) waitpid(child->pid, nullptr, 0);
  }
  for (const Child& client : clients_) {
    if (client.running) kill(client.pid, SIGKILL);
    if (client.running) waitpid(client.pid, nullptr, 0);
  }
}

// ---- the verdict --------------------------------------------------------------------------------

std::string Round::judge_client(size_t index, Tally& tally) {
  const ClientPlan& self = plan_.clients[index];
  const ClientNote& note = stage_.board().clients[index];
  const Child& child = clients_[index];
  const std::string who =
      "client " + std::to_string(index) + " (" + std::to_string(child.pid) + ")";
  tally.threads_ended += note.ended;
  tally.forks += note.forked;
  if (note.fork_hangs != 0) return who + ": a forked child hung, crashed or launched";
  if (note.wrong != 0) return who + ": computed a wrong answer";
  const bool may_die = self.kill_at_ms >= 0 || self.faults.find("|kill|") != std::string::npos;
  if (!WIFEXITED(child.status) || WEXITSTATUS(child.status) != 0) {
    if (!may_die || !killed(child.status)) {
      return who + ": ended with status " + std::to_string(child.status);
    }
  } else if (note.finished == 0) {
    return who + ": left before it was done";
  }
  const std::string lost = judge_launches(index, tally);
  if (!lost.empty()) return who + ": " + lost;
  const int64_t late = note.longest_ns - int64_t{plan_.starvation_ms + self.slack_ms} * 1'000'000;
  tally.latest_ns = std::max(tally.latest_ns, late);
  if (late > std::chrono::nanoseconds(kSlack).count()) {
    return who + ": a launch took " + std::to_string(note.longest_ns / 1'000'000) + " ms";
  }
  return "";
}

// Each launch that the driver took ran once, and of the rest only the one in hand may have.
std::string Round::judge_launches(size_t index, Tally& tally) {
  const ClientNote& note = stage_.board().clients[index];
  const Stage::Ran& ran = stage_.ran(clients_[index].pid);
  if (!ran.disorder.empty()) return ran.disorder;
  for (uint32_t i = 0; i < kThreads; ++i) {
    const uint64_t attempted = note.threads[i].attempted, launched = note.threads[i].launched;
    tally.launches += launched;
    if (ran.kernels[i] <= attempted && (note.finished == 0 || ran.kernels[i] >= launched)) continue;
    return "thread " + std::to_string(i) + " attempted " + std::to_string(attempted) +
           " launches, the driver took " + std::to_string(launched) + ", the GPU ran " +
           std::to_string(ran.kernels[i]);
  }
  return "";
}

// Whoever is left, or a daemon that is started now: it knows no client any more, believed everybody
// who was honest, and ends when it is told to.
std::string Round::judge_daemon() {
  if (!daemon_.running) start_daemon();
  kill(daemon_.pid, SIGCONT);
  json status = json::object();
  const auto until = Clock::now() + kPatience;
  while (status.value("clients", -1) != 0) {
    auto asked = std::async(std::launch::async, [socket = stage_.at("s")] {
      return testing::request(socket, server::Request{});
    });
    while (asked.wait_for(milliseconds(1)) != std::future_status::ready) {
      reap();
      continue_stopped(daemon_);
    }
    const server::Reply reply = asked.get();
    if (reply.ok) status = json::parse(reply.json);
    reap();
    if (!daemon_.running && Clock::now() >= restart_at_) start_daemon();
    if (Clock::now() > until) return "the daemon still has clients: " + status.dump();
    if (status.value("clients", -1) != 0) usleep(1'000);
  }
  const bool all_honest = plan_.hostile == Hostile::kNobody || plan_.hostile == Hostile::kJumper;
  if (all_honest && (status["counters"]["malformed"] != 0 || status["counters"]["let_go"] != 0)) {
    return "the daemon did not believe an honest client: " + status.dump();
  }
  return "";
}

std::string Round::play() {
  const auto until = Clock::now() + kPatience;
  start_daemon();
  while (plan_.daemon_first && access(stage_.at("s").c_str(), F_OK) != 0 && Clock::now() < until) {
    usleep(200);
  }
  began_ = Clock::now();
  start_clients();
  if (plan_.hostile != Hostile::kNobody) start_hostile();
  while (keep_running()) {
    if (!problem_.empty()) return problem_;
    if (Clock::now() > until) return "somebody hangs";
    usleep(300);
  }
  if (hostile_.running) kill(hostile_.pid, SIGKILL);
  return problem_;
}

std::string Round::run(Tally& tally) {
  std::memset(static_cast<void*>(&stage_.board()), 0, sizeof(Board));
  stage_.forget_processes();
  unlink(stage_.at("log").c_str());
  clients_.resize(plan_.clients.size());
  std::string problem = play();
  const auto until = Clock::now() + kPatience;
  // The GPU tells of a client's kernels by the time the client has left it.
  for (const Child& client : clients_) {
    while (problem.empty() && !stage_.left(client.pid)) {
      stage_.read_gpu_log();
      const ClientNote& note = stage_.board().clients[&client - clients_.data()];
      const bool never =
          std::all_of(std::begin(note.threads), std::end(note.threads),
                      [](const ThreadNote& thread) { return thread.attempted == 0; });
      if (killed(client.status) && never) break;  // it may never have come that far
      if (Clock::now() > until) problem = "a client never left the GPU";
      usleep(200);
    }
  }
  for (size_t i = 0; problem.empty() && i < clients_.size(); ++i) problem = judge_client(i, tally);
  if (problem.empty()) problem = judge_daemon();
  tally.kills += kills_;
  tally.stops += stops_;
  tally.daemons += incarnation_;
  kill_all();
  std::ifstream log(stage_.at("log"));
  for (std::string line; std::getline(log, line);) {
    if (line.rfind("fault: ", 0) == 0) tally.fired.insert(line.substr(7));
  }
  return problem;
}

}  // namespace heddle::fault
