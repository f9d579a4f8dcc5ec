#include "tests/integration/fake_client.h"

#include <capnp/message.h>
#include <capnp/serialize.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <stdexcept>
#include <vector>

#include "ipc/ring.h"
#include "ipc/slot.h"
#include "ipc/socket.h"

namespace heddle::testing {
namespace {

constexpr int kTimeoutMs = 10'000;

int64_t now_ns(clockid_t clock = CLOCK_MONOTONIC) {
  timespec now;
  clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// The helper process: system calls only, as it is forked from a program with threads.
[[noreturn]] void help(const char* path, uid_t uid, int channel) {
  // What it inherited would keep other clients' sockets open.
  dup2(channel, 3);
  syscall(__NR_close_range, 4u, ~0u, 0u);
  if (uid != 0 && syscall(SYS_setuid, uid) != 0) _exit(1);
  char command;
  while (read(3, &command, 1) == 1) {
    const int fds[] = {ipc::connect_socket(path, 1'000)};
    const std::byte byte{};
    if (fds[0] < 0 || ipc::send_packet(3, {&byte, 1}, fds) != 0) break;
    close(fds[0]);
  }
  _exit(0);
}

ssize_t receive_within(int fd, std::span<std::byte> buffer, std::span<int> fds = {}) {
  pollfd readable{fd, POLLIN, 0};
  return poll(&readable, 1, kTimeoutMs) == 1 ? ipc::receive_packet(fd, buffer, fds) : -ETIMEDOUT;
}

bool send_message(int socket, capnp::MessageBuilder& message) {
  const auto words = capnp::messageToFlatArray(message);
  const auto bytes = words.asBytes();
  const std::span packet(reinterpret_cast<const std::byte*>(bytes.begin()), bytes.size());
  int error = ipc::send_packet(socket, packet);
  for (pollfd writable{socket, POLLOUT, 0}; error == -EAGAIN;) {
    if (poll(&writable, 1, kTimeoutMs) != 1) return false;
    error = ipc::send_packet(socket, packet);
  }
  return error == 0;
}

template <class T>
T* map(int fd, int protection) {
  void* at = mmap(nullptr, sizeof(T), protection, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) throw std::runtime_error("fake client: mmap");
  close(fd);
  return static_cast<T*>(at);
}

}  // namespace

FakeClient::FakeClient(const std::string& socket, const Options& options) : options_(options) {
  int channel[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, channel) != 0) {
    throw std::runtime_error("fake client: socketpair");
  }
  pid_ = fork();
  if (pid_ == 0) help(socket.c_str(), options.uid, channel[1]);
  close(channel[1]);
  helper_ = channel[0];
  connect();
  attach();
}

FakeClient::~FakeClient() {
  kill_process();
  close_socket();
  unmap();
  close(helper_);
}

void FakeClient::connect() {
  std::byte byte{};
  if (write(helper_, &byte, 1) != 1) throw std::runtime_error("fake client: helper");
  if (receive_within(helper_, {&byte, 1}, {&socket_, 1}) != 1 || socket_ < 0) {
    throw std::runtime_error("fake client: cannot connect");
  }
}

void FakeClient::send_attach() {
  capnp::MallocMessageBuilder message;
  auto attach = message.initRoot<wire::Message>().initAttach();
  attach.setProtocolVersion(options_.version);
  attach.setLabel(options_.label.c_str());
  attach.setCommand("fake client");
  attach.setPriority(static_cast<int8_t>(options_.priority));
  attach.setSmCount(132);
  attach.setDeviceCount(options_.devices);
  attach.setDriverVersion(options_.driver_version);
  attach.setSms(options_.sms.c_str());
  attach.setMps(options_.mps);
  attach.setStreamsWait(options_.gates);
  if (options_.clock_ahead_ns != 0) {
    set_clock(options_.clock_ahead_ns);
    attach.setMonotonicNs(static_cast<uint64_t>(now_ns() + ahead_ns_));
    attach.setWallNs(static_cast<uint64_t>(now_ns(CLOCK_REALTIME)));
  }
  std::string ids;
  for (const char gpu : options_.gpus) ids.append(ipc::kGpuIdBytes, gpu);
  attach.setGpuIds({reinterpret_cast<const kj::byte*>(ids.data()), ids.size()});
  auto groups = attach.initSmGroups(options_.splits ? 16 : 0);  // an H200's
  for (unsigned i = 0; i < groups.size(); ++i) groups.set(i, i < 15 ? 8 : 12);
  attach.initMadeSets(1).set(0, ipc::pack_made(options_.made_sets));
  send_message(socket_, message);
}

void FakeClient::attach() {
  send_attach();
  int fds[4];
  if (receive_within(socket_, std::as_writable_bytes(std::span(&attached_, 1)), fds) !=
      sizeof attached_) {
    throw std::runtime_error("fake client: no answer to attach");
  }
  if (attached_.managed == 0) return;
  control_ = map<const ipc::ControlMemory>(fds[0], PROT_READ);
  memory_ = map<ipc::ClientMemory>(fds[1], PROT_READ | PROT_WRITE);
  doorbell_ = fds[2];
  gates_ = fds[3];
  gate_page_ = map<ipc::GatePage>(dup(gates_), PROT_READ | PROT_WRITE);
  memory_->counters.threads_used.store(4);
}

void FakeClient::unmap() {
  if (control_ == nullptr) return;
  munmap(const_cast<ipc::ControlMemory*>(control_), sizeof *control_);
  munmap(memory_, sizeof *memory_);
  munmap(gate_page_, sizeof *gate_page_);
  close(gates_);
  close(doorbell_);
  control_ = nullptr;
}

void FakeClient::reconnect() {
  close_socket();
  unmap();
  connect();
  attach();
}

void FakeClient::close_socket() {
  if (socket_ >= 0) close(socket_);
  socket_ = -1;
}

void FakeClient::kill_process() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

bool FakeClient::send_raw(std::span<const std::byte> packet) {
  return ipc::send_packet(socket_, packet) == 0;
}

void FakeClient::register_kernel(uint32_t index, uint64_t id, const std::string& name) {
  capnp::MallocMessageBuilder message;
  auto kernel = message.initRoot<wire::Message>().initRegisterKernel();
  kernel.setIndex(index);
  kernel.setId(id);
  kernel.setName(name.c_str());
  for (auto set :
       {&wire::RegisterKernel::Builder::setGridX, &wire::RegisterKernel::Builder::setGridY,
        &wire::RegisterKernel::Builder::setGridZ, &wire::RegisterKernel::Builder::setBlockX,
        &wire::RegisterKernel::Builder::setBlockY, &wire::RegisterKernel::Builder::setBlockZ}) {
    (kernel.*set)(1);
  }
  send_message(socket_, message);
}

void FakeClient::ring() {
  const uint64_t one = 1;
  if (write(doorbell_, &one, sizeof one) != sizeof one) throw std::runtime_error("doorbell");
}

bool FakeClient::post(uint16_t thread, ipc::RecordFields fields) {
  fields.at_ns = static_cast<uint64_t>(now_ns() + ahead_ns_);
  if (fields.kind <= wire::Kind::MEMSET) fields.stream_seq = ++stream_seq_;
  ipc::ThreadBlock& block = memory_->threads[thread];
  const bool room =
      ipc::ring_push(block.ring_head, control_->grants[thread].ring_tail, tails_seen_[thread],
                     block.ring, [&](std::byte* slot) { ipc::build_record(slot, fields); });
  if (control_->sleeping.load() == ipc::kWakeOnAny) ring();
  return room;
}

void FakeClient::ask(uint16_t thread, uint32_t seq, uint32_t kernel) {
  ipc::RecordFields fields;
  fields.kernel = kernel;
  fields.ask_seq = ticket_of_[{thread, seq}] = ++tickets_;
  fields.admission = wire::Admission::ASK;
  post(thread, fields);
  if (control_->sleeping.load() != ipc::kAwake) ring();
}

void FakeClient::withdraw(uint16_t thread, uint32_t seq) {
  ipc::gate_floor(gate_page_->floor[0], gate_page_->word[0], gate_page_->running[0],
                  ticket_of_.at({thread, seq}));
}

bool FakeClient::granted(uint16_t thread, uint32_t seq) const {
  return ipc::slot_granted(control_->grants[thread],
                           ipc::slot_key(ticket_of_.at({thread, seq}), 0));
}

bool FakeClient::wait_granted(uint16_t thread, uint32_t seq) {
  ipc::ThreadBlock& block = memory_->threads[thread];
  const auto& word = control_->grants[thread].granted;
  const int64_t until = now_ns() + int64_t{kTimeoutMs} * 1'000'000;
  block.waiting.store(1);
  while (!granted(thread, seq) && now_ns() < until) {
    const uint32_t seen = word.load();
    if (!granted(thread, seq)) ipc::futex_wait(&word, seen, until - now_ns());
  }
  block.waiting.store(0);
  return granted(thread, seq);
}

bool FakeClient::leased(uint8_t device) const {
  return control_->devices[device].leased.load() != 0;
}

bool FakeClient::gated(uint8_t device) const {
  return !leased(device) && !ipc::gate_is_open(gate_page_->word[device].load(), 0);
}

void FakeClient::complete_all(uint16_t thread) {
  ipc::RecordFields fields;
  fields.kind = wire::Kind::COMPLETION;
  fields.evidence = wire::Evidence::SYNCHRONIZED;
  fields.stream_seq = stream_seq_;
  post(thread, fields);
}

std::vector<std::byte> attach_packet(int priority) {
  capnp::MallocMessageBuilder message;
  auto attach = message.initRoot<wire::Message>().initAttach();
  attach.setProtocolVersion(ipc::kProtocolVersion);
  attach.setCommand("bare client");
  attach.setPriority(static_cast<int8_t>(priority));
  attach.setDeviceCount(1);
  attach.setSmCount(132);
  const auto words = capnp::messageToFlatArray(message);
  const auto* bytes = reinterpret_cast<const std::byte*>(words.asBytes().begin());
  return {bytes, bytes + words.asBytes().size()};
}

server::Reply request(const std::string& socket, const server::Request& request) {
  const int fd = ipc::connect_socket(socket.c_str(), 1'000);
  if (fd < 0) return {false, "no daemon", ""};
  std::vector<std::byte> buffer(ipc::kReplyBytes);
  server::Reply reply{false, "no reply", ""};
  if (ipc::send_packet(fd, server::encode_request(request)) == 0) {
    const ssize_t length = receive_within(fd, buffer);
    if (length > 0) {
      auto decoded = server::decode_reply({buffer.data(), static_cast<size_t>(length)});
      if (decoded) reply = *decoded;
    }
  }
  close(fd);
  return reply;
}

bool eventually(const std::function<bool()>& condition) {
  const int64_t until = now_ns() + int64_t{kTimeoutMs} * 1'000'000;
  while (!condition()) {
    if (now_ns() > until) return false;
    sched_yield();
  }
  return true;
}

}  // namespace heddle::testing
