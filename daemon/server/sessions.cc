// Server's part for sessions: connections, their messages, and the end of processes.
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

// The most packets of one peer that are received in a row, so that a flood does not starve others.
constexpr int kPacketsInARow = 64;

Clocks clocks_now() {
  timespec wall;
  clock_gettime(CLOCK_REALTIME, &wall);
  return {static_cast<uint64_t>(monotonic_now()),
          static_cast<uint64_t>(wall.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(wall.tv_nsec)};
}

// Why the client's launches must wait in its threads; "": they may wait on the GPU.
const char* why_threads_wait(const AttachMessage& message, const Config& config,
                             const Identity& identity, bool timesliced) {
  if (!config.gates) return "[daemon] gates is false";
  if (identity.terms.fail_closed) return "its rule has it fail closed";
  // Time-sliced, a process whose stream waits at a gate still gets time slices, which are lost to
  // the program whose turn it is: a fifth to a half of the GPU for four programs with short
  // kernels, measured on an H200.
  if (timesliced && identity.terms.compute.any()) return "its rule has compute, time-sliced";
  if (!message.streams_wait)
    return "its streams cannot wait: HEDDLE_GATES=0, CUDA_LAUNCH_BLOCKING=1 or an old driver";
  return "";
}

}  // namespace

void Server::on_readable(int fd) {
  beat();
  Connection* const connection = connections_.find(fd);
  if (connection == nullptr) return;
  // An answer takes long compared with a grant, so there is one in a turn of the loop. The other
  // connections are still readable in the next turn.
  if (answered_ && connection->client == 0 && !connection->privileged) return;
  if (!receive(*connection)) disconnect(fd);
}

// The launch path found an unknown kernel: its registration may still be in the socket. This does
// not disconnect the client, because its claims are being handled.
void Server::poll_kernels(Client& client) {
  const auto process = processes_.find(client.identity().id);
  if (process == processes_.end()) return;
  Connection* const connection = connections_.find(process->second->connection);
  if (connection != nullptr) receive(*connection);
}

