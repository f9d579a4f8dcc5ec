#include "bench/runner/host.h"

#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "bench/micro.h"
#include "ipc/socket.h"

namespace heddle::bench {
namespace fs = std::filesystem;
namespace {

constexpr double kStartS = 10;    // of heddled and of the simulated GPU
constexpr double kCommandS = 20;  // of `heddle`
constexpr double kAskS = 60;      // heddle-stop-probe
constexpr double kMpsStartS = 30, kMpsEndS = 20;

// The GPU belongs to one process at a time, in turns, as under an exclusive lock held by software:
// the owner launches freely, everyone else waits until its turn is over or it pauses.
constexpr const char* kTurnsPolicy = R"(-- One process at a time: it keeps the GPU until it
-- leaves it alone for keep_us, or its turn is over and another one waits.
queue.create("all")
local owner, turn_end, busy_us, revoked = nil, 0, 0, false
local function window(c)
  if c.id == owner and not revoked then return LEASE end
  return GATE
end
return policy {
  name = "turns", api = 1, version = "1.0.0",
  params = {
    turn_us = { type = "int", min = 100, max = 1000000, default = 10000,
                doc = "how long the owner keeps others waiting" },
    keep_us = { type = "int", min = 0, max = 1000000, default = 500,
                doc = "a pause that does not end its turn" },
  },
  hooks = {
    client_init = window, client_active = window, client_idle = window,
    client_exit = function(c)
      if c.id == owner then owner = nil end
    end,
    enqueue = function(k, p) return queue.insert("all", k, 0) end,
    dispatch = function(g, p)
      local k = queue.peek("all")
      if not k then return IDLE, "empty" end
      local now, c = now_us(), k.client
      if owner and c.id ~= owner then
        local holder
        for other in g:clients() do
          if other.id == owner then holder = other end
        end
        -- Once it waits itself, what it had launched is all that is left.
        local waits = holder and holder.queued > 0
        local busy = not waits and (g:busy(k.priority) or g.inflight_us > 0)
        if busy then busy_us = now end
        if not waits and now < turn_end and now < busy_us + p.keep_us then
          return IDLE, "another one's turn"
        end
        if holder and not revoked then
          revoked = true
          holder:gate()
        end
        if busy then return IDLE, "the GPU drains" end
      end
      owner, turn_end, busy_us, revoked = c.id, now + p.turn_us, now, false
      c:lease()
      return RUN, k
    end,
  },
}
)";

bool listens(const std::string& socket) {
  const int connection = ipc::connect_socket(socket.c_str(), 0);
  if (connection < 0) return false;
  close(connection);
  return true;
}

void await(Loop& loop, const Process& process, const std::string& what, const std::string& log,
           const std::function<bool()>& up) {
  const double end = monotonic_s() + kStartS;
  while (process.running() && monotonic_s() < end) {
    if (up()) return;
    loop.sleep(0.005);
  }
  throw HostError(what + " did not start:\n" + tail(log));
}

// CPUs by physical core, where the host tells; else neighbours are taken for siblings.
std::vector<std::vector<int>> cores() {
  cpu_set_t set;
  std::vector<int> online;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return {};
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) online.push_back(cpu);
  }
  std::map<std::string, std::vector<int>> groups;
  std::vector<std::string> order;
  for (const int cpu : online) {
    std::string siblings = std::to_string(cpu);
    std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                       "/topology/thread_siblings_list");
    std::getline(file, siblings);
    if (groups[siblings].empty()) order.push_back(siblings);
    groups[siblings].push_back(cpu);
  }
  std::vector<std::vector<int>> out;
  for (const std::string& name : order) out.push_back(groups[name]);
  if (out.size() < online.size()) return out;
  out.clear();
  for (size_t i = 0; i < online.size(); i += 2) {
    out.emplace_back(online.begin() + static_cast<ptrdiff_t>(i),
                     online.begin() + static_cast<ptrdiff_t>(std::min(i + 2, online.size())));
  }
  return out;
}

}  // namespace

const std::vector<int>& Placement::job(size_t index) const {
  static const std::vector<int> kAnywhere;
  return index < jobs.size() ? jobs[index] : kAnywhere;
}

