#include "tests/integration/shim_setting.h"

#include <capnp/message.h>
#include <capnp/serialize.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <utility>

#include "ipc/gate.h"
#include "ipc/ring.h"
#include "ipc/slot.h"
#include "ipc/socket.h"

namespace heddle::shim_test {
namespace {

constexpr int kPatienceMs = 5000;

int64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

bool readable(int fd, int timeout_ms) {
  pollfd wanted{fd, POLLIN, 0};
  return poll(&wanted, 1, timeout_ms) > 0;
}

bool has_ended(int socket) {
  pollfd end{socket, POLLRDHUP, 0};
  return poll(&end, 1, 0) > 0;
}

// Hands the message in the next packet to `read`.
template <class Read>
void receive_message(int socket, Read&& read) {
  alignas(8) std::byte packet[ipc::kMessageBytes];
  const ssize_t size = ipc::receive_packet(socket, packet);
  ASSERT_GT(size, 0);
  capnp::FlatArrayMessageReader message(
      kj::arrayPtr(reinterpret_cast<const capnp::word*>(packet),
                   static_cast<size_t>(size) / sizeof(capnp::word)));
  read(message.getRoot<wire::Message>());
}

template <class Memory>
Memory* make(const char* name, int& fd) {
  fd = ipc::make_memory(name, sizeof(Memory));
  void* memory = mmap(nullptr, sizeof(Memory), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<Memory*>(memory);
}

}  // namespace

FakeDaemon::FakeDaemon(const std::string& path) {
  listener_ = ipc::listen_socket(path.c_str(), 0600, 8);
  EXPECT_GE(listener_, 0);
  doorbell_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
}

FakeDaemon::~FakeDaemon() {
  hang_up();
  close(listener_);
  close(doorbell_);
}

bool FakeDaemon::pending(int timeout_ms) { return readable(listener_, timeout_ms); }

int FakeDaemon::receive_attach() {
  do {  // the shim gives up a connection that this process had no turn to answer
    EXPECT_TRUE(pending(kPatienceMs)) << "no client attached";
    socket_ = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  } while (has_ended(socket_) && close(socket_) == 0);
  EXPECT_TRUE(readable(socket_, kPatienceMs));
  uint32_t version = 0;
  receive_message(socket_, [&](wire::Message::Reader message) {
    ASSERT_TRUE(message.isAttach());
    const auto attach = message.getAttach();
    version = attach.getProtocolVersion();
    command = attach.getCommand().cStr();
    label = attach.getLabel().cStr();
    priority = attach.getPriority();
    sms = attach.getSms().cStr();
    mps = attach.getMps();
    mode_told = attach.getModeTold();
    wants_gates_ = attach.getStreamsWait();
    groups.clear();
    for (const uint16_t one : attach.getSmGroups()) groups.push_back(one);
    made_sets.clear();
    for (const uint64_t one : attach.getMadeSets()) made_sets.push_back(ipc::unpack_made(one));
    const auto ids = attach.getGpuIds();
    gpu_ids.assign(reinterpret_cast<const char*>(ids.begin()), ids.size());
  });
  EXPECT_EQ(version, ipc::kProtocolVersion);
  return socket_;
}

void FakeDaemon::accept(uint32_t leased, uint32_t flags) {
  receive_attach();
  int fds[4];
  control_ = make<ipc::ControlMemory>("control", fds[0]);
  client_ = make<ipc::ClientMemory>("client", fds[1]);
  fds[2] = doorbell_;
  ASSERT_NE(control_, nullptr);
  ASSERT_NE(client_, nullptr);
  // Longer than a busy machine keeps the test from answering.
  control_->header.starvation_ms = 2 * kPatienceMs;
  for (ipc::DeviceTerms& terms : control_->devices) terms.leased = leased;
  std::fill_n(cursors_, ipc::kThreads, 0);
  records_.clear();
  std::fill_n(asks_, ipc::kThreads, std::deque<ipc::RecordFields>());
  ASSERT_EQ(ipc::seal_control_memory(fds[0]), 0);
  ASSERT_EQ(ipc::seal_client_memory(fds[1]), 0);
  ipc::Attached answer;
  answer.managed = 1;
  answer.flags = flags | (wants_gates_ && has_gates ? ipc::kStreamsWait : 0);
  gates = make<ipc::GatePage>("gates", fds[3]);
  ASSERT_NE(gates, nullptr);
  gates->heartbeat_ns = INT64_MAX / 2;  // until a test says otherwise
  ASSERT_EQ(ipc::send_packet(socket_, std::as_bytes(std::span(&answer, 1)), fds), 0);
  for (const int fd : {fds[0], fds[1], fds[3]}) close(fd);
}

void FakeDaemon::refuse() {
  receive_attach();
  const ipc::Attached answer;
  ASSERT_EQ(ipc::send_packet(socket_, std::as_bytes(std::span(&answer, 1))), 0);
  hang_up();
}

void FakeDaemon::answer(std::span<const std::byte> packet) {
  receive_attach();
  ASSERT_EQ(ipc::send_packet(socket_, packet), 0);
  hang_up();
}

void FakeDaemon::hang_up() {
  if (socket_ >= 0) close(socket_);
  if (control_ != nullptr) munmap(control_, sizeof *control_);
  if (client_ != nullptr) munmap(client_, sizeof *client_);
  socket_ = -1;
  control_ = nullptr;
  client_ = nullptr;
}

void FakeDaemon::drain() {
  for (uint32_t i = 0; i < ipc::kThreads; ++i) {
    ipc::ThreadBlock& block = client_->threads[i];
    ipc::ring_drain(block.ring_head, control_->grants[i].ring_tail, cursors_[i], block.ring,
                    [&](const std::byte* record) {
                      ipc::RecordFields fields;
                      EXPECT_TRUE(ipc::read_record(record, fields));
                      const bool asks = fields.admission == wire::Admission::ASK;
                      if (asks) asks_[i].push_back(fields);
                      if (!asks) records_.push_back(fields);
                    });
  }
}

std::vector<ipc::RecordFields> FakeDaemon::records() {
  drain();
  return std::exchange(records_, {});
}

bool FakeDaemon::asks(ipc::RecordFields& ask, uint32_t thread) {
  drain();
  if (asks_[thread].empty()) return false;
  ask = asks_[thread].front();
  asks_[thread].pop_front();
  EXPECT_NE(ask.ask_seq, 0u);
  return true;
}

ipc::RecordFields FakeDaemon::wait_for_ask(uint32_t thread) {
  ipc::RecordFields fields;
  const int64_t until = now_ns() + int64_t{kPatienceMs} * 1'000'000;
  while (!asks(fields, thread)) {
    if (now_ns() > until) {
      ADD_FAILURE() << "nobody asked";
      return fields;
    }
  }
  return fields;
}

void FakeDaemon::grant(const ipc::RecordFields& ask, int launch_priority, uint32_t thread,
                       uint32_t sm_set) {
  ipc::GrantSlot& slot = control_->grants[thread];
  ipc::slot_answer(slot, ipc::slot_key(ask.ask_seq, ask.device),
                   {ipc::SmSet(sm_set), launch_priority});
  ipc::gate_release(gates->word[ask.device], gates->floor[ask.device],
                    ipc::gate_later(gates->word[ask.device], ask.ask_seq));
  ipc::slot_fence();
  if (ipc::slot_sleeps(client_->threads[thread])) ipc::futex_wake(&slot.granted);
}

uint64_t FakeDaemon::rings(int timeout_ms) {
  uint64_t count = 0;
  readable(doorbell_, timeout_ms);
  return read(doorbell_, &count, sizeof count) == sizeof count ? count : 0;
}

std::vector<Registration> FakeDaemon::registrations() {
  std::vector<Registration> all;
  while (readable(socket_, 0)) {
    receive_message(socket_, [&](wire::Message::Reader message) {
      ASSERT_TRUE(message.isRegisterKernel());
      const auto kernel = message.getRegisterKernel();
      all.push_back(
          {kernel.getIndex(), kernel.getId(), kernel.getName().cStr(), {}, kernel.getOtherNodes()});
      for (const auto node : kernel.getNodes())
        all.back().nodes[node.getKernel()] = node.getCount();
    });
  }
  return all;
}

// ---- the application
// ------------------------------------------------------------------------------

Application::Application(std::vector<std::string> environment, const char* program,
                         const char* option, const std::string& value) {
  int in[2], out[2];
  EXPECT_EQ(pipe(in), 0);
  EXPECT_EQ(pipe(out), 0);
  pid_ = fork();
  if (pid_ == 0) {
    dup2(in[0], STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    for (const int fd : {in[0], in[1], out[0], out[1]}) close(fd);
    setenv("LD_PRELOAD", HEDDLE_SHIM, 1);
    setenv("HEDDLE_REAL_LIBCUDA", HEDDLE_FAKE_DRIVER, 1);
    for (const std::string& entry : environment) {
      const size_t equals = entry.find('=');
      setenv(entry.substr(0, equals).c_str(), entry.substr(equals + 1).c_str(), 1);
    }
    execl(program, program, option, value.c_str(), nullptr);
    _exit(127);
  }
  close(in[0]);
  close(out[1]);
  to_ = in[1];
  from_ = fdopen(out[0], "r");
}

Application::~Application() {
  close(to_);
  int status = -1;
  waitpid(pid_, &status, 0);
  EXPECT_EQ(status, 0) << "the application did not end well";
  fclose(from_);
}

void Application::send(const std::string& command) {
  const std::string line = command + "\n";
  EXPECT_EQ(write(to_, line.data(), line.size()), static_cast<ssize_t>(line.size()));
}

bool Application::answered() { return readable(fileno(from_), 0); }

std::string Application::receive() {
  if (!readable(fileno(from_), 10 * kPatienceMs)) {
    ADD_FAILURE() << "the application does not answer";
    kill(pid_, SIGKILL);
    return "";
  }
  char line[1024];
  if (fgets(line, sizeof line, from_) == nullptr) return "";
  line[strcspn(line, "\n")] = '\0';
  return line;
}

}  // namespace heddle::shim_test
