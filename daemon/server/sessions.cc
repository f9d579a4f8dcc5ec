// Who connects, what they say, and when they are gone.
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

Clocks clocks_now() {
  timespec wall;
  clock_gettime(CLOCK_REALTIME, &wall);
  return {static_cast<uint64_t>(monotonic_now()),
          static_cast<uint64_t>(wall.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(wall.tv_nsec)};
}

}  // namespace

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
    if (Client* client = engine_.roster.find(connection.client)) client->intake().count_malformed();
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
  Client* client = engine_.roster.find(connection.client);
  HEDDLE_FAULT_POINT("daemon: message decoded");
  if (const auto* kernel = std::get_if<core::KernelBody>(&message)) {
    if (client != nullptr) engine_.presence.register_kernel(*client, *kernel, monotonic_now());
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
  if (engine_.roster.all().size() >= kClientsMax) {
    return refuse(connection, "the daemon takes " + std::to_string(kClientsMax) +
                                  " clients and has them; end some programs");
  }
  const uid_t uid = connection.peer.uid;
  const auto same = [uid](const auto& entry) { return entry.second->identity().uid == uid; };
  if (!is_privileged(connection.peer) &&
      std::count_if(engine_.roster.all().begin(), engine_.roster.all().end(), same) >=
          static_cast<ptrdiff_t>(kClientsMax / kShareOfUser)) {
    return refuse(connection, "your programs have half of all " + std::to_string(kClientsMax) +
                                  " places; end some of them");
  }
  // Its number may be another's by now, who is then a client of his own.
  if (has_ended(connection.pidfd.get())) {
    return refuse(connection, "the process that connected has ended; connect anew");
  }
  for (const auto& [id, client] : engine_.roster.all()) {
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
    profiles_.learn_gpu(message.gpu_name, profiles::driver_name(message.driver_version),
                        known || connection.privileged);
  }
  identity.id = engine_.roster.next_id();
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
  identity.gates = message.gates;
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
    identity.sm_set = ipc::groups_of(*range, message.sm_groups);
    identity.sms = ipc::sms_of(identity.sm_set, message.sm_groups);
  }
  // Time-sliced an SM set keeps nobody's SMs free.
  if (mode_of(identity, config_.gpu_mode, mps_.state()) != GpuMode::kTimeslice) {
    identity.has_sets = true;
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
             {"sms", client.identity().sms.get()}});
  if (const uint32_t devices = client.identity().device_count;
      std::popcount(client.visible()) < static_cast<int>(devices)) {
    log_.warning(causer, "devices_not_managed",
                 {{"client", id},
                  {"devices", devices - static_cast<uint32_t>(std::popcount(client.visible()))},
                  {"hint", "others have all numbers of GPUs, or their user has half of them"}});
  }
  if (!client.identity().terms.sms.empty() && client.identity().sm_set.empty()) {
    log_.warning(causer, "client_has_no_sm_set",
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
  const auto& clients = engine_.roster.all();
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
  for (const auto& [id, client] : engine_.roster.all()) {
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
  if (Client* client = engine_.roster.find(id)) client->connected = false;
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
  if (const Client* client = engine_.roster.find(id)) {
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