// Every second core, the first left to the runner and the rest of the host.
Placement place(size_t jobs) {
  const auto free = cores();
  Placement out;
  if (free.size() < 2 * jobs + 2) return out;
  for (size_t i = 0; i < jobs; ++i) out.jobs.push_back(free[2 * i + 1]);
  out.daemon = free[2 * jobs + 1];
  return out;
}

std::string dist() { return fs::read_symlink("/proc/self/exe").parent_path().parent_path(); }

const char* turns_policy() { return kTurnsPolicy; }

std::string installed(const std::string& part) { return dist() + "/" + part; }

GpuPath::GpuPath(Loop& loop, std::string folder, bool mps, bool simulated)
    : loop_(loop), folder_(std::move(folder)), mps_(mps) {
  fs::create_directories(folder_);
  // A pipe directory that does not exist keeps clients off any MPS server.
  environment_["CUDA_MPS_PIPE_DIRECTORY"] = folder_ + "/pipe";
  environment_["CUDA_MPS_LOG_DIRECTORY"] = folder_ + "/log";
  environment_["HEDDLE_MOCK_DEVICE"] = folder_ + "/device";  // mock_job.py
  if (simulated) {
    const std::string socket = folder_ + "/gpu";
    environment_["HEDDLE_SIM_SOCKET"] = socket;
    environment_["HEDDLE_SIM_MODE"] = mps ? "mps" : "timeslice";
    const std::string log = folder_ + "/gpu.log";
    gpu_ = std::make_unique<Process>(
        loop_, Spawn{{installed("lib/heddle/sim/heddle-sim-gpu")}, environment_, log, {}});
    await(loop_, *gpu_, "heddle-sim-gpu", log, [&] { return fs::exists(socket); });
  } else if (mps) {
    start_mps();
  }
}

GpuPath::~GpuPath() {
  if (gpu_) gpu_->stop(1);
  if (server_) stop_mps();
}

void GpuPath::start_mps() {
  fs::create_directories(folder_ + "/pipe");
  fs::create_directories(folder_ + "/log");
  try {
    run(loop_, {{"nvidia-cuda-mps-control", "-d"}, environment_, folder_ + "/mps.log", {}},
        kMpsStartS);
  } catch (const HostError&) {
    stop_mps();  // it may have come up all the same
    throw;
  }
  server_ = true;
}

void GpuPath::stop_mps() {
  pid_t pid = 0;
  std::ifstream(folder_ + "/pipe/nvidia-cuda-mps-control.pid") >> pid;
  if (pid <= 0) return;
  try {
    run(loop_, {{"nvidia-cuda-mps-control"}, environment_, folder_ + "/mps.log", {}}, kMpsEndS,
        "quit");
  } catch (const HostError&) {
    ::kill(pid, SIGTERM);  // our own, by its own file
  }
  for (const double end = monotonic_s() + kMpsEndS; ::kill(pid, 0) == 0 && monotonic_s() < end;) {
    usleep(50'000);
  }
}

Daemon::Daemon(Loop& loop, const std::string& folder, const GpuPath& path, const Given& given,
               const std::vector<int>& cpus)
    : loop_(loop),
      folder_(folder),
      simulated_(path.simulated()),
      cpus_(cpus),
      environment_(path.environment()) {
  const std::string policies = folder_ + "/policies", socket = folder_ + "/heddled";
  const std::string profiles = folder_ + "/profiles";
  fs::create_directories(folder_);
  fs::copy(installed("share/heddle/policies"), policies, fs::copy_options::recursive);
  std::ofstream(policies + "/turns.lua") << kTurnsPolicy;
  std::ofstream file(folder_ + "/heddled.toml");
  file << "daemon.socket = \"" << socket << "\"\ngpu.mode = \""
       << (path.mps() ? "mps" : "timeslice") << "\"\npolicy.directory = \"" << policies << "\"\n";
  if (given.config.find("policy.name") == std::string::npos) {
    file << "policy.name = \"priority\"\n";
  } else {
    named(given.policy);
  }
  if (given.profiles.empty()) {
    file << "profiles.keep = false\n";
  } else {
    fs::copy(given.profiles, profiles, fs::copy_options::recursive);
    file << "profiles.directory = \"" << profiles << "\"\n";
  }
  file << given.config << given.rules;
  file.close();
  environment_["HEDDLE_SOCKET"] = socket;
  start();
}

// A path is copied to where the daemon finds its policies.
std::string Daemon::named(const std::string& policy) const {
  if (policy.find('/') == std::string::npos) return policy;
  std::string name = fs::path(policy).stem();
  fs::copy_file(policy, folder_ + "/policies/" + name + ".lua",
                fs::copy_options::overwrite_existing);
  return name;
}

void Daemon::start() {
  const std::string log = folder_ + "/heddled.log", file = folder_ + "/heddled.toml";
  // Loading a policy pardons it; the host's quarantine is none of ours.
  auto environment = environment_;
  environment["STATE_DIRECTORY"] = folder_;
  process_ = std::make_unique<Process>(
      loop_, Spawn{{installed("bin/heddled"), "--config", file}, environment, log, cpus_});
  const std::string& socket = environment_.at("HEDDLE_SOCKET");
  await(loop_, *process_, "heddled", log, [&] { return listens(socket); });
}

void Daemon::restart() {
  const auto clients = [&] { return status().value("clients", 0); };
  const int before = clients();
  process_->stop(kStartS);
  loaded_.reset();
  start();
  await(loop_, *process_, "heddled's clients", folder_ + "/heddled.log",
        [&] { return clients() >= before; });
}

Daemon::~Daemon() { process_->stop(kStartS); }

std::string Daemon::command(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), installed("bin/heddle"));
  return run(loop_, {arguments, environment_, folder_ + "/command.log", {}}, kCommandS);
}