bool Server::receive(Connection& connection) {
  for (int i = 0; i < kPacketsInARow; ++i) {
    const ssize_t length = connections_.receive(connection, packet_);
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
      // A connection may ask once, so that further questions queue behind those of others. It stays
      // open if it records, or waits for an answer.
      const int fd = connection.fd.get();
      if (asks && connection.client == 0) {
        return fd == recording_for_ || mps_.waits(fd) || connection.waits;
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

// An attached connection carries only kernels and memory needs. Any message that could end a client
// here would do so while the launch path uses it.
void Server::on_message(Connection& connection, Message message) {
  Client* client = engine_.roster.find(connection.client);
  HEDDLE_FAULT_POINT("daemon: message decoded");
  if (const auto* kernel = std::get_if<KernelMessage>(&message)) {
    if (client != nullptr) engine_.presence.register_kernel(*client, *kernel, monotonic_now());
  } else if (const auto* need = std::get_if<MemoryNeed>(&message)) {
    if (client != nullptr) memory_.need(*client, *need);
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
  // A send error does not matter: a peer that does not read its answer stays unmanaged as well.
  (void)ipc::send_packet(connection.fd.get(),
                         std::as_bytes(std::span<const ipc::Attached>(&answer, 1)));
  connections_.note_refusal("pid " + std::to_string(connection.peer.pid) + " of user " +
                            std::to_string(connection.peer.uid) + ": " + reason);
  // A refused shim asks again every few seconds: only a new reason is logged.
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
  // 0: unknown.
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
  // If the process has ended, its number may belong to another process, which has its own
  // connection.
  if (has_ended(connection.pidfd.get())) {
    return refuse(connection, "the process that connected has ended; connect anew");
  }
  for (const auto& [id, client] : engine_.roster.all()) {
    if (connection.peer.pid == 0 || client->identity().pid != connection.peer.pid) continue;
    if (!client->managed()) return refuse(connection, client->unmanaged_reason());
    process_gone(id);  // the process attaches again: its old memories are of no use
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
  identity.mode_told = message.mode_told;
  identity.memory_asked = message.memory;
  identity.run = message.run;
  identity.mps_memory_limit = message.mps_memory_limit;
  identity.counts_memory = message.counts_memory;
  identity.parks = message.parks;
  identity.park_asked = message.park_asked;
  identity.tells_clock = message.clocks.monotonic_ns != 0;
  identity.clock_ahead = clock_ahead(message.clocks, clocks_now());
  const Origin origin = origin_of(connection.fd.get(), connection.peer);
  const Applicant applicant{origin, identity.label, message.priority, message.sms,
                            message.channel_max};
  const Grade grade = server::grade(config_changes_.rules(), geteuid(), applicant);
  identity.exe = origin.exe;
  for (const std::string& path : origin.cgroups) {
    if (path.size() > identity.cgroup.size()) identity.cgroup = path;  // the most specific one
  }
  identity.unseen = origin.unseen;
  identity.priority = grade.priority;
  identity.rule = grade.rule;
  identity.terms = grade.terms;
  identity.sm_groups = message.sm_groups;
  identity.made_sets = message.made_sets;
  if (const auto range = ipc::parse_sms(grade.terms.sms)) {
    identity.sm_set = ipc::groups_of(*range, message.sm_groups);
    identity.sms = ipc::sms_of(identity.sm_set, message.sm_groups);
  }
  const bool timesliced =
      mode_of(identity, config_.gpu_mode, mps_.watch().state()) == GpuMode::kTimeslice;
  identity.threads_wait_because = why_threads_wait(message, config_, identity, timesliced);
  identity.gates = identity.threads_wait_because.empty();
  identity.has_sets |= !timesliced;  // time-sliced, an SM set keeps no SMs free for others
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
  mps_.find_mode();
  mps_.look();
  memory_.join(client, message);
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
  HEDDLE_CHECK_IN(engine_.mistakes, processes_.size() == engine_.roster.all().size());
  greet(client);
}

void Server::greet(const Client& client) {
  const core::ClientId id = client.identity().id;
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

void Server::on_request(Connection& connection, const Request& request) {
  if (connection.waits) return;
  answered_ |= !connection.privileged;
  const int fd = connection.fd.get();
  Reply reply =
      answer(request, {fd, connection.peer}, monotonic_now(), facts_, engine_, store_, profiles_);
  using Kind = Request::Kind;
  if (request.kind == Kind::kPs || request.kind == Kind::kEffective) mps_.look();
  // Any user gets the last known state of MPS; for the privileged, a new look comes first.
  if (request.kind == Kind::kMps && reply.ok && is_privileged(connection.peer)) {
    const Result<void> begun = mps_.carry_out(fd, request.mps);
    if (begun) return;
    reply = {false, "mps: " + begun.error().message, "{}"};
  }
  if (is_policy_order(request.kind) && reply.ok) return order_policy(connection, request);
  const bool records = request.kind == Kind::kRecord && reply.ok;
  if (records) reply = start_recording(connection, reply);
  Descriptor text;
  if (request.kind == Kind::kProfile && reply.ok) {
    reply = show_profile(engine_, profiles_, request.client, text);
  }
  if (request.kind == Kind::kPolicyShow && reply.ok) reply = show_policy(engine_, store_, text);
  if (request.kind == Kind::kPolicyShadowTold && reply.ok) reply = show_shadow(engine_, text);
  // A send error means that the peer has gone: its connection will become readable.
  const int memory = records && reply.ok ? recording_->memory() : text.get();
  (void)ipc::send_packet(fd, encode_reply(reply),
                         {&memory, static_cast<size_t>(memory >= 0 ? 1 : 0)});
}

// The connection may have ended when the answer comes, and its descriptor may be another one's:
// hence the serial number.
std::function<void(const Reply&)> Server::answer_later(Connection& connection) {
  connection.waits = true;
  return [this, fd = connection.fd.get(), serial = connection.serial](const Reply& reply) {
    const Connection* const now = connections_.find(fd);
    if (now == nullptr || now->serial != serial) return;
    (void)ipc::send_packet(fd, encode_reply(reply));
    disconnect(fd);
  };
}

void Server::order_policy(Connection& connection, const Request& request) {
  const auto reply = answer_later(connection);
  const LoadedBy by{"", connection.peer.uid, connection.peer.pid};
  if (request.kind == Request::Kind::kPolicyShadow) {
    return policy_changes_.shadow(request.policy, by, [this, reply](const Result<void>& begun) {
      if (!begun) return reply({false, begun.error().message, "{}"});
      const Generation& candidate = *engine_.policy.candidate().generation();
      reply({true, "",
             nlohmann::json{{"shadow", candidate.name},
                            {"hash", candidate.hash},
                            {"live", engine_.policy.generation().name}}
                 .dump()});
    });
  }
  if (request.kind == Request::Kind::kPolicyList) {
    auto list = std::make_shared<nlohmann::json>();
    return jobs_.add([this, list] { *list = store_.list(); },
                     [this, list, reply] { reply(policy_list(std::move(*list), engine_)); });
  }
  policy_changes_.order(request, by, [this, reply](const Result<void>& changed) {
    reply(after_policy_change(changed, monotonic_now(), facts_, engine_, store_));
  });
}

Reply Server::start_recording(const Connection& connection, const Reply& reply) {
  if (recording_) {
    return {false, "record: another heddle record runs; wait for it, or end it", "{}"};
  }
  Result<std::unique_ptr<Recording>> made = Recording::make();
  if (!made) return {false, made.error().message, "{}"};
  recording_ = std::move(*made);
  recording_for_ = connection.fd.get();
  engine_.record(&recording_->recorder(), monotonic_now());
  log_.info("recording", {{"pid", connection.peer.pid}, {"uid", connection.peer.uid}});
  return reply;
}

// Gives the attached clients the terms of the present rules. Returns how many have changed.
size_t Server::regrade() {
  size_t changed = 0;
  for (const auto& [id, process] : processes_) {
    Client* client = engine_.roster.find(id);
    if (client == nullptr) continue;
    const Grade grade = server::grade(config_changes_.rules(), geteuid(), process->applicant);
    if (!engine_.set_terms(*client, grade.priority, grade.rule, grade.terms, monotonic_now())) {
      continue;
    }
    ++changed;
    memory_.set_limits(*client);
    log_.info("client_terms_changed",
              {{"client", id}, {"priority", grade.priority}, {"rule", grade.rule}});
  }
  return changed;
}

// Asks the shim to give memory back. Any packet means that (shim/link/helper.cc). If the socket is
// full, the next question of another client sends it again.
void Server::want_back(core::ClientId id) {
  const auto process = processes_.find(id);
  if (process == processes_.end() || process->second->connection < 0) return;
  const std::byte word{};
  (void)ipc::send_packet(process->second->connection, std::span(&word, 1));
}

void Server::disconnect(int fd) {
  const core::ClientId id = connections_.find(fd)->client;
  connections_.end(fd);
  HEDDLE_CHECK_IN(engine_.mistakes, (recording_ != nullptr) == (recording_for_ >= 0));
  if (fd == recording_for_) {
    engine_.record(nullptr, monotonic_now());
    recording_.reset();
    recording_for_ = -1;
    log_.info("recording_ended", {});
  }
  mps_.hang_up(fd);
  const auto process = processes_.find(id);
  if (process == processes_.end()) return;
  process->second->connection = -1;
  if (Client* client = engine_.roster.find(id)) client->connected = false;
  memory_.leave(id);  // the process exec'ed another program, or is about to attach again
  // Without a pidfd the end of the connection counts as the end of the process.
  if (process->second->pidfd.get() < 0) process_gone(id);
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
  parking_.leave(id);
  engine_.detach(id, monotonic_now());
  mps_.find_mode();
  mps_.look();
  connections_.end(connection);
  HEDDLE_CHECK_IN(engine_.mistakes, processes_.size() == engine_.roster.all().size());
  log_.info(causer, "client_gone", {{"client", id}});
}

}  // namespace heddle::server
