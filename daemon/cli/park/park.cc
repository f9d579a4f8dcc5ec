#include "daemon/cli/park/park.h"

#include <dlfcn.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <vector>

#include "daemon/base/files.h"
#include "daemon/base/printable_output.h"
#include "daemon/cli/command_line.h"
#include "daemon/cli/daemon.h"
#include "daemon/cli/look/print.h"

namespace heddle::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// A process whose memory may be parked.
struct Tenant {
  pid_t pid = 0;
  std::string label;
  uint64_t bytes = 0;      // on GPUs, as heddled counts; 0: not known
  std::string by_heddled;  // where its memory is, if heddled parks it
};

// CUprocessState
enum State : int { kRunning, kLocked, kCheckpointed, kBroken };
constexpr const char* kStates[] = {"on the GPU", "locked", "parked"};
constexpr int kNotSupported = 801;
// Of host memory, beside what heddled counts: for the context, and for the driver meanwhile.
constexpr uint64_t kBeside = uint64_t{1} << 30;
constexpr double kIdleWorkS = 5;  // that the work of an idle program may take

struct LockArgs {  // CUcheckpointLockArgs
  unsigned timeout_ms;
  unsigned reserved;
  uint64_t zeros[7];
};

struct Checkpoint {
  int (*init)(unsigned);
  int (*name)(int, const char**);
  int (*state)(int, int*);
  int (*lock)(int, LockArgs*);
  int (*save)(int, void*);
  int (*restore)(int, void*);
  int (*unlock)(int, void*);

  std::string error(int code) const {
    const char* text = nullptr;
    if (code == kNotSupported) return "the driver does not park it (under MPS it parks nobody)";
    return name(code, &text) == 0 && text != nullptr ? text : "error " + std::to_string(code);
  }
};

