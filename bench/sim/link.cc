#include "bench/sim/link.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cstring>
#include <string>
#include <vector>

#include "bench/sim/socket_path.h"

extern char** environ;

namespace heddle::sim {

namespace {

constexpr int kStartTries = 2500;         // every 2 ms
constexpr int64_t kWaitNs = 100'000'000;  // between looks whether the owner still lives

int open_connection(const std::string& path) {
  sockaddr_un address;
  if (!socket_address(path, address)) return -1;
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return fd;
  close(fd);
  return -1;
}

std::string owner_program() {
  Dl_info here{};
  if (dladdr(reinterpret_cast<void*>(&owner_program), &here) == 0) return {};
  const std::string library = here.dli_fname;
  const size_t slash = library.rfind('/');
  return (slash == std::string::npos ? "." : library.substr(0, slash)) + "/heddle-sim-gpu";
}

// A grandchild in its own session, so that the application never sees it, nor it the application's
// signals. What was preloaded into the application is not wanted there.
void start_owner() {
  const std::string program = owner_program();
  std::vector<char*> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (strncmp(*entry, "LD_PRELOAD=", 11) != 0) environment.push_back(*entry);
  }
  environment.push_back(nullptr);
  char* const arguments[] = {const_cast<char*>(program.c_str()), nullptr};
  const pid_t child = fork();
  if (child != 0) {
    if (child > 0) waitpid(child, nullptr, 0);
    return;
  }
  if (setsid() >= 0 && fork() == 0) {
    const int null = open("/dev/null", O_RDWR);
    for (int fd : {0, 1, 2}) dup2(null, fd);
    syscall(__NR_close_range, 3, ~0U, 0);
    execve(program.c_str(), arguments, environment.data());
  }
  _exit(0);
}

bool receive_descriptors(int connection, int (&fds)[3]) {
  char byte;
  iovec data{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fds)];
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (recvmsg(connection, &message, MSG_CMSG_CLOEXEC) != 1) return false;
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_len != CMSG_LEN(sizeof fds)) return false;
  memcpy(fds, CMSG_DATA(header), sizeof fds);
  return true;
}

void* map(int fd, size_t bytes) {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  close(fd);
  return at == MAP_FAILED ? nullptr : at;
}

// CUDA_MPS_ACTIVE_THREAD_PERCENTAGE, read as MPS does when a client connects, in SMs; 0: no limit.
uint32_t sm_limit() {
  const char* named = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
  const int percent = named != nullptr ? atoi(named) : 0;
  if (percent <= 0 || percent >= 100) return 0;
  return (facts::kSmCount * static_cast<uint32_t>(percent) + 99) / 100;
}

}  // namespace

// An owner that is just leaving can accept nobody: then the connection breaks, and under the lock
// either its socket is gone or it saw the lock and stayed.
bool Link::connect() {
  const std::string path = socket_path();
  connection_ = open_connection(path);
  if (connection_ >= 0 && attach()) return true;
  const int lock = open((path + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock < 0) return false;
  while (flock(lock, LOCK_EX) != 0 && errno == EINTR) {
  }
  bool started = false;
  bool attached = false;
  for (int i = 0; i < kStartTries && !attached; ++i) {
    connection_ = open_connection(path);
    if (connection_ >= 0) attached = attach();
    if (attached) break;
    if (!started) start_owner();
    started = true;
    usleep(2000);
  }
  close(lock);
  return attached;
}

bool Link::attach() {
  Hello hello;
  const char* label = getenv("HEDDLE_LABEL");
  if (label == nullptr || *label == 0) label = program_invocation_short_name;
  strncpy(hello.label, label, sizeof hello.label - 1);
  hello.sm_limit = sm_limit();
  int fds[3];
  if (send(connection_, &hello, sizeof hello, MSG_NOSIGNAL) != sizeof hello ||
      !receive_descriptors(connection_, fds)) {
    close(connection_);
    return false;
  }
  region_ = static_cast<ClientRegion*>(map(fds[0], sizeof(ClientRegion)));
  heap_ = static_cast<char*>(map(fds[1], kHeapBytes));
  doorbell_ = fds[2];
  return region_ != nullptr && heap_ != nullptr;
}

bool Link::owner_alive() const {
  pollfd polled{connection_, POLLIN, 0};
  return poll(&polled, 1, 0) == 0;
}

void Link::push(Command& command) {
  const std::lock_guard lock(pushing_);
  const uint32_t head = region_->head.load(std::memory_order_relaxed);
  while (head - region_->tail.load(std::memory_order_acquire) >= kWireRing) {
    if (!owner_alive()) return;
    eventfd_write(doorbell_, 1);
    sched_yield();
  }
  command.submitted_ns = monotonic_ns();
  region_->ring[head % kWireRing] = command;
  region_->head.store(head + 1, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  // Behind unfinished work of its stream the owner finds it when that finishes: it looks at the
  // ring once more after publishing a completion and before it sleeps.
  const bool behind = command.kind != CommandKind::kOpenStream &&
                      region_->streams[command.stream].done.load() + 1 < command.seq;
  if (!behind && region_->sleeping.load() != 0) eventfd_write(doorbell_, 1);
}

bool Link::order(Command& command) {
  const std::lock_guard lock(ordering_);
  command.stream = kOrders;
  command.seq = ++ordered_;
  push(command);
  return wait(kOrders, command.seq);
}

uint16_t Link::name_index(std::string_view kernel) {
  const uint32_t used = region_->names_used.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < used; ++i) {
    if (kernel == region_->names[i]) return static_cast<uint16_t>(i);
  }
  if (used == kWireKernels) return kWireKernels - 1;
  kernel.copy(region_->names[used], sizeof region_->names[used] - 1);
  region_->names_used.store(used + 1, std::memory_order_release);
  return static_cast<uint16_t>(used);
}

bool Link::wait(uint16_t stream, uint64_t seq) {
  StreamWords& words = region_->streams[stream];
  bool reached = words.done.load() >= seq;
  while (!reached) {
    words.waiting.fetch_add(1);
    const uint32_t wake = words.wake.load();
    reached = words.done.load() >= seq;
    if (!reached) futex_wait(words.wake, wake, kWaitNs);
    words.waiting.fetch_sub(1);
    reached = reached || words.done.load() >= seq;
    if (!reached && !owner_alive()) return false;
  }
  return true;
}

}  // namespace heddle::sim
