// Who connects, what they say, and when they are gone.
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <bit>

#include "daemon/server/rules.h"
#include "daemon/server/server.h"
#include "ipc/fault.h"
#include "ipc/kernel_id.h"
#include "ipc/sm_set.h"

namespace heddle::server {
namespace {

// Packets of one peer, and connections, that are taken in a row, so that a flood does not starve
// the others.
constexpr int kPacketsInARow = 64;

// Each client costs about 100 KiB and three descriptors; each connection one or two.
constexpr size_t kClientsMax = 1'024;
constexpr size_t kConnectionsMax = 2 * kClientsMax;

// One user cannot take every place; the privileged may.
constexpr size_t kShareOfUser = 2;
// Of a user's container: who asks, or has not said yet what it wants. `heddle` is done in
// milliseconds, and a shim attaches at once: who says nothing for so long gives way to others.
constexpr size_t kUnattachedOfContainer = 64;
constexpr core::TimeNs kSilentNs = 2'000'000'000;
// Places that only the privileged may take.
constexpr size_t kPlacesKept = 64;
// Taken in a turn: all who knock, so that the privileged wait behind few.
constexpr int kAcceptedInATurn = 512;

// A line about refused connections this often; out of descriptors, no ear for so long.
constexpr core::TimeNs kRefusalLineNs = 1'000'000'000;
constexpr uint64_t kDeafMs = 100;

Clocks clocks_now() {
  timespec wall;
  clock_gettime(CLOCK_REALTIME, &wall);
  return {static_cast<uint64_t>(monotonic_now()),
          static_cast<uint64_t>(wall.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(wall.tv_nsec)};
}

}  // namespace

void Server::accept_all() {
  for (int i = 0; i < kAcceptedInATurn; ++i) {
    Descriptor fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd.get() < 0) {
      if (errno == EMFILE || errno == ENFILE) turn_away(errno);
      return;
    }
    HEDDLE_FAULT_POINT("daemon: connection accepted");
    ++facts_.connections;
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
        std::make_unique<FdWatch>(&loop_.loop, number, [this, number] { on_readable(number); });
    connections_.emplace(number, std::move(connection));
  }
}

bool Server::has_place(const Connection& connection) {
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

// Ends the connection that has said nothing for longest. False if all have lately, or do now.
bool Server::make_room(const std::function<bool(const Connection&)>& among) {
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
  disconnect(silent->fd.get());
  return true;
}

// Whose connection is refused finds it closed: the log and `heddle status` say why.
void Server::tell_refusal(const std::string& error, const char* hint) {
  note_refusal(error);
  if (monotonic_now() - last_refusal_ < kRefusalLineNs) return;
  last_refusal_ = monotonic_now();
  log_.error("connection_refused", {{"error", error}, {"hint", hint}});
}

void Server::note_refusal(const std::string& error) {
  ++facts_.refused.count;
  facts_.refused.last = error;
  facts_.refused.at = monotonic_now();
}

// Out of descriptors: whoever knocks is turned away with the spare one, or the listener would stay
// readable and the loop never sleep. Where the spare could not be had again, nobody is listened to
// for a while.
void Server::turn_away(int error) {
  tell_refusal(strerror(error), "raise the limit on open files");
  if (spare_.get() >= 0) {
    spare_ = Descriptor();
    hang_up(Descriptor(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)));
  }
  spare_ = Descriptor(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (spare_.get() >= 0) return;
  accepting_.reset();
  listen_again_->start(kDeafMs);
}

void Server::listen() {
  if (spare_.get() < 0) spare_ = Descriptor(open("/dev/null", O_RDONLY | O_CLOEXEC));
  accepting_ = std::make_unique<FdWatch>(&loop_.loop, listener_.get(), [this] { accept_all(); });
}

void Server::on_readable(int fd) {
  beat();
  const auto it = connections_.find(fd);
  if (it == connections_.end()) return;
  // An answer takes long beside a grant: there is one in a turn of the loop, and whoever else wants
  // one is still readable in the next.
  if (answered_ && it->second->client == 0 && !it->second->privileged) return;
  if (!receive(*it->second)) disconnect(fd);
}

// The launch path met a kernel that it does not know: its registration may still lie in the socket.
// Nobody is disconnected here, because claims of the client are in hand.
void Server::poll_kernels(Client& client) {
  const auto process = processes_.find(client.identity().id);
  if (process == processes_.end()) return;
  const auto connection = connections_.find(process->second->connection);
  if (connection != connections_.end()) receive(*connection->second);
}

bool Server::receive(Connection& connection) {
  for (int i = 0; i < kPacketsInARow; ++i) {
    int sent[ipc::kDescriptorsMost];
    const std::span<int> room(sent, no_descriptors_ ? 0 : ipc::kDescriptorsMost);
    const ssize_t length = ipc::receive_packet(connection.fd.get(), packet_, room);
    for (const int fd : room) {
      if (fd >= 0) closer_.close(Descriptor(fd));
    }
    if (length == -EAGAIN) return true;
    Result<Message> message = fail("message: too long");
    if (length > 0) {
      message = decode_message({packet_, static_cast<size_t>(length)});
    } else if (length != -EMSGSIZE) {
      return false;
    }
    if (message) {
      const bool asks = std::holds_alternative<Request>(*message);
      on_message(connection, std::move(*message));
      // A connection asks once: the next question waits its turn behind everybody else's. One that
      // records, or waits for an answer, stays.
      const int fd = connection.fd.get();
      if (asks && connection.client == 0) {
        return fd == recording_for_ || fd == mps_for_ || connection.waits;
      }
      continue;
    }
    if (Client* client = engine_.find(connection.client)) client->intake().count_malformed();
    if (!connection.complained) {
      connection.complained = true;
      log_.warning({connection.peer.uid, connection.privileged}, "message_malformed",
                   {{"pid", connection.peer.pid},
                    {"uid", connection.peer.uid},
                    {"error", message.error().message}});
    }
    if (connection.client == 0) return false;
  }
  return true;
}

// An attached connection carries kernels and nothing else; anything that could end a client would
// do so under the feet of the launch path.
void Server::on_message(Connection& connection, Message message) {
  Client* client = engine_.find(connection.client);
  HEDDLE_FAULT_POINT("daemon: message decoded");
  if (const auto* kernel = std::get_if<core::KernelBody>(&message)) {
    if (client != nullptr) engine_.register_kernel(*client, *kernel, monotonic_now());
  } else if (const auto* need = std::get_if<MemoryNeed>(&message)) {
    if (client != nullptr) on_memory_need(*client, *need);
  } else if (connection.client != 0) {
    if (client != nullptr) client->intake().count_malformed();
  } else if (const auto* attach = std::get_if<AttachMessage>(&message)) {
    on_attach(connection, *attach);
  } else {
    on_request(connection, std::get<Request>(message));
  }
}

void Server::refuse(Connection& connection, const std::string& reason) {
  ipc::Attached answer;
  memcpy(answer.reason, reason.data(), std::min(reason.size(), sizeof answer.reason - 1));
  // A peer that does not read its answer stays unmanaged as well.
  (void)ipc::send_packet(connection.fd.get(),
                         std::as_bytes(std::span<const ipc::Attached>(&answer, 1)));
  note_refusal("pid " + std::to_string(connection.peer.pid) + " of user " +
               std::to_string(connection.peer.uid) + ": " + reason);
  // A shim asks again every few seconds: a line each time would tell nothing new.
  if (refused_.size() >= kClientsMax) refused_.clear();
  if (!refused_.insert_or_assign(connection.peer.pid, reason).second) return;
  log_.warning({connection.peer.uid, connection.privileged}, "client_refused",
               {{"pid", connection.peer.pid}, {"uid", connection.peer.uid}, {"reason", reason}});
}

void Server::on_attach(Connection& connection, const AttachMessage& message) {
  if (message.protocol_version != ipc::kProtocolVersion) {
    return refuse(connection, "the shim speaks protocol " +
                                  std::to_string(message.protocol_version) + ", the daemon " +
                                  std::to_string(ipc::kProtocolVersion) +
                                  "; install both from the same release");
  }
  // 0: it does not say.
  if (message.driver_version != 0 && message.driver_version < ipc::kCudaFloor) {
    return refuse(connection,
                  "its driver is older than CUDA 12.3 and names no kernels, so that "
                  "collectives would be held back; install a newer one");
  }
  if (engine_.clients().size() >= kClientsMax) {
    return refuse(connection, "the daemon takes " + std::to_string(kClientsMax) +
                                  " clients and has them; end some programs");
  }
  const uid_t uid = connection.peer.uid;
  const auto same = [uid](const auto& entry) { return entry.second->identity().uid == uid; };
  if (!is_privileged(connection.peer) &&
      std::count_if(engine_.clients().begin(), engine_.clients().end(), same) >=
          static_cast<ptrdiff_t>(kClientsMax / kShareOfUser)) {
    return refuse(connection, "your programs have half of all " + std::to_string(kClientsMax) +
                                  " places; end some of them");
  }
  // Its number may be another's by now, who is then a client of his own.
  if (has_ended(connection.pidfd.get())) {
    return refuse(connection, "the process that connected has ended; connect anew");
  }
  for (const auto& [id, client] : engine_.clients()) {
    if (connection.peer.pid == 0 || client->identity().pid != connection.peer.pid) continue;
    if (!client->managed()) return refuse(connection, client->unmanaged_reason());
    process_gone(id);  // the same process comes again: its old memories are of no use any more
    break;
  }
  Identity identity;
  identity.privileged = connection.privileged;
  identity.gpu_name = message.gpu_name;
  const bool known = has_model(driver_gpus_, message.gpu_name);
  if (known || connection.privileged || driver_gpus_.empty()) {
    profiles_.learn_gpu(message.gpu_name, driver_name(message.driver_version),
                        known || connection.privileged);
  }
  identity.id = engine_.next_id();
  identity.pid = connection.peer.pid;
  identity.uid = connection.peer.uid;
  identity.label = message.label;
  identity.command = message.command;
  identity.driver_version = message.driver_version;
  identity.device_count = message.device_count;
  identity.gpus = engine_.number_gpus(message.gpu_ids, uid, is_privileged(connection.peer));
  identity.sm_count = message.sm_count;
  identity.mps = message.mps;
  identity.memory_asked = message.memory;
  identity.run = message.run;
  identity.mps_memory_limit = message.mps_memory_limit;
  identity.hints_by_device = message.hints_by_device;
  identity.counts_memory = message.counts_memory;
  identity.tells_clock = message.clocks.monotonic_ns != 0;
  identity.clock_ahead = clock_ahead(message.clocks, clocks_now());
  const Origin origin = origin_of(connection.fd.get(), connection.peer);
  const Applicant applicant{origin, identity.label, message.priority, message.sms};
  const Grade grade = server::grade(rules_, geteuid(), applicant);
  identity.exe = origin.exe;
  for (const std::string& path : origin.cgroups) {
    if (path.size() > identity.cgroup.size()) identity.cgroup = path;  // the one that says most
  }
  identity.unseen = origin.unseen;
  identity.priority = grade.priority;
  identity.rule = grade.rule;
  identity.terms = grade.terms;
  identity.sm_groups = message.sm_groups;
  if (const auto range = ipc::parse_sms(grade.terms.sms)) {
    identity.partition = ipc::groups_of(*range, message.sm_groups);
    identity.sms = ipc::sms_of(identity.partition, message.sm_groups);
  }
  // Time-sliced a fence keeps nobody's SMs free.
  if (mode_of(identity, config_.gpu_mode, mps_.state()) != GpuMode::kTimeslice) {
    identity.fenceable = true;
  }
  const core::ClientId id = identity.id;
  Result<std::unique_ptr<Client>> made = Client::make(std::move(identity));
  if (!made) return refuse(connection, made.error().message);

  Descriptor doorbell(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  epoll_event edges{EPOLLIN | EPOLLET, {}};
  if (epoll_ctl(doorbells_.get(), EPOLL_CTL_ADD, doorbell.get(), &edges) != 0) {
    return refuse(connection, "out of descriptors; raise the daemon's limit on open files");
  }
  HEDDLE_FAULT_POINT("daemon: client made, not known");
  Client& client = engine_.attach(std::move(*made), monotonic_now());
  find_mode();
  look_at_mps();
  join_memory(client, message);
  HEDDLE_FAULT_POINT("daemon: client known, not told");
  if (client.send_attached(connection.fd.get(), doorbell.get()) != 0) {
    memory_.leave(id);
    return engine_.detach(id, monotonic_now());
  }
  HEDDLE_FAULT_POINT("daemon: client told, not watched");
  connection.client = id;
  auto process = std::make_unique<Process>();
  process->connection = connection.fd.get();
  process->applicant = applicant;
  process->pidfd = std::move(connection.pidfd);
  process->doorbell = std::move(doorbell);
  if (process->pidfd.get() >= 0) {
    process->watch = std::make_unique<FdWatch>(&loop_.loop, process->pidfd.get(),
                                               [this, id] { process_gone(id); });
  }
  processes_.emplace(id, std::move(process));
  const Causer causer{client.identity().uid, client.identity().privileged};
  log_.info(causer, "client_attached",
            {{"client", id},
             {"pid", client.identity().pid},
             {"uid", client.identity().uid},
             {"exe", client.identity().exe},
             {"cgroup", client.identity().cgroup},
             {"label", client.identity().label},
             {"priority", client.identity().priority},
             {"rule", client.identity().rule},
             {"sms", client.identity().sms}});
  if (const uint32_t devices = client.identity().device_count;
      std::popcount(client.visible()) < static_cast<int>(devices)) {
    log_.warning(causer, "devices_not_managed",
                 {{"client", id},
                  {"devices", devices - static_cast<uint32_t>(std::popcount(client.visible()))},
                  {"hint", "others have all numbers of GPUs, or their user has half of them"}});
  }
  if (!client.identity().terms.sms.empty() && client.identity().partition == 0) {
    log_.warning(causer, "client_not_partitioned",
                 {{"client", id},
                  {"sms", client.identity().terms.sms},
                  {"hint", "its driver has no Green Contexts: 12.4 or newer is needed"}});
  }
}

// Kernels overlap only where all of them are of MPS clients: one program beside the server is
// time-sliced against it. Of whom it cannot be told its own word is taken, unless there is no
// server where managed programs look for it: then what it saw was left behind by one. Without
// clients nothing changes, but that a managed MPS came or went.
void Server::find_mode() {
  const MpsState& mps = mps_.state();
  const auto is_mps = [&](const auto& entry) {
    const GpuMode mode = mode_of(entry.second->identity(), GpuMode::kAuto, mps);
    return mode == GpuMode::kMps ||
           (mode == GpuMode::kAuto && (mps.answers || !config_.mps.manage));
  };
  const auto& clients = engine_.clients();
  if (!clients.empty()) {
    engine_.set_mode(std::all_of(clients.begin(), clients.end(), is_mps), monotonic_now());
  } else if (config_.mps.manage) {
    engine_.set_mode(mps.answers, monotonic_now());
  }
}

// Where the configuration says how the GPU is shared there is nothing to find out.
void Server::look_at_mps() {
  if (config_.mps.manage || config_.gpu_mode == GpuMode::kAuto) mps_.look_soon();
}

// The answer comes when the order is carried out, which takes seconds.
void Server::order_mps(const Connection& connection, MpsWatch::Order order) {
  const int fd = connection.fd.get();
  const auto reply = [](int to, const Reply& answer) {
    (void)ipc::send_packet(to, encode_reply(answer));
  };
  const std::string obstacle = obstacle_to_mps(order);
  if (!obstacle.empty()) return reply(fd, {false, "mps: " + obstacle, "{}"});
  mps_for_ = fd;
  mps_.carry_out(order, [this, reply](const Result<void>& result) {
    const int to = std::exchange(mps_for_, kNobody);
    if (to == kHungUp) return;
    reply(to, result ? Reply{true, "", mps_json(mps_).dump()}
                     : Reply{false, "mps: " + result.error().message, "{}"});
    disconnect(to);
  });
}

// Why the order is not to be carried out now, "" if nothing is in the way. Who may become a client
// of MPS any moment is in the way of stopping it as its clients are, which MPS itself names.
std::string Server::obstacle_to_mps(MpsWatch::Order order) const {
  using Order = MpsWatch::Order;
  if (mps_for_ != kNobody) return "another heddle mps is at work; wait for it";
  if (order == Order::kStatus) return "";
  if (!config_.mps.manage) return "heddled does not manage it; set [mps] manage = true";
  if (order == Order::kStart) return "";
  std::string users;
  for (const auto& [id, client] : engine_.clients()) {
    const Identity& who = client->identity();
    if (!who.mps && !mps_.state().has_client(who.pid)) continue;
    users += (users.empty() ? "client " : ", client ") + std::to_string(id) + " (pid " +
             std::to_string(who.pid) + (who.label.empty() ? "" : ", " + who.label) + ")";
  }
  return users.empty() ? "" : "not stopped under its clients: end " + users;
}

void Server::on_request(Connection& connection, const Request& request) {
  if (connection.waits) return;
  answered_ |= !connection.privileged;
  Reply reply = answer(request, {connection.fd.get(), connection.peer}, monotonic_now(), facts_,
                       engine_, store_, profiles_);
  using Kind = Request::Kind;
  if (request.kind == Kind::kPs || request.kind == Kind::kEffective) look_at_mps();
  // Anybody is told what is known; whom no limit holds, how it is now.
  if (request.kind == Kind::kMps && reply.ok && is_privileged(connection.peer)) {
    return order_mps(connection, request.mps);
  }
  if (is_policy_order(request.kind) && reply.ok) return order_policy(connection, request);
  const bool records = request.kind == Request::Kind::kRecord && reply.ok;
  if (records) reply = start_recording(connection, reply);
  Descriptor text;
  if (request.kind == Request::Kind::kProfile && reply.ok) {
    reply = make_profile(request.client, text);
  }
  if (request.kind == Kind::kPolicyShow && reply.ok) reply = show_policy(text);
  if (request.kind == Kind::kPolicyShadowTold && reply.ok) reply = show_shadow(text);
  // Whoever does not take the answer has gone; its connection says so next.
  const int memory = records && reply.ok ? recording_->memory() : text.get();
  (void)ipc::send_packet(connection.fd.get(), encode_reply(reply),
                         {&memory, static_cast<size_t>(memory >= 0 ? 1 : 0)});
}

void Server::disconnect(int fd) {
  const auto it = connections_.find(fd);
  const core::ClientId id = it->second->client;
  it->second->watch.reset();
  hang_up(std::move(it->second->fd));
  connections_.erase(it);
  if (fd == recording_for_) {
    engine_.record(nullptr, monotonic_now());
    recording_.reset();
    recording_for_ = -1;
    log_.info("recording_ended", {});
  }
  if (fd == mps_for_) mps_for_ = kHungUp;
  const auto process = processes_.find(id);
  if (process == processes_.end()) return;
  process->second->connection = -1;
  if (Client* client = engine_.find(id)) client->connected = false;
  memory_.leave(id);  // it has become another program, or is about to attach again
  // Without a pidfd the socket is all there is to go by.
  if (process->second->pidfd.get() < 0) process_gone(id);
}

// What it did not read may hold descriptors.
void Server::hang_up(Descriptor fd) {
  if (!no_descriptors_ && fd.get() >= 0) closer_.close(std::move(fd));
}

void Server::process_gone(core::ClientId id) {
  beat();
  const auto process = processes_.find(id);
  if (process == processes_.end()) return;
  const int connection = process->second->connection;
  Causer causer = kSomeClient;
  if (const Client* client = engine_.find(id)) {
    causer = {client->identity().uid, client->identity().privileged};
  }
  epoll_ctl(doorbells_.get(), EPOLL_CTL_DEL, process->second->doorbell.get(), nullptr);
  processes_.erase(process);
  HEDDLE_FAULT_POINT("daemon: client gone, not forgotten");
  memory_.leave(id);
  engine_.detach(id, monotonic_now());
  find_mode();
  look_at_mps();
  if (const auto it = connections_.find(connection); it != connections_.end()) {
    it->second->watch.reset();
    hang_up(std::move(it->second->fd));
    connections_.erase(it);
  }
  log_.info(causer, "client_gone", {{"client", id}});
}

}  // namespace heddle::server
