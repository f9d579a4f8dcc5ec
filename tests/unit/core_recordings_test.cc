// What the core decides, held to the byte: campaigns (core_campaign.h) under each shipped policy
// and the built-in, and pairs of the traces in virtual time. recordings.txt has a line for each:
// its name, how many decisions, their hash, and a digit of the hash after each 64th part of them.
//
// HEDDLE_WRITE_RECORDINGS=1 writes the file anew: a policy has changed, or decisions are meant to.
// HEDDLE_RECORDING=NAME prints the decisions of one, for a diff against another commit's.
//
// Who was let go when, held to tolerances (projection.h): the same pairs, asking and at gates, and
// a scene of graphs and stops. projections.txt has a line for each of their clients.
// HEDDLE_WRITE_PROJECTIONS=1 writes that file anew: clients are meant to be treated otherwise.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>

#include "daemon/policy/lua_policy.h"
#include "daemon/sim/script.h"
#include "tests/unit/core_campaign.h"
#include "tests/unit/projection.h"

namespace heddle::core {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kCampaigns = 6, kPairs = 3;  // of each policy
constexpr uint32_t kSteps = 2'500;              // of a campaign
constexpr TimeNs kPairNs = 60'000'000;
constexpr TimeNs kAloneNs = 25'000'000;  // of that, the more important one has to itself
constexpr TimeNs kProjectedNs = 120'000'000;
constexpr size_t kParts = 64;

// No clock may end a hook.
policy::Limits no_clock() {
  policy::Limits limits = policy::virtual_time_limits();
  limits.cpu_ms = limits.call_ms;
  return limits;
}

// Uses what no shipped policy does, and fails now and then.
const char* const kRough = R"(
queue.create("a")
queue.create("b")
local calls = 0
return policy { name = "rough", api = 1, version = "1", hooks = {
  client_active = function(c) c:gate(500) return nil end,
  enqueue = function(k)
    if k.priority == 2 then return RUN end
    return queue.insert(k.priority > 5 and "a" or "b", k, k.predicted_us % 3)
  end,
  dispatch = function(g)
    calls = calls + 1
    if calls % 50 == 0 then error("now and then") end
    local k = queue.peek("b") or queue.peek("a", 1) or queue.best_fit("a", 300)
    if not k then return IDLE, "nothing" end
    for c in g:clients() do
      if calls % 9 == 0 and budget.slowdown(c) > 1.5 then c:launch_priority(-2) end
      if calls % 31 == 0 then c:resize() end
    end
    if g.budget.dram < 0.3 or not budget.fits(k, 16) then return IDLE, "it costs too much" end
    return RUN, k, calls % 4 * 16, calls % 5 * 40
  end,
  dump = function() return "calls " .. calls end,
} })";

// Paths by name; of the built-in "", of kRough its text.
std::map<std::string, std::string> shipped_policies() {
  std::map<std::string, std::string> paths{{"builtin", ""}, {"rough", kRough}};
  for (const auto& entry : fs::recursive_directory_iterator(HEDDLE_POLICIES)) {
    const std::string name = entry.path().stem().string();
    const bool lib = entry.path().parent_path().filename() == "lib";
    if (entry.path().extension() != ".lua" || lib || name.ends_with("_test")) continue;
    paths[name] = entry.path().string();
  }
  return paths;
}

class Policies {
 public:
  Policy* make(const std::string& path) {
    if (path.empty()) return nullptr;
    auto loaded = path == kRough ? policy::load_policy({path, "rough.lua", ""}, {}, no_clock())
                                 : policy::load_policy_file(path, {}, no_clock());
    EXPECT_TRUE(loaded) << loaded.error().message;
    return loaded ? made_.emplace_back(std::move(*loaded)).get() : nullptr;
  }

 private:
  std::vector<std::unique_ptr<policy::LuaPolicy>> made_;
};

DecisionLog campaign(uint64_t seed, const std::string& policy, const std::string& candidate) {
  Policies policies;
  Campaign campaign(
      seed, [&] { return policies.make(policy); }, [&] { return policies.make(candidate); });
  return campaign.run(kSteps);
}

