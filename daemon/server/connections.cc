#include "daemon/server/connections.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>

#include <thread>
#include <utility>

#include "daemon/server/clock.h"
#include "ipc/fault.h"

namespace heddle::server {
namespace {

// The most connections of a user's container that are not attached. `heddle` is done in
// milliseconds, and a shim attaches at once. A connection that is silent for kSilentNs is ended to
// make room.
constexpr size_t kUnattachedOfContainer = 64;
constexpr core::TimeNs kSilentNs = 2'000'000'000;
// Places that only the privileged may take.
constexpr size_t kPlacesKept = 64;
// Connections accepted in a turn: many, so that the privileged wait behind few.
constexpr int kAcceptedInATurn = 512;

// The interval of log lines about refused connections; and for how long heddled does not listen
// when it has no descriptors left.
constexpr core::TimeNs kRefusalLineNs = 1'000'000'000;
constexpr uint64_t kDeafMs = 100;

}  // namespace

Connections::Connections(uv_loop_t* loop, int listener, Log& log, std::function<void(int)> readable)
    : loop_(loop),
      listener_(listener),
      log_(log),
      readable_(std::move(readable)),
      no_descriptors_(ipc::refuse_descriptors(listener) == 0),
      spare_(open("/dev/null", O_RDONLY | O_CLOEXEC)),
      listen_again_(loop, [this] { listen(); }) {}

void Connections::accept_all() {
  for (int i = 0; i < kAcceptedInATurn; ++i) {
    Descriptor fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd.get() < 0) {
      if (errno == EMFILE || errno == ENFILE) turn_away(errno);
      return;
    }
    HEDDLE_FAULT_POINT("daemon: connection accepted");
    ++accepted_;
    auto connection = std::make_unique<Connection>();
    if (ipc::peer_of(fd.get(), connection->peer) != 0) {
      hang_up(std::move(fd));
      continue;
    }
    connection->pidfd = Descriptor(connection->peer.pidfd);
    connection->privileged = is_privileged(connection->peer);
    if (!connection->privileged) connection->container = container_of(connection->peer);
    connection->since = monotonic_now();
    if (!has_place(*connection)) {
      hang_up(std::move(fd));
      continue;
    }
    const int number = fd.get();
    connection->serial = ++last_serial_;
    connection->fd = std::move(fd);
    connection->watch =
        std::make_unique<FdWatch>(loop_, number, [this, number] { readable_(number); });
    connections_.emplace(number, std::move(connection));
  }
}

bool Connections::has_place(const Connection& connection) {
  const uid_t uid = connection.peer.uid;
  const auto anybody = [](const Connection&) { return true; };
  const auto user = [&](const Connection& other) { return other.peer.uid == uid; };
  const auto container = [&](const Connection& other) {
    return other.client == 0 && other.container == connection.container;
  };
  size_t of_user = 0, of_container = 0;
  for (const auto& [fd, other] : connections_) {
    of_user += user(*other) ? 1 : 0;
    of_container += container(*other) ? 1 : 0;
  }
  const size_t places = kConnectionsMax - (connection.privileged ? 0 : kPlacesKept);
  if (connections_.size() >= places && !make_room(anybody)) {
    tell_refusal("all " + std::to_string(kConnectionsMax) + " connections are taken",
                 "end some programs");
    return false;
  }
  if (connection.privileged) return true;
  const std::string who = "user " + std::to_string(uid);
  if (of_user >= kConnectionsMax / kShareOfUser && !make_room(user)) {
    tell_refusal(who + " has half of all connections", "end some of that user's programs");
    return false;
  }
  if (of_container < kUnattachedOfContainer || make_room(container)) return true;
  tell_refusal(who + " has too many connections that do not attach, in the container of pid " +
                   std::to_string(connection.peer.pid),
               "end programs there");
  return false;
}

