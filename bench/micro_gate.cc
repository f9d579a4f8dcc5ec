// What gated launches cost the daemon: its engine and a Lua policy turn by turn, as Server::spin
// has them, with clients that do nothing but write their shared memory. One thread, virtual time.
#include <chrono>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <vector>

#include "bench/micro.h"
#include "daemon/policy/lua_policy.h"
#include "daemon/policy_store.h"
#include "daemon/server/engine.h"
#include "ipc/ring.h"
#include "ipc/slot.h"

namespace heddle::bench {
namespace {

constexpr core::TimeNs kTurnNs = 3'000;
constexpr core::TimeNs kStepNs = 500;
constexpr uint32_t kSms = 132;

// One thread that launches and synchronizes in turn, as the shim would have it.
class GatedClient {
 public:
  GatedClient(server::Engine& engine, uint32_t first_step, core::TimeNs now) : step_(first_step) {
    server::Identity identity;
    identity.id = engine.next_id();
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
    engine.register_kernel(*client_, kernel, now);
  }

  // Asks; once granted launches and begins to synchronize; is done. True in the second case.
  bool step(core::TimeNs now) {
    ipc::ThreadBlock& block = memory_->threads[0];
    ipc::RecordFields fields{
        .at_ns = static_cast<uint64_t>(now), .stream_seq = seq_, .kernel = 0, .ask_seq = 0};
    switch (step_ % 3) {
      case 0:
        fields.stream_seq = ++seq_;
        fields.ask_seq = seq_;
        fields.admission = wire::Admission::ASK;
        ipc::slot_ask(block, seq_, [&](std::byte* slot) { ipc::build_record(slot, fields); });
        break;
      case 1:
        if (seq_ == 0) break;  // it begins behind an ask that never was
        if (!ipc::slot_granted(client_->control().grants[0], seq_)) return false;
        ipc::slot_close(block, seq_);
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

}  // namespace

// A turn of Server::spin; tests/tidy/instructions.py counts inside it.
[[gnu::noinline]] void turn_of_daemon(server::Engine& engine, core::TimeNs now) {
  engine.poll(now, [](server::Client&) {});
  if (engine.next_deadline() <= now) engine.tick(now);
  if (engine.at_ease(now)) throw std::runtime_error("a gated client runs freely");
}

int gated_loop(uint32_t clients, uint32_t count) {
  server::Log log(server::LogLevel::kError);
  FilePolicyStore store({});
  server::ProfileStore profiles("", log);
  server::Config config;
  config.unobserved = false;
  server::Engine engine(config, store, profiles, log);
  core::TimeNs now = 1'000'000'000;
  engine.learn_gpu(kSms);
  std::vector<GatedClient> crowd;
  for (uint32_t i = 0; i < clients; ++i) crowd.emplace_back(engine, i, now);
  if (auto adopted = engine.adopt(gate(), now); !adopted) {
    throw std::runtime_error(adopted.error().message);
  }
  std::chrono::duration<double, std::nano> daemon{};
  for (uint32_t granted = 0, turns = 0; granted < count; ++turns) {
    if (turns > 10 * count + 1'000) throw std::runtime_error("asks go unanswered");
    for (GatedClient& client : crowd) granted += client.step(now);
    now += kStepNs;
    const auto start = std::chrono::steady_clock::now();
    turn_of_daemon(engine, now);
    daemon += std::chrono::steady_clock::now() - start;
    now += kTurnNs;
  }
  std::printf("%.0f ns of the daemon's for each of %u gated launches of %u clients\n",
              daemon.count() / count, count, clients);
  return 0;
}

}  // namespace heddle::bench