// A trace's client, over and over.
class Player final : public sim::Program {
 public:
  explicit Player(const sim::TraceScript& script) : script_(script) {}
  bool next(TimeNs, sim::Step& step) override {
    if (position_ == script_.iterations[iteration_].size()) {
      position_ = 0;
      iteration_ = (iteration_ + 1) % script_.iterations.size();
    }
    const sim::TraceScript::Launch& call = script_.iterations[iteration_][position_++];
    step.think_ns = static_cast<TimeNs>(call.think_us * 1e3F);
    step.kind = call.synchronize ? sim::Step::Kind::kSynchronize : sim::Step::Kind::kLaunch;
    if (call.synchronize) return true;
    const std::vector<float>& measured = script_.measured_us[call.kernel];
    step.kernel = call.kernel;
    step.us = double{call.us > 0 ? call.us : measured[drawn_++ % measured.size()]};
    return true;
  }

 private:
  const sim::TraceScript& script_;
  size_t iteration_ = 0, position_ = 0, drawn_ = 0;
};

class Witness final : public sim::Witness {
 public:
  void event(const Event&) override {}
  void decision(const Decision& d) override { log.decision(d); }
  void let_go(TimeNs now, size_t client, double us, SmSet set, int priority) override {
    if (projections.size() <= client) projections.resize(client + 1);
    projections[client].let_go(now, us, set, priority);
  }
  // Runs the machine, and looks at its clients now and then.
  void watch(sim::VirtualMachine& machine) {
    while (machine.now() < kProjectedNs) {
      machine.run_until(machine.now() + Projection::kSampleNs);
      projections.resize(machine.clients());
      for (size_t c = 0; c < machine.clients(); ++c) {
        projections[c].sample(machine.now(), machine.waiting(c) && !machine.running(c));
      }
    }
  }
  DecisionLog log;
  std::vector<Projection> projections;
};

const sim::TraceScript& script_of(const std::string& path) {
  static std::map<std::string, sim::TraceScript> scripts;
  const auto found = scripts.find(path);
  if (found != scripts.end()) return found->second;
  auto loaded = sim::load_script(path, "");
  EXPECT_TRUE(loaded) << loaded.error().message;
  return scripts[path] = loaded ? *loaded : sim::TraceScript{};
}

// How much slower heddle carries out what was decided; 1: as measured.
sim::HostCosts slower(double times) {
  sim::HostCosts costs;
  for (TimeNs* ns : {&costs.round_trip_ns, &costs.gate_ns}) {
    *ns = static_cast<TimeNs>(static_cast<double>(*ns) * times);
  }
  return costs;
}

// A run for projections instead of digests.
struct Watched {
  bool gates = false;
  double slower = 1;
};