Json Daemon::status() {
  Json status = Json::parse(command({"status", "--json"}), nullptr, false);
  if (status.is_discarded()) throw HostError("heddle status: no JSON");
  return status;
}

void Daemon::record(const std::string& file, double seconds) {
  command({"record", file, "--seconds", std::to_string(seconds)});
}

void Daemon::use(const std::string& policy, const std::map<std::string, std::string>& params) {
  const std::pair wanted(policy, params);
  if (loaded_ == wanted) return;
  const std::string name = named(policy);
  if (!loaded_ || loaded_->first != policy) {
    command({"policy", "load", name, "--wait", "0"});
    defaults_.clear();
    const Json list = Json::parse(command({"policy", "list", "--json"}), nullptr, false);
    for (const Json& one : list.value("policies", Json::array())) {
      if (one.value("name", "") != name) continue;
      for (const Json& p : one.value("params", Json::array())) {
        defaults_[p.at("name")] = p.at("default");
      }
    }
  }
  std::map<std::string, std::string> all = params;
  all.insert(defaults_.begin(), defaults_.end());
  std::vector<std::string> set = {"policy", "set", name, "--wait", "0"};
  for (const auto& [key, value] : all) set.push_back(key + "=" + value);
  if (!all.empty()) command(set);
  loaded_ = wanted;
}

std::vector<std::string> Daemon::prefix(int priority, const std::string& label,
                                        const std::string& sms) const {
  std::vector<std::string> words = {installed("bin/heddle"),  "run",     "--quiet", "--priority",
                                    std::to_string(priority), "--label", label};
  if (!sms.empty()) words.insert(words.end(), {"--sms", sms});
  if (simulated_) words.emplace_back("--sim");
  words.emplace_back("--");
  return words;
}

std::optional<Gpu> find_gpu(Loop& loop) {
  try {
    std::istringstream answer(run(
        loop,
        {{"nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"}, {}, "", {}},
        60));
    Gpu gpu;
    if (!std::getline(answer, gpu.name, ',') || !std::getline(answer >> std::ws, gpu.driver)) {
      return std::nullopt;
    }
    return gpu;
  } catch (const HostError&) {
    return std::nullopt;
  }
}

Json ask_stops(Loop& loop) {
  try {
    return Json::parse(
        run(loop, {{installed("libexec/heddle/heddle-stop-probe")}, {}, "", {}}, kAskS));
  } catch (const std::exception& error) {
    return {{"answer", "not asked"}, {"why", error.what()}};
  }
}

}  // namespace heddle::bench
