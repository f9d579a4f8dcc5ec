#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "bench/sim/owner.h"

namespace heddle::sim {

namespace {

int memory(const char* name, size_t bytes) {
  const int fd = memfd_create(name, MFD_CLOEXEC);
  if (fd >= 0 && ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    close(fd);
    return -1;
  }
  return fd;
}

void* map(int fd, size_t bytes) {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  return at == MAP_FAILED ? nullptr : at;
}

bool send_descriptors(int connection, const int (&fds)[3]) {
  char byte = 1;
  iovec data{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fds)] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof fds);
  memcpy(CMSG_DATA(header), fds, sizeof fds);
  return sendmsg(connection, &message, MSG_NOSIGNAL) == 1;
}

}  // namespace

std::unique_ptr<OwnerClient> OwnerClient::accept(int connection, Mode mode) {
  std::unique_ptr<OwnerClient> client(new OwnerClient);
  client->connection_ = connection;
  // A client sends its hello right after connecting; one that does not must not hold up the GPU.
  const timeval patience{1, 0};
  setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  Hello hello;
  if (recv(connection, &hello, sizeof hello, 0) != sizeof hello || hello.magic != kWireMagic) {
    return nullptr;
  }
  hello.label[sizeof hello.label - 1] = 0;
  for (const char* c = hello.label; *c != 0; ++c) {
    const bool plain = *c >= ' ' && *c != '"' && *c != '\\';  // it goes into JSON as it is
    client->label_ += plain ? *c : '_';
  }
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return nullptr;
  client->pid_ = peer.pid;
  // A client ends with its process, for a forked child keeps the socket open; or with the socket,
  // for a process lives on through exec.
  client->pidfd_ = static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0));
  if (client->pidfd_ < 0 || !client->share(connection, mode)) return nullptr;
  client->sm_limit_ = std::min(hello.sm_limit, facts::kSmCount);
  client->slots_.resize(kWireStreams);
  return client;
}

bool OwnerClient::share(int connection, Mode mode) {
  const int region_fd = memory("heddle-sim-region", sizeof(ClientRegion));
  const int heap_fd = memory("heddle-sim-heap", kHeapBytes);
  doorbell_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  bool ok = region_fd >= 0 && heap_fd >= 0 && doorbell_ >= 0;
  if (ok) {
    region_ = static_cast<ClientRegion*>(map(region_fd, sizeof(ClientRegion)));
    heap_ = static_cast<char*>(map(heap_fd, kHeapBytes));
    ok = region_ != nullptr && heap_ != nullptr;
  }
  if (ok) {
    region_->magic = kWireMagic;
    region_->mps = mode == Mode::kMps;
    ok = send_descriptors(connection, {region_fd, heap_fd, doorbell_});
  }
  if (region_fd >= 0) close(region_fd);
  if (heap_fd >= 0) close(heap_fd);
  return ok;
}

OwnerClient::~OwnerClient() {
  if (region_ != nullptr) munmap(region_, sizeof(ClientRegion));
  if (heap_ != nullptr) munmap(heap_, kHeapBytes);
  for (int fd : {connection_, pidfd_, doorbell_}) {
    if (fd >= 0) close(fd);
  }
}

bool OwnerClient::busy() const {
  return region_->inside.load() != 0 || region_->head.load() != taken ||
         std::any_of(slots_.begin(), slots_.end(),
                     [](const Slot& slot) { return !slot.work.empty(); });
}

char* OwnerClient::range(uint64_t offset, uint64_t bytes) {
  return offset <= kHeapBytes && bytes <= kHeapBytes - offset ? heap_ + offset : nullptr;
}

uint64_t* OwnerClient::word(uint64_t offset) {
  char* at = offset % sizeof(uint64_t) == 0 ? range(offset, sizeof(uint64_t)) : nullptr;
  return reinterpret_cast<uint64_t*>(at);
}

}  // namespace heddle::sim