// Ends the connection that has been silent for longest. False: none has been silent for kSilentNs.
bool Connections::make_room(const std::function<bool(const Connection&)>& among) {
  const core::TimeNs now = monotonic_now();
  const Connection* silent = nullptr;
  for (const auto& [fd, other] : connections_) {
    const bool says_nothing = other->client == 0 && !other->privileged && !other->waits;
    if (!says_nothing || now - other->since < kSilentNs || !among(*other)) continue;
    if (silent == nullptr || other->serial < silent->serial) silent = other.get();
  }
  if (silent == nullptr) return false;
  pollfd unread{silent->fd.get(), POLLIN, 0};
  if (poll(&unread, 1, 0) != 0) return false;
  tell_refusal("pid " + std::to_string(silent->peer.pid) + " of user " +
                   std::to_string(silent->peer.uid) + " kept a connection and said nothing",
               "end that program");
  end(silent->fd.get());
  return true;
}

// The refused peer only finds its connection closed, so the log and `heddle status` say why.
void Connections::tell_refusal(const std::string& error, const char* hint) {
  note_refusal(error);
  if (monotonic_now() - last_refusal_ < kRefusalLineNs) return;
  last_refusal_ = monotonic_now();
  log_.error("connection_refused", {{"error", error}, {"hint", hint}});
}

void Connections::note_refusal(const std::string& error) {
  ++refusals_.count;
  refusals_.last = error;
  refusals_.at = monotonic_now();
}

// There are no descriptors left: accepts the connection with the spare one and closes it. Otherwise
// the listener would stay readable, and the loop would never sleep. If the spare one cannot be
// opened again, the daemon does not listen for a while.
void Connections::turn_away(int error) {
  tell_refusal(strerror(error), "raise the limit on open files");
  if (spare_.get() >= 0) {
    spare_ = Descriptor();
    hang_up(Descriptor(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)));
  }
  spare_ = Descriptor(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (spare_.get() >= 0) return;
  accepting_.reset();
  listen_again_.start(kDeafMs);
}

void Connections::listen() {
  if (spare_.get() < 0) spare_ = Descriptor(open("/dev/null", O_RDONLY | O_CLOEXEC));
  accepting_ = std::make_unique<FdWatch>(loop_, listener_.get(), [this] { accept_all(); });
}

Connection* Connections::find(int fd) const {
  const auto it = connections_.find(fd);
  return it != connections_.end() ? it->second.get() : nullptr;
}

void Connections::end(int fd) {
  const auto it = connections_.find(fd);
  if (it == connections_.end()) return;
  it->second->watch.reset();
  hang_up(std::move(it->second->fd));
  connections_.erase(it);
}

void Connections::end_all() {
  while (!connections_.empty()) end(connections_.begin()->first);
}

ssize_t Connections::receive(const Connection& connection, std::span<std::byte> packet) {
  int sent[ipc::kDescriptorsMost];
  const std::span<int> room(sent, no_descriptors_ ? 0 : ipc::kDescriptorsMost);
  const ssize_t length = ipc::receive_packet(connection.fd.get(), packet, room);
  for (const int fd : room) {
    if (fd >= 0) closer_.close(Descriptor(fd));
  }
  return length;
}

// Closes a socket. Its unread packets may hold descriptors, so closing it may block.
void Connections::hang_up(Descriptor fd) {
  if (!no_descriptors_ && fd.get() >= 0) closer_.close(std::move(fd));
}

void Closer::close(Descriptor fd) {
  const std::lock_guard lock(state_->mutex);
  state_->waiting.push_back(std::move(fd));
  state_->added.notify_one();
  if (state_->waiting.size() <= state_->idle || state_->threads == kThreads) return;
  ++state_->threads;
  sigset_t all, before;  // signals are the loop's
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([state = state_] { run(*state); }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Closer::run(State& state) {
  std::unique_lock lock(state.mutex);
  while (true) {
    ++state.idle;
    state.added.wait(lock, [&state] { return !state.waiting.empty(); });
    --state.idle;
    Descriptor fd = std::move(state.waiting.front());
    state.waiting.pop_front();
    lock.unlock();
    { const Descriptor closed = std::move(fd); }
    lock.lock();
  }
}

}  // namespace heddle::server
