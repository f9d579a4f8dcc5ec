// What gated launches cost the daemon: its engine and a Lua policy turn by turn, as Server::spin
// has them, with clients that do nothing but write their shared memory: in virtual time, all on one
// thread, or in real time beside them, so that what they write has to come from another processor.
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "bench/micro.h"
#include "daemon/policy/lua_policy.h"
#include "daemon/policy_store.h"
#include "daemon/server/engine.h"
#include "daemon/server/server.h"
#include "ipc/ring.h"
#include "ipc/slot.h"

namespace heddle::bench {
namespace {

constexpr core::TimeNs kTurnNs = 3'000;
constexpr core::TimeNs kStepNs = 500;
constexpr uint64_t kClaims = 3;    // of each launch: it has a ticket, waits and is done
constexpr uint64_t kSlice = 1000;  // launches of which a mean is taken
constexpr core::TimeNs kSlowestNs = 60'000'000'000;

// One thread that launches and synchronizes in turn, as the shim would have it.
class GatedClient {
 public:
  GatedClient(server::Engine& engine, uint32_t first_step, core::TimeNs now) : step_(first_step) {
    server::Identity identity;
    identity.id = engine.roster.next_id();
    identity.priority = core::kPriorityLowest;
    auto made = server::Client::make(std::move(identity));
    if (!made) throw std::runtime_error(made.error().message);
    client_ = &engine.attach(std::move(*made), now);
    memory_ = const_cast<ipc::ClientMemory*>(&client_->memory());  // as its process maps it
    memory_->counters.threads_used = 2;                            // one is the shim's helper
    core::KernelBody kernel{};
    kernel.id = 1;
    kernel.grid_blocks = 1;
    kernel.block_threads = 32;
    engine.presence.register_kernel(*client_, {kernel, {}}, now);
  }

  // Draws a ticket; once that goes launches and begins to synchronize; is done. True in the second
  // case.
  bool step(core::TimeNs now) {
    ipc::RecordFields fields{
        .at_ns = static_cast<uint64_t>(now), .stream_seq = seq_, .kernel = 0, .ask_seq = 0};
    switch (step_ % 3) {
      case 0:
        fields.stream_seq = ++seq_;
        fields.ask_seq = seq_;
        fields.admission = wire::Admission::ASK;
        post(fields);
        break;
      case 1:
        if (seq_ == 0) break;  // it begins behind a ticket that never was
        if (!ipc::slot_granted(client_->control().grants[0], ipc::slot_key(seq_, 0))) return false;
        fields.kind = wire::Kind::WAIT;
        post(fields);
        break;
      case 2:
        if (seq_ == 0) break;
        fields.kind = wire::Kind::COMPLETION;
        fields.evidence = wire::Evidence::SYNCHRONIZED;
        post(fields);
    }
    return step_++ % 3 == 1 && seq_ != 0;
  }

 private:
  void post(const ipc::RecordFields& fields) {
    ipc::ThreadBlock& block = memory_->threads[0];
    ipc::ring_push(block.ring_head, client_->control().grants[0].ring_tail, tail_seen_, block.ring,
                   [&](std::byte* slot) { ipc::build_record(slot, fields); });
  }

  server::Client* client_;
  ipc::ClientMemory* memory_;
  uint32_t step_;
  uint32_t seq_ = 0;
  uint32_t tail_seen_ = 0;
};

server::Generation gate() {
  server::Generation generation;
  generation.name = "gate";
  generation.make = []() -> Result<std::unique_ptr<core::Policy>> {
    policy::Source source;
    source.text = kGatePolicy;
    source.chunk = "gate.lua";
    auto loaded = policy::load_policy(source);
    if (!loaded) return tl::unexpected(loaded.error());
    return std::unique_ptr<core::Policy>(std::move(*loaded));
  };
  return generation;
}

struct Crowd {
  Crowd(uint32_t count, core::TimeNs now) : engine(config(), store, profiles, log) {
    for (uint32_t i = 0; i < count; ++i) clients.emplace_back(engine, i, now);
    auto prepared = server::prepare(gate(), 1);
    if (!prepared) throw std::runtime_error(prepared.error().message);
    if (auto adopted = engine.policy.adopt(std::move(*prepared), now); !adopted) {
      throw std::runtime_error(adopted.error().message);
    }
  }

  // All go on by a step; says how many were granted something.
  uint32_t step(core::TimeNs now) {
    uint32_t granted = 0;
    for (GatedClient& client : clients) granted += client.step(now);
    return granted;
  }

  static server::Config config() {
    server::Config config;
    config.report = server::ReportSetting::kEach;
    return config;
  }

  server::Log log{server::LogLevel::kError};
  FilePolicyStore store{{}};  // asked for nothing
  server::ProfileStore profiles{"", {}};
  server::Engine engine;
  std::vector<GatedClient> clients;
};

}  // namespace

// A turn of Server::spin; tests/tidy/instructions.py counts inside it.
[[gnu::noinline]] void turn_of_daemon(server::Engine& engine, core::TimeNs now) {
  engine.poll(now, engine.devices.next_deadline() <= now, [](server::Client&) {});
  if (engine.devices.next_deadline() <= now) engine.tick(now);
  if (engine.at_ease(now)) throw std::runtime_error("a gated client runs freely");
}

namespace {

double in_virtual_time(uint32_t clients, uint32_t count) {
  core::TimeNs now = 1'000'000'000;
  Crowd crowd(clients, now);
  core::TimeNs daemon_ns = 0;
  for (uint32_t granted = 0, turns = 0; granted < count; ++turns) {
    if (turns > 10 * count + 1'000) throw std::runtime_error("tickets go unanswered");
    granted += crowd.step(now);
    now += kStepNs;
    const core::TimeNs start = server::monotonic_now();
    turn_of_daemon(crowd.engine, now);
    daemon_ns += server::monotonic_now() - start;
    now += kTurnNs;
  }
  return static_cast<double>(daemon_ns) / count;
}

// The clients are a thread, and turns in which they were not heard do not count. The median over
// slices, for on a busy host a processor may be taken away.
double in_real_time(uint32_t clients, uint32_t count) {
  core::TimeNs now = server::monotonic_now();
  Crowd crowd(clients, now);
  const uint64_t& claims = crowd.engine.counters().claims;
  const auto until = now + kSlowestNs;
  std::vector<double> slices;
  const std::jthread others([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) crowd.step(server::monotonic_now());
  });
  for (uint64_t begun = 0; slices.size() * kSlice < count; begun = claims) {
    core::TimeNs daemon_ns = 0;
    while (claims - begun < kSlice * kClaims) {
      const uint64_t before = claims;
      turn_of_daemon(crowd.engine, now);
      const core::TimeNs after = server::monotonic_now();
      if (claims != before) daemon_ns += after - now;
      now = after;
      if (now > until) throw std::runtime_error("tickets go unanswered; are there two processors?");
    }
    slices.push_back(static_cast<double>(daemon_ns) /
                     (static_cast<double>(claims - begun) / kClaims));
  }
  return percentile(slices, 0.5);
}

}  // namespace

int gated_loop(uint32_t clients, uint32_t count, bool beside) {
  const double ns = beside ? in_real_time(clients, count) : in_virtual_time(clients, count);
  std::printf("%.0f ns of the daemon's for each of %u gated launches of %u clients\n", ns, count,
              clients);
  return 0;
}

}  // namespace heddle::bench