Result<Checkpoint> load() {
  const char* named = getenv("HEDDLE_REAL_LIBCUDA");
  void* library = dlopen(named != nullptr ? named : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return fail(std::string("parking needs the driver: ") + dlerror());
  std::string missing;
  const auto find = [&](auto& call, const char* symbol) {
    call = reinterpret_cast<std::remove_reference_t<decltype(call)>>(dlsym(library, symbol));
    if (call == nullptr && missing.empty()) missing = symbol;
  };
  Checkpoint c{};
  find(c.init, "cuInit");
  find(c.name, "cuGetErrorName");
  find(c.state, "cuCheckpointProcessGetState");
  find(c.lock, "cuCheckpointProcessLock");
  find(c.save, "cuCheckpointProcessCheckpoint");
  find(c.restore, "cuCheckpointProcessRestore");
  find(c.unlock, "cuCheckpointProcessUnlock");
  if (!missing.empty())
    return fail("the driver has no " + missing + "; parking needs 570 or newer");
  if (const int code = c.init(0); code != 0) return fail("cuInit: " + c.error(code));
  return c;
}

std::string gib(uint64_t bytes) {
  if (bytes < uint64_t{1} << 30) return std::to_string(bytes >> 20) + " MiB";
  return fixed("%.1f GiB", static_cast<double>(bytes) / (uint64_t{1} << 30));
}

uint64_t number_in(const std::string& text) {
  uint64_t out = 0;
  std::from_chars(text.data(), text.data() + text.size(), out);
  return out;
}

// Of all attached programs.
std::vector<Tenant> tenants_of(const json& ps) {
  std::vector<Tenant> all;
  for (const json& client : ps.at("clients")) {
    const std::string at = client.value("memory_at", "resident");
    Tenant one{client.at("pid").get<pid_t>(), client.at("label"), 0, at == "resident" ? "" : at};
    if (one.label.empty()) one.label = fs::path(client.value("exe", "")).filename().string();
    for (const json& device : client.at("devices")) {
      one.bytes += device.value("memory_bytes", uint64_t{0});
    }
    const auto same = std::find_if(all.begin(), all.end(),
                                   [&](const Tenant& other) { return other.pid == one.pid; });
    if (same == all.end()) {
      all.push_back(one);
    } else {
      same->bytes += one.bytes;  // a session of it each
    }
  }
  return all;
}

// The processes of a label, or the one with that PID; without a name all.
Result<std::vector<Tenant>> meant(const std::string& socket, const std::string& who) {
  const Answer ps = ask_ps(socket);
  std::vector<Tenant> all;
  if (ps.code == kOk) all = tenants_of(ps.json);
  const auto pid = static_cast<pid_t>(number_in(who));
  std::erase_if(all, [&](const Tenant& one) {
    return !who.empty() && one.label != who && std::to_string(one.pid) != who;
  });
  if (all.empty() && std::to_string(pid) == who && fs::exists("/proc/" + who)) {
    all.push_back({pid, "", 0, ""});  // of no heddled, or of another
  }
  if (!all.empty() || (who.empty() && ps.code == kOk)) return all;
  if (ps.code != kOk) return fail(ps.error);
  return fail("'" + printable(who) + "' is neither the label of a client nor a PID; see heddle ps");
}

// Locks the process and takes its memory off the GPU. Why not; "": it is parked.
std::string put_away(const Checkpoint& driver, const Tenant& t, double timeout_s, bool force) {
  const char* cgroups = getenv("HEDDLE_CGROUP");
  const auto room = host_room(t.pid, "/proc", cgroups != nullptr ? cgroups : "/sys/fs/cgroup");
  if (!force && !room) return room.error().message;
  if (!force && t.bytes == 0) {
    return "how much memory it has is not known; --force parks it all the same";
  }
  if (!force && *room < t.bytes + kBeside) {
    return "needs " + gib(t.bytes + kBeside) + " of host memory, and it may take " + gib(*room) +
           ": raise its cgroup's limit, or park another program";
  }
  int before = kRunning;
  driver.state(t.pid, &before);
  LockArgs args{static_cast<unsigned>(timeout_s * 1e3), 0, {}};
  if (const int code = driver.lock(t.pid, &args); before == kRunning && code != 0) {
    return "was not locked, and goes on: " + driver.error(code) +
           "; its work must end within --timeout";
  }
  const int code = driver.save(t.pid, nullptr);
  if (code == 0) return "";
  const int back = driver.unlock(t.pid, nullptr);
  return "was not parked: " + driver.error(code) +
         (back == 0 ? "; it goes on" : "; and stays locked: " + driver.error(back));
}

// The reverse, of a process in that state.
std::string bring_back(const Checkpoint& driver, const Tenant& t, int state) {
  if (state == kCheckpointed) {
    if (const int code = driver.restore(t.pid, nullptr); code != 0) {
      return "stays parked: " + driver.error(code) + "; free memory of the GPU, and try again";
    }
  }
  const int code = state == kRunning ? 0 : driver.unlock(t.pid, nullptr);
  return code == 0 ? "" : "is back and stays locked: " + driver.error(code);
}

class Clock {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

 private:
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// By hand.
class Parking {
 public:
  Parking(const Checkpoint& driver, bool as_json) : driver_(driver), as_json_(as_json) {}

  void park(const Tenant& t, double timeout_s, bool force) {
    int state = kRunning;
    if (!known(t, state)) return;
    if (state == kCheckpointed) return refuse(t, "is parked already");
    const Clock begin;
    const std::string why = put_away(driver_, t, timeout_s, force);
    why.empty() ? tell(t, kCheckpointed, begin, "parked") : refuse(t, why);
  }

  void unpark(const Tenant& t) {
    int state = kRunning;
    if (!known(t, state)) return;
    if (state == kRunning) return refuse(t, "is not parked");
    if (!t.by_heddled.empty()) {
      return refuse(
          t, "was parked by heddled, and comes back with its next call (" + t.by_heddled + ")");
    }
    const Clock begin;
    const std::string why = bring_back(driver_, t, state);
    why.empty() ? tell(t, kRunning, begin, "back") : refuse(t, why);
  }

  void show(const Tenant& t) {
    int state = kRunning;
    if (!known(t, state)) return;
    note(t, {{"state", kStates[state]}});
    if (!as_json_) std::cout << name(t) << ": " << kStates[state] << '\n';
  }

  int end() {
    if (as_json_) write_json({{"programs", programs_}});
    return status_;
  }

 private:
  static std::string name(const Tenant& t) {
    return (t.label.empty() ? "" : printable(t.label) + ", ") + "pid " + std::to_string(t.pid);
  }
  void note(const Tenant& t, const json& what) {
    json one = {{"pid", t.pid}, {"label", t.label}, {"bytes", t.bytes}};
    one.update(what);
    programs_.push_back(one);
  }

  bool known(const Tenant& t, int& state) {
    const int code = t.pid > 0 ? driver_.state(t.pid, &state) : kNotSupported;
    if (code == 0 && state >= kRunning && state < kBroken) return true;
    refuse(t, t.pid <= 0  ? "is of another PID namespace: park it there"
              : code != 0 ? driver_.error(code) + "; root and its own user may park it"
                          : "the driver says that its checkpoint failed: end it");
    return false;
  }

  void refuse(const Tenant& t, const std::string& why) {
    status_ = kFailed;
    note(t, {{"error", why}});
    std::cerr << "heddle: " << name(t) << ": " << why << '\n';
  }

  void tell(const Tenant& t, State state, const Clock& clock, const char* word) {
    note(t, {{"state", kStates[state]}, {"seconds", clock.seconds()}});
    if (as_json_) return;
    std::cout << name(t) << ": " << word << " in " << fixed("%.1f s", clock.seconds())
              << (t.bytes > 0 ? ", " + gib(t.bytes) : "") << '\n';
  }

  const Checkpoint& driver_;
  const bool as_json_;
  int status_ = kOk;
  json programs_ = json::array();
};

// A program that is locked is not left so.
void hold_signals() {
  sigset_t ends;
  sigemptyset(&ends);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&ends, number);
  sigprocmask(SIG_BLOCK, &ends, nullptr);
}

// heddled's keeper of one process (daemon/server/keeper.h). Standard input and output are one
// socket of packets: any packet, and its end, mean that the memory is wanted back.
int keep(const Tenant& t) {
  hold_signals();
  const auto say = [](const std::string& word, const std::string& rest) {
    const std::string line = word + ' ' + rest;
    (void)send(STDOUT_FILENO, line.data(), line.size(), MSG_NOSIGNAL);
  };
  const auto driver = load();
  if (!driver) return say("failed", driver.error().message), kFailed;
  int state = kRunning;
  if (const int code = driver->state(t.pid, &state); code != 0) {
    return say("failed", driver->error(code)), kFailed;
  }
  bool alone = false;  // nobody asks for it any more
  if (t.bytes > 0) {
    const Clock begin;
    const std::string why = state == kRunning ? put_away(*driver, t, kIdleWorkS, false)
                                              : "is parked or locked by another";
    if (why.empty()) {
      say("parked", fixed("%.3f", begin.seconds()));
      char word[16];
      alone = read(STDIN_FILENO, word, sizeof word) <= 0;
    } else {
      say("failed", why);
      if (state != kRunning || driver->state(t.pid, &state) != 0 || state == kRunning) {
        return kFailed;
      }
      alone = true;  // it is not left locked
    }
  }
  for (;;) {
    const Clock begin;
    if (driver->state(t.pid, &state) != 0) return kFailed;  // it has ended
    const std::string why = bring_back(*driver, t, state);
    if (why.empty()) return say("back", fixed("%.3f", begin.seconds())), kOk;
    say("failed", why);
    char word[16];
    if (alone) {
      sleep(1);
    } else {
      alone = read(STDIN_FILENO, word, sizeof word) <= 0;
    }
  }
}

template <class Each>
int for_each_meant(const std::string& socket, const std::string& who, bool as_json,
                   const Each& each) {
  const auto tenants = meant(socket, who);
  if (!tenants) return show_error(as_json, {kFailed, tenants.error().message, {}});
  const auto driver = load();
  if (!driver) return show_error(as_json, {kFailed, driver.error().message, {}});
  hold_signals();
  Parking parking(*driver, as_json);
  for (const Tenant& one : *tenants) each(parking, one);
  return parking.end();
}

}  // namespace

