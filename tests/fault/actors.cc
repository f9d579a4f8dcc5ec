// The daemon of a round, which is the real server and the real policies in a forked process, and
// the client that means harm.
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <random>

#include "daemon/policy_store.h"
#include "daemon/server/server.h"
#include "tests/fault/round.h"
#include "tests/integration/fake_client.h"

namespace heddle::fault {

void be_daemon(const Stage& stage, const Plan& plan, const DaemonPlan& self) {
  setenv("HEDDLE_FAULTS", self.faults.c_str(), 1);
  const int log_file = open(stage.at("log").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  dup2(log_file, STDERR_FILENO);
  server::Config config;
  config.socket = stage.at("s");
  config.core.starvation_us = plan.starvation_ms * 1e3;
  config.policy.name = plan.policy;
  config.policy.directory = stage.at("policies");
  config.policy.watch = false;
  server::Log log(server::LogLevel::kInfo);
  FilePolicyStore store(config.policy);
  auto server = server::Server::make(config, store, log);
  if (!server) {
    dprintf(STDERR_FILENO, "%s\n", server.error().message.c_str());
    _exit(1);
  }
  (*server)->handle_signals([] {});
  (*server)->run();
  server->reset();
  _exit(0);
}

namespace {

// Random bytes wherever a client may write, the doorbell, and packets of nonsense.
void scribble(testing::FakeClient& client, std::mt19937_64& random) {
  ipc::ClientMemory& memory = client.memory();
  auto* words = reinterpret_cast<uint64_t*>(&memory);
  const size_t near = 3 * sizeof(ipc::ThreadBlock) / sizeof(uint64_t);
  for (int i = 0; i < 4'000; ++i) {
    const uint64_t value = random() % 3 == 0 ? random() : random() % 4;
    __atomic_store_n(words + random() % near, value, __ATOMIC_RELAXED);
    if (i % 64 != 0) continue;
    memory.counters.threads_used.store(static_cast<uint32_t>(random() % 100));
    memory.threads[random() % 3].ring_head.fetch_add(static_cast<uint32_t>(random() % 100));
    std::byte packet[64];
    for (std::byte& byte : packet) byte = static_cast<std::byte>(random());
    client.send_raw({packet, random() % sizeof packet});
    client.ring();
    usleep(100);
  }
}

// Asks without end and reads no answer.
void talk(const std::string& socket) {
  server::Request request;
  request.kind = server::Request::Kind::kPs;
  const std::vector<std::byte> packet = server::encode_request(request);
  for (int i = 0; i < 500; ++i) {
    const int fd = ipc::connect_socket(socket.c_str(), 100);
    if (fd < 0) return;
    (void)ipc::send_packet(fd, packet);
    close(fd);
  }
}

}  // namespace

void be_hostile(const Stage& stage, const Plan& plan) {
  std::mt19937_64 random(plan.seed);
  try {
    if (plan.hostile == Hostile::kTalker) talk(stage.at("s"));
    testing::FakeClient client(stage.at("s"), {.priority = 0});
    if (client.attached().managed != 0) scribble(client, random);
  } catch (const std::exception&) {
    // The daemon may die under its hands.
  }
  _exit(0);
}

}  // namespace heddle::fault
