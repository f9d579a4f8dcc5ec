// The daemon of a round, which is the real server and the real policies in a forked process, and
// the client that means harm.
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
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
  // Launch-bound clients are to be told in rows, or not at all, before the round is over.
  if (plan.scene == Scene::kRows || plan.scene == Scene::kAlone) config.core.measure_runs = 2;
  config.core.measure_us = 0;
  config.gpu_mode = plan.mps ? server::GpuMode::kMps : server::GpuMode::kTimeslice;
  config.gates = plan.gates;
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
  (*server)->handle_signals();
  (*server)->run();
  server->reset();
  _exit(0);
}

namespace {

// Random bytes wherever a client may write, most where others do, the doorbell, and packets of
// nonsense.
void scribble(testing::FakeClient& client, std::mt19937_64& random) {
  ipc::ClientMemory& memory = client.memory();
  auto* words = reinterpret_cast<uint64_t*>(&memory);
  const size_t near = 3 * sizeof(ipc::ThreadBlock) / sizeof(uint64_t);
  for (int i = 0; i < 4'000; ++i) {
    const uint64_t value = random() % 3 == 0 ? random() : random() % 4;
    const size_t within = i % 4 == 0 ? sizeof memory / sizeof(uint64_t) : near;
    __atomic_store_n(words + random() % within, value, __ATOMIC_RELAXED);
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

// A hundred connections that say something, or nothing, and take no answer. Until it is killed.
void hold_the_line(const std::string& socket, std::mt19937_64& random) {
  const std::vector<std::byte> attach = testing::attach_packet(0);
  const std::vector<std::byte> ask = server::encode_request({});
  int fds[100];
  for (int& fd : fds) fd = ipc::connect_socket(socket.c_str(), 1'000);
  for (;;) {
    for (int& fd : fds) {
      const uint64_t what = random() % 4;
      const bool said =
          fd >= 0 && (what == 0 || ipc::send_packet(fd, what == 1 ? attach : ask) == 0);
      if (said) continue;
      close(fd);
      fd = ipc::connect_socket(socket.c_str(), 10);
    }
    usleep(2'000);
  }
}

// Launches, waits and asks as it should, at times that are seconds to years ahead or behind.
void jump(testing::FakeClient& client, std::mt19937_64& random) {
  constexpr int64_t kSecond = 1'000'000'000, kYear = 365 * 24 * 3'600 * kSecond;
  const int64_t jumps[] = {0, kSecond / 1'000, kSecond, 3'600 * kSecond, 10 * kYear, INT64_MAX / 4};
  uint32_t asked = 0;
  for (int i = 0; i < 200; ++i) {
    const int64_t by = jumps[random() % std::size(jumps)];
    client.set_clock(random() % 2 == 0 ? by : -by);
    client.post(0, {});
    if (random() % 4 == 0) client.post(0, {.untold = 3});
    if (random() % 4 == 0) client.post(0, {.kind = wire::Kind::WAIT});
    if (random() % 4 == 0) client.complete_all(0);
    if (random() % 4 == 0) client.ask(1, ++asked);
    client.ring();
    usleep(300);
  }
}

}  // namespace

void be_hostile(const Stage& stage, const Plan& plan) {
  std::mt19937_64 random(plan.seed);
  try {
    if (plan.hostile == Hostile::kMute) hold_the_line(stage.at("s"), random);
    if (plan.hostile == Hostile::kTalker) talk(stage.at("s"));
    testing::FakeClient client(stage.at("s"), {.priority = static_cast<int>(random() % 10)});
    if (client.attached().managed == 0) _exit(0);
    if (plan.hostile == Hostile::kJumper) jump(client, random);
    if (plan.hostile != Hostile::kJumper) scribble(client, random);
  } catch (const std::exception&) {
    // The daemon may die under its hands.
  }
  _exit(0);
}

}  // namespace heddle::fault