Result<uint64_t> host_room(pid_t pid, const std::string& proc, const std::string& cgroups) {
  uint64_t room = 0;
  std::ifstream meminfo(proc + "/meminfo");
  for (std::string key, unit; meminfo >> key;) {
    if (key == "MemAvailable:") meminfo >> room;
    std::getline(meminfo, unit);
  }
  room *= 1024;
  std::ifstream mine(proc + "/" + std::to_string(pid) + "/cgroup");
  std::string line;
  if (!std::getline(mine, line)) return fail("its cgroup cannot be read; run this as root");
  while (!line.starts_with("0::") && std::getline(mine, line)) {
  }
  if (!line.starts_with("0::")) return room;  // version 1: not looked at
  for (fs::path at = line.substr(3); at.has_relative_path(); at = at.parent_path()) {
    const std::string folder = cgroups + at.string();
    std::string most, used;
    if (!(std::ifstream(folder + "/memory.max") >> most) || most == "max") continue;
    if (!(std::ifstream(folder + "/memory.current") >> used)) continue;
    const uint64_t limit = number_in(most), has = number_in(used);
    room = std::min(room, limit > has ? limit - has : 0);
  }
  return room;
}

void add_park(CLI::App& app, const std::string& socket, const bool& as_json, int& exit_code) {
  struct Options {
    std::string who;
    double timeout_s = 30;
    bool force = false;
  };
  const auto o = std::make_shared<Options>();
  CLI::App* park = app.add_subcommand(
      "park", "A program's memory goes to the host until unpark; without a name: who is parked");
  park->add_option("program", o->who, "its label, all of whose processes are meant, or a PID");
  park->add_option("--timeout", o->timeout_s, "seconds that its submitted work may take (30)")
      ->check(CLI::Range(0.1, 3600.0));
  park->add_flag("--force", o->force, "without a look at the host's memory and the cgroup's limit");
  park->callback([=, &socket, &as_json, &exit_code] {
    exit_code = for_each_meant(socket, o->who, as_json, [&](Parking& parking, const Tenant& one) {
      o->who.empty() ? parking.show(one) : parking.park(one, o->timeout_s, o->force);
    });
  });
  CLI::App* unpark = app.add_subcommand("unpark", "Brings a parked program back to the GPU");
  unpark->add_option("program", o->who, "its label or PID")->required();
  unpark->callback([=, &socket, &as_json, &exit_code] {
    exit_code = for_each_meant(socket, o->who, as_json,
                               [](Parking& parking, const Tenant& one) { parking.unpark(one); });
  });
  const auto kept = std::make_shared<Tenant>();
  CLI::App* keeper = app.add_subcommand("keeper", "for heddled")->group("");
  keeper->add_option("pid", kept->pid)->required();
  keeper->add_option("bytes", kept->bytes)->required();
  keeper->callback([=, &exit_code] { exit_code = keep(*kept); });
}

}  // namespace heddle::cli