Witness pair(const std::string& policy, const std::string& high, const std::string& low,
             bool promised, const Watched* watched = nullptr) {
  Policies policies;
  Config config;
  config.mps = true;
  config.switch_us = 10;
  Witness witness;
  sim::VirtualMachine machine(config, {}, slower(watched != nullptr ? watched->slower : 1));
  machine.set_witness(&witness);
  EXPECT_TRUE(machine.set_policy(policies.make(policy)));
  Player players[] = {Player(script_of(high)), Player(script_of(low))};
  const std::string* traces[] = {&high, &low};
  for (const size_t i : {0, 1}) {
    sim::ClientSpec spec;
    spec.name = i == 0 ? "high" : "low";
    spec.priority = i == 0 ? 0 : 9;
    spec.gates = watched != nullptr && watched->gates;
    if (i == 0 && promised) spec.slowdown_max = {1.1F};
    const size_t client = machine.add_client(spec);
    for (const sim::LaunchSpec& kernel : script_of(*traces[i]).kernels) {
      machine.add_kernel(client, kernel);
    }
    machine.run(client, i == 0 ? 1'000 : kAloneNs, players[i]);
  }
  if (watched != nullptr) {
    witness.watch(machine);
    return witness;
  }
  machine.run_until(kPairNs);
  witness.log.tell(machine.scheduler(), machine.now());
  return witness;
}

// Time-sliced, with requests, a long graph and two threads of short kernels, which can be stopped.
Witness scene(const std::string& policy, double times) {
  Policies policies;
  Config config;
  config.switch_us = 180;
  sim::GpuConfig gpu;
  gpu.mode = sim::Mode::kTimeSlice;
  Witness witness;
  sim::VirtualMachine machine(config, gpu, slower(times));
  machine.set_witness(&witness);
  EXPECT_TRUE(machine.set_policy(policies.make(policy)));
  for (const int priority : {0, 6, 9}) {
    sim::ClientSpec spec;
    spec.name = "Q" + std::to_string(priority);
    spec.priority = priority;
    spec.gates = spec.stops = true;
    machine.add_client(spec);
  }
  sim::LoopSpec requests, graphs, kernels;
  requests.launch = {"request", 400, 264};
  requests.launches = 4;
  requests.gap_us = 6'000;
  graphs.launch = {"graph", 5'000, 264};
  graphs.launch.nodes = 100;
  graphs.launches = 2;
  kernels.launch = {"kernel", 60, 132};
  kernels.launches = 40;
  kernels.gap_us = 300;
  machine.loop(0, 1'000, requests);
  machine.loop(1, kAloneNs, graphs);
  for (const TimeNs later : {0, 5'000'000}) machine.loop(2, kAloneNs + later, kernels);
  witness.watch(machine);
  return witness;
}

std::vector<std::string> traces() {
  std::vector<std::string> all;
  for (const auto& entry : fs::recursive_directory_iterator(HEDDLE_TRACES)) {
    if (entry.path().extension() == ".trace") all.push_back(entry.path().string());
  }
  std::sort(all.begin(), all.end());
  return all;
}

// FNV-1a, so that a policy keeps its recordings when others come and go.
uint64_t seed_of(const std::string& name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

size_t part_end(size_t decisions, size_t part) { return decisions * (part + 1) / kParts; }

std::pair<std::string, std::string> pair_of(const std::vector<std::string>& traces,
                                            const std::string& policy, uint32_t i) {
  const uint64_t seed = seed_of(policy) / 7 + i * 5;
  return {traces[seed % traces.size()], traces[seed / traces.size() % traces.size()]};
}

std::string line_of(const std::string& name, const DecisionLog& log) {
  std::ostringstream line;
  line << name << ' ' << log.decisions().size() << ' ' << std::hex << log.hash() << ' ';
  for (size_t part = 0; part < kParts; ++part) {
    line << (log.hash_at(part_end(log.decisions().size(), part)) & 0xf);
  }
  return line.str();
}

void print(std::ostream& out, const Decision& d) {
  constexpr const char* kNames[] = {"grant", "allowance", "hint"};
  out << d.at << " device " << int{d.device} << ' ' << kNames[static_cast<size_t>(d.kind)]
      << " client " << d.client << " thread " << d.thread << " ask " << d.ask_seq << " decider "
      << static_cast<int>(d.decider) << " allowed " << static_cast<int>(d.allowed) << " set "
      << d.sm_set.bits() << " kernel " << d.kernel << " predicted " << d.predicted_us << " size "
      << d.size.get() << '\n';
}

// The decisions of the first part that is not what it was; those before are, but for one in 16.
std::string first_difference(const std::string& was, const DecisionLog& log) {
  std::string name, hash, digits;
  size_t count = 0;
  std::istringstream(was) >> name >> count >> hash >> digits;
  std::ostringstream text;
  text << "it had " << count << " decisions and has " << log.decisions().size() << '\n';
  for (size_t part = 0, from = 0; part < kParts && digits.size() == kParts; ++part) {
    const size_t to = std::min(part_end(count, part), log.decisions().size());
    const auto digit = static_cast<size_t>(log.hash_at(to) & 0xf);
    if (to < part_end(count, part) || "0123456789abcdef"[digit] != digits[part]) {
      text << "decisions " << from << " to " << to << " are the first that differ; now:\n";
      for (size_t i = from; i < std::min(to, from + 12); ++i) print(text, log.decisions()[i]);
      return text.str();
    }
    from = to;
  }
  text << "decisions are alike; what status and explain tell differs\n";
  return text.str();
}

class Recordings : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ifstream file(HEDDLE_RECORDINGS);
    for (std::string line; std::getline(file, line);) was_[line.substr(0, line.find(' '))] = line;
  }

  void record(const std::string& name, const DecisionLog& log) {
    if (const char* wanted = std::getenv("HEDDLE_RECORDING"); wanted != nullptr && name == wanted) {
      for (const Decision& d : log.decisions()) print(std::cout, d);
    }
    const std::string line = line_of(name, log);
    is_.push_back(line);
    if (was_[name] != line && differing_++ == 0)
      first_ = name + ": " + first_difference(was_[name], log);
  }

  std::map<std::string, std::string> was_;
  std::vector<std::string> is_;
  size_t differing_ = 0;
  std::string first_;
};

TEST_F(Recordings, TheCoreDecidesAsItDid) {
  const auto policies = shipped_policies();
  const std::vector<std::string> all = traces();
  for (const auto& [name, path] : policies) {
    for (uint32_t i = 0; i < kCampaigns; ++i) {
      const uint64_t seed = seed_of(name) + i;
      const auto candidate = policies.find(i % 2 == 0 ? "gapfill" : "fifo");
      ASSERT_NE(candidate, policies.end());
      record("campaign/" + name + "/" + std::to_string(i), campaign(seed, path, candidate->second));
    }
    for (uint32_t i = 0; i < kPairs; ++i) {
      const auto [high, low] = pair_of(all, name, i);
      record("pair/" + name + "/" + std::to_string(i), pair(path, high, low, i != 1).log);
    }
  }
  if (std::getenv("HEDDLE_WRITE_RECORDINGS") != nullptr) {
    std::ofstream file(HEDDLE_RECORDINGS);
    for (const std::string& line : is_) file << line << '\n';
    return;
  }
  EXPECT_EQ(differing_, 0u) << differing_ << " of " << is_.size() << " recordings differ; first "
                            << first_;
  EXPECT_EQ(was_.size(), is_.size()) << "a policy is gone, or recordings.txt has too many lines";
}

// A line for each client of the pairs, asking and at gates, and of the scene. Runs are named after
// the policy; `other` runs another one in its place.
std::vector<std::string> projected(double times, uint32_t pairs, bool other = false) {
  const std::vector<std::string> all = traces();
  std::vector<std::pair<std::string, std::string>> policies;
  for (const auto& policy : shipped_policies()) policies.push_back(policy);
  std::vector<std::string> lines;
  const auto add = [&](const std::string& name, const Witness& witness) {
    for (size_t c = 0; c < witness.projections.size(); ++c) {
      lines.push_back(witness.projections[c].line(name + "/" + std::to_string(c)));
    }
  };
  for (size_t p = 0; p < policies.size(); ++p) {
    const std::string& name = policies[p].first;
    const std::string& path = policies[(p + (other ? 1 : 0)) % policies.size()].second;
    for (uint32_t i = 0; i < pairs; ++i) {
      const auto [high, low] = pair_of(all, name, i);
      for (const bool gates : {false, true}) {
        const Watched watched{gates, times};
        add(name + (gates ? "/gates/" : "/asks/") + std::to_string(i),
            pair(path, high, low, i != 1, &watched));
      }
    }
    add(name + "/scene", scene(path, times));
  }
  return lines;
}

// The differences between two sets of lines; a name that only one has is one.
std::vector<std::string> differences(const std::vector<std::string>& was,
                                     const std::vector<std::string>& is) {
  std::map<std::string, std::string> left;
  const auto name_of = [](const std::string& line) { return line.substr(0, line.find(' ')); };
  for (const std::string& line : was) left[name_of(line)] = line;
  std::vector<std::string> all;
  for (const std::string& line : is) {
    const std::string differs = left.contains(name_of(line))
                                    ? Projection::difference(left[name_of(line)], line)
                                    : "it is new";
    if (!differs.empty()) all.push_back(name_of(line) + ": " + differs);
    left.erase(name_of(line));
  }
  for (const auto& [name, line] : left) all.push_back(name + ": it is gone");
  return all;
}

TEST(Projections, ClientsAreTreatedAsTheyWere) {
  const std::vector<std::string> is = projected(1, kPairs);
  if (std::getenv("HEDDLE_WRITE_PROJECTIONS") != nullptr) {
    std::ofstream file(HEDDLE_PROJECTIONS);
    for (const std::string& line : is) file << line << '\n';
    return;
  }
  std::vector<std::string> was;
  std::ifstream file(HEDDLE_PROJECTIONS);
  for (std::string line; std::getline(file, line);) was.push_back(line);
  EXPECT_EQ(differences(was, is), std::vector<std::string>());
}

// What the tolerances are worth: a third slower is the same behaviour, another policy is not.
TEST(Projections, TellPoliciesApartAndNotDelays) {
  const std::vector<std::string> is = projected(1, 1);
  EXPECT_LT(differences(is, projected(1.33, 1)).size() * 100, is.size() * 3);
  EXPECT_GT(differences(is, projected(1, 1, true)).size(), is.size() / 2);
}

}  // namespace
}  // namespace heddle::core
