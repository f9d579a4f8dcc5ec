#include "daemon/server/attached.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include "ipc/kernel_id.h"
#include "ipc/ring.h"
#include "ipc/slot.h"

namespace heddle::server {
namespace {

template <size_t N>
void copy_text(char (&out)[N], const std::string& text) {
  const size_t length = std::min(text.size(), N - 1);
  memcpy(out, text.data(), length);
  out[length] = '\0';
}

// No groups if any width is impossible.
core::SmGroups groups_of(std::span<const uint16_t> widths) {
  core::SmGroups groups{};
  if (widths.size() > core::kSmGroups) return groups;
  for (size_t i = 0; i < widths.size(); ++i) {
    if (widths[i] > UINT8_MAX) return {};
    groups.widths[i] = static_cast<uint8_t>(widths[i]);
  }
  groups.count = core::GroupCount(static_cast<uint32_t>(widths.size()));
  return groups;
}

std::string base_name(const std::string& path) { return path.substr(path.find_last_of('/') + 1); }

// Words that the launch path reads are stored only when they change: a store takes the cache line
// away from every launching thread.
template <class Word, class Value>
void store_changed(Word& word, Value value) {
  if (word.load(std::memory_order_relaxed) != value) word.store(value, std::memory_order_release);
}

uint64_t task_key(const std::string& label, const std::string& command) {
  const std::string task = label + '\n' + command;
  return XXH3_64bits(task.data(), task.size());
}

}  // namespace

template <class T>
SharedMemory<T>::~SharedMemory() {
  if (memory_ != nullptr) munmap(static_cast<void*>(memory_), sizeof(T));
  close_descriptor();
}

template <class T>
int SharedMemory<T>::make(const char* name, int (*seal)(int)) {
  fd_ = ipc::make_memory(name, sizeof(T));
  if (fd_ < 0) return fd_;
  void* at = mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (at == MAP_FAILED) return -errno;
  memory_ = static_cast<T*>(at);  // atomics of a fresh memfd are zero as they lie
  return seal(fd_);
}

template <class T>
void SharedMemory<T>::close_descriptor() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

template class SharedMemory<ipc::ControlMemory>;
template class SharedMemory<ipc::ClientMemory>;
template class SharedMemory<ipc::GatePage>;

Result<std::unique_ptr<Client>> Client::make(Identity identity) {
  std::unique_ptr<Client> client(new Client(std::move(identity)));
  int error = client->control_.make("heddle-control", ipc::seal_control_memory);
  if (error == 0) error = client->client_.make("heddle-client", ipc::seal_client_memory);
  if (error == 0) error = client->gates_.make("heddle-gates", ipc::seal_client_memory);
  if (error != 0) {
    return fail(std::string("shared memory: ") + strerror(-error) +
                "; check the daemon's limits on memory and open files");
  }
  client->gate_queue_ = std::make_unique<GateQueue>(*client->gates_);
  ipc::ControlMemory::Header& header = client->control_->header;
  header.magic = ipc::kControlMagic;
  header.version = ipc::kProtocolVersion;
  for (size_t device = 0; device < ipc::kDevices; ++device) {
    ipc::DeviceTerms& terms = client->control_->devices[device];
    terms.sm_set = client->identity_.sm_set.bits();
    if (client->identity_.gpus[device] == kNoGpu) terms.leased = 1;
  }
  return client;
}

void Client::set_terms(int priority, const std::string& rule, const Terms& terms) {
  identity_.priority = priority;
  identity_.rule = rule;
  identity_.terms.share = terms.share;
  identity_.terms.slo_ms = terms.slo_ms;
  identity_.terms.slowdown_max = terms.slowdown_max;
  identity_.terms.channel_max = terms.channel_max;
  identity_.terms.compute = terms.compute;
  identity_.terms.memory = terms.memory;
  identity_.terms.memory_per = terms.memory_per;
  identity_.terms.park = terms.park;
}

int Client::send_attached(int socket, int doorbell) {
  ipc::Attached attached;
  attached.managed = 1;
  attached.priority = static_cast<uint32_t>(identity_.priority);
  attached.client_id = identity_.id;
  attached.flags = (identity_.terms.fail_closed ? ipc::kFailClosed : 0) |
                   (identity_.gates ? ipc::kStreamsWait : 0);
  copy_text(attached.rule, identity_.rule);
  const int fds[] = {control_.fd(), client_.fd(), doorbell, gates_.fd()};
  const int error =
      ipc::send_packet(socket, std::as_bytes(std::span<const ipc::Attached>(&attached, 1)), fds);
  control_.close_descriptor();
  client_.close_descriptor();
  gates_.close_descriptor();
  return error;
}

bool Client::collect(core::TimeNs now, std::vector<Claim>& claims) {
  const uint16_t used = threads_used();
  room_ = share_;
  looks_ = kLooks;
  behind_ = false;
  bool look_again = false;
  uint16_t thread = first_thread_ < used ? first_thread_ : 0;
  for (uint16_t n = 0; n < used; ++n) {
    if (posted(thread)) {
      last_active = now;
      if (!drain_ring(thread, now, claims)) return false;
      look_again |= n > 0;
    }
    if (++thread == used) thread = 0;
  }
  if (!look_again) {
    if (!behind_) read_all_at_ = now;
    return true;
  }
  // A completion may cover a launch that another thread posted after its ring was read here. It was
  // published before the completion, so that a second look finds it; the claims are then sorted.
  for (thread = 0; room_ > 0 && thread < used; ++thread) {
    if (posted(thread) && !drain_ring(thread, now, claims)) return false;
  }
  if (!behind_) read_all_at_ = now;
  return true;
}

core::TimeNs Client::date(const Claim& claim, core::TimeNs now) {
  const uint64_t at_ns = claim.fields.at_ns;
  if (!identity_.tells_clock && at_ns <= INT64_MAX / 2) {
    // An older shim does not tell its clock, but that is at least as far ahead as its records.
    const core::TimeNs ahead = static_cast<core::TimeNs>(at_ns) - now;
    if (ahead > kStampNs) identity_.clock_ahead = std::max(identity_.clock_ahead, ahead);
  }
  return plausible_time(at_ns - static_cast<uint64_t>(identity_.clock_ahead),
                        floor_of(claim.thread), now);
}

bool Client::drain_ring(uint16_t thread, core::TimeNs now, std::vector<Claim>& claims) {
  ipc::ThreadBlock& block = client_->threads[thread];
  Cursor& cursor = cursors_[thread];
  bool sound = true;
  const int taken = ipc::ring_drain(
      block.ring_head, control_->grants[thread].ring_tail, cursor.ring, block.ring,
      [&](const std::byte* copy) {
        claims.push_back({Claim::Source::kRecord, thread});
        Claim& claim = claims.back();
        sound &= ipc::read_record(copy, claim.fields);
        claim.at = date(claim, now);
        cursor.last_at = claim.at;
      },
      room_);
  if (taken > 0) {
    room_ -= static_cast<uint32_t>(taken);
    if (room_ == 0) {
      first_thread_ = static_cast<uint16_t>(thread + 1);
      behind_ = true;
    }
  }
  return sound && taken >= 0;
}

// The core may choose less than the client has, never more.
ipc::SmSet Client::set_of(const core::Decision& d) const {
  const ipc::SmSet fixed = identity_.sm_set;
  return fixed.empty() ? d.sm_set : (fixed & d.sm_set).or_if_empty(fixed);
}

bool Client::apply(const core::Decision& d) {
  if (d.kind == core::DecisionKind::kGrant) {
    if (!GateQueue::is_thread(d.thread) || intake_.open_ask(d.thread) != d.ask_seq) return false;
    intake_.granted(d.thread);
    granted_at_ = d.at;
    if (!gate_queue_->release(d.thread, d.at)) return false;
    answer_went(&d);  // before the word: a thread that sees the word reads its verdict
    gate_queue_->let_go(d.thread);
    return any_to_wake();
  }
  if (d.kind == core::DecisionKind::kPark) {
    park_order_ = d.off;
    return false;
  }
  if (d.kind == core::DecisionKind::kStop) {
    if (terms_of(d.device) == nullptr) return false;
    stop_desk_.order(*control_, device_of(d.device), {d.off, d.slice_us});
    return false;
  }
  if (d.kind == core::DecisionKind::kAllowance) {
    ipc::DeviceTerms* const terms = terms_of(d.device);
    if (terms == nullptr) return false;
    terms->launch_priority.store(d.launch_priority, std::memory_order_relaxed);
    terms->sm_set.store(set_of(d).bits(), std::memory_order_relaxed);
    if (identity_.has_sets) {
      terms->ring.store(ipc::pack_ring(d.ring), std::memory_order_relaxed);
      terms->set_sizes.store(d.sizes.bits(), std::memory_order_relaxed);
    }
    const bool leased = d.allowed == core::Allowance::kLeased;
    terms->leased.store(leased ? 1 : 0, std::memory_order_release);
    const size_t device = device_of(d.device);
    gates_->wanted[device].store((d.gates_soon ? ipc::kGatesSoon : 0) |
                                     (d.gates_inside ? ipc::kGatesInside : 0) |
                                     (d.kernels_ask ? ipc::kKernelsAsk : 0),
                                 std::memory_order_relaxed);
    kernels_ask_ = d.kernels_ask;
    allowed_[device] = d.allowed;
    gate_queue_->set_open(device, d.allowed != core::Allowance::kGated);
    if (!leased) set_unobserved(false);
    allowed_changed();
    refused = d.managed == 0;
  } else if (d.kernel < ipc::kKernels) {
    const size_t device = device_of(d.device);
    if (device == identity_.gpus.size()) return false;
    ipc::DeviceHints& hints = control_->hints[device];
    ipc::KernelHint& hint = hints.kernels[d.kernel];
    hint.predicted_us.store(d.predicted_us, std::memory_order_release);
    const ipc::Special special{d.measure, d.size, d.raised, d.launch_priority};
    store_changed(hint.special, ipc::pack_special(special));
    if (special.changes()) {  // each launch of it must take a Turn
      set_unobserved(false);
      allow_sparse(false);
    }
  }
  return false;
}

std::optional<core::StopBody> Client::stops_on(uint8_t gpu, bool allowed, core::TimeNs now) {
  const size_t device = device_of(gpu);
  if (device == identity_.gpus.size()) return std::nullopt;
  return stop_desk_.look(*control_, *client_, device, allowed, now);
}

ipc::StopAble Client::can_stop(uint8_t gpu) const {
  const size_t device = device_of(gpu);
  return device < identity_.gpus.size() ? stop_desk_.able(device) : ipc::kStopNotSaid;
}

void Client::hold_at_gate(const Claim& claim) {
  const ipc::RecordFields& f = claim.fields;
  const bool sound = intake_.plausible(claim) && !intake_.unscheduled(claim) &&
                     f.kind <= wire::Kind::GRAPH && f.ask_seq != 0;
  const float predicted_us = sound && f.kernel < ipc::kKernels ? predicted(f) : 0;
  if (sound && gate_queue_->add(claim, predicted_us)) return;
  intake_.count_malformed();
  gate_queue_->give_up();
}

std::optional<Claim> Client::next_at_gate(core::TimeNs now, bool if_touched) {
  const bool open = control_->header.bypass.load(std::memory_order_relaxed) != 0;
  std::optional<Claim> claim = gate_queue_->next(now, open, if_touched);
  answer_went(nullptr);
  return claim;
}

bool Client::left_gates() {
  if (left_gates_) return false;
  left_gates_ = gate_queue_->given_up();
  return left_gates_;
}

void Client::answer(const WaitingThreads::Went& went, const ipc::Grant& grant) {
  const uint32_t key = ipc::slot_key(went.ticket, static_cast<uint32_t>(went.device));
  ipc::slot_answer(control_->grants[went.thread], key, grant);
  to_wake_ |= uint64_t{1} << went.thread;
}

// Answers the threads whose tickets went. The decision's own ticket gets its verdict, others none.
void Client::answer_went(const core::Decision* d) {
  if (gate_queue_->threads.went().empty()) return;
  for (const WaitingThreads::Went& went : gate_queue_->threads.went()) {
    const bool own = d != nullptr && went.ticket == d->ask_seq;
    answer(went,
           own ? ipc::Grant{set_of(*d), d->launch_priority} : ipc::Grant{{}, ipc::kNoVerdict});
  }
  gate_queue_->threads.forget();
}

float Client::predicted(const ipc::RecordFields& launch) const {
  const auto& hints = control_->hints[launch.device];
  return hints.kernels[launch.kernel].predicted_us.load(std::memory_order_relaxed);
}

bool Client::let_through(const Claim& claim) {
  if (!Intake::waits(claim)) return false;
  const ipc::RecordFields& f = claim.fields;
  answer({claim.thread, f.ask_seq, f.device}, {{}, ipc::kNoVerdict});
  ipc::gate_release(gates_->word[f.device], gates_->floor[f.device], ipc::gate_open(f.ask_seq));
  return true;
}

void Client::wake() {
  for (; to_wake_ != 0; to_wake_ &= to_wake_ - 1) {
    const auto thread = static_cast<size_t>(std::countr_zero(to_wake_));
    if (!ipc::slot_sleeps(client_->threads[thread])) continue;
    HEDDLE_FAULT_POINT("daemon: granted, not woken");
    // One wake-up, for the slot's own thread. If a client lets thousands wait there, the daemon
    // does not wake them.
    ipc::futex_wake(&control_->grants[thread].granted, 1);
  }
}

GpuNumbers::Numbers Client::visible() const {
  GpuNumbers::Numbers all = 0;
  for (size_t device = 0; device < identity_.device_count; ++device) {
    const uint8_t gpu = identity_.gpus[device];
    if (gpu != kNoGpu) all |= GpuNumbers::Numbers{1} << gpu;
  }
  return all;
}

size_t Client::device_of(int gpu) const {
  const auto& gpus = identity_.gpus;
  return static_cast<size_t>(std::find(gpus.begin(), gpus.end(), gpu) - gpus.begin());
}

ipc::DeviceTerms* Client::terms_of(int gpu) {
  const size_t device = device_of(gpu);
  return device < identity_.gpus.size() ? &control_->devices[device] : nullptr;
}

void Client::allowed_changed() {
  leased_ = true;
  gated_ = false;
  for (GpuNumbers::Numbers rest = working(); rest != 0; rest &= rest - 1) {
    const size_t device = device_of(std::countr_zero(rest));
    if (device == allowed_.size()) continue;
    leased_ &= allowed_[device] == core::Allowance::kLeased;
    gated_ |= allowed_[device] == core::Allowance::kGated;
  }
  tell_sparse();
}

void Client::heartbeat(core::TimeNs now) {
  const core::TimeNs theirs = now + identity_.clock_ahead;
  control_->header.heartbeat_ns.store(theirs, std::memory_order_release);
  gates_->heartbeat_ns.store(theirs, std::memory_order_release);
}

void Client::set_bypass(bool on) { store_changed(control_->header.bypass, on ? 1u : 0u); }

void Client::set_away(bool away) { store_changed(control_->header.away, away ? 1u : 0u); }

void Client::set_contended(bool on) { store_changed(control_->header.contended, on ? 1u : 0u); }

uint64_t Client::launches_told() const {
  const auto& counters = client_->counters;
  return counters.launches.load(std::memory_order_relaxed) -
         counters.unobserved.load(std::memory_order_relaxed);
}

uint64_t Client::take_untold() {
  constexpr uint64_t kMost = 100'000'000;  // no client launches as many in half a second
  const uint64_t all = client_->counters.unobserved.load(std::memory_order_relaxed);
  return std::min(kMost, all - std::exchange(untold_taken_, all));
}

void Client::set_unobserved(bool on) { store_changed(control_->header.unobserved, on ? 1u : 0u); }

void Client::allow_sparse(bool on) {
  sparse_allowed_ = on;
  tell_sparse();
}

// Rows are for clients of one device only: a launch in a row does not look up its device.
void Client::tell_sparse() {
  uint32_t word = 0;
  if (sparse_allowed_ && std::has_single_bit(working()) && leased_) {
    const ipc::DeviceTerms* const terms = terms_of(std::countr_zero(working()));
    if (terms != nullptr && terms->sm_set.load(std::memory_order_relaxed) == 0) {
      word = ipc::pack_sparse(terms->launch_priority.load(std::memory_order_relaxed));
    }
  }
  if (word != 0 && !sparse()) HEDDLE_FAULT_POINT("daemon: rows allowed, not told");
  store_changed(control_->header.sparse, word);
}

void Client::set_sleep(ipc::Sleep sleep) {
  if (sleep != ipc::kAwake) {
    naps_ += naps_ == UINT32_MAX ? 2 : 1;  // never 0
    control_->naps.store(naps_, std::memory_order_relaxed);
  }
  // Sequentially consistent: the rings are read next, and the client stores before it looks here.
  control_->sleeping.store(sleep, std::memory_order_seq_cst);
}

bool Client::add_kernel(const KernelMessage& message) {
  const uint32_t index = message.kernel.index;
  if (index >= ipc::kKernels || knows_kernel(index)) {
    intake_.count_malformed();
    return false;
  }
  if (index >= kernels_.size()) kernels_.resize(index + 1);
  Kernel& kernel = kernels_[index];
  kernel.there = true;
  kernel.kernel = message.kernel;
  if (message.has_nodes()) kernel.nodes = std::make_unique<core::NodesBody>(message.nodes);
  return true;
}

uint64_t Client::task() const { return task_key(identity_.label, identity_.command); }

uint64_t Client::unlabelled_task() const { return task_key("", identity_.command); }

std::vector<core::Event> Client::introduction(uint8_t gpu, core::TimeNs now,
                                              const core::TaskProfile* profile) const {
  core::Event event(core::EventKind::kAttached, now, identity_.id);
  event.device = gpu;
  core::AttachedBody& body = event.attached;
  body = {};
  body.task = task();
  body.profile_runs = profile != nullptr ? profile->runs : 0;
  body.pid = static_cast<uint32_t>(identity_.pid);
  body.uid = identity_.uid;
  body.share = static_cast<float>(identity_.terms.share);
  body.slo_ms = static_cast<float>(identity_.terms.slo_ms);
  body.slowdown_max = identity_.terms.slowdown_max;
  body.channel_max = identity_.terms.channel_max;
  body.compute = identity_.terms.compute;
  body.fail_closed = identity_.terms.fail_closed;
  body.gates = identity_.gates;
  body.priority = static_cast<uint8_t>(identity_.priority);
  body.groups = groups_of(identity_.sm_groups);
  body.sm_set = identity_.sm_set;
  const size_t device = device_of(gpu);
  if (device < identity_.made_sets.size()) body.made_sets = identity_.made_sets[device];
  copy_text(body.name, base_name(identity_.exe));
  copy_text(body.label, identity_.label);
  std::vector<core::Event> events{event};
  const auto measured = [&](const core::ProfileBody& what) {
    core::Event& known = events.emplace_back(core::EventKind::kProfile, now, identity_.id);
    known.device = gpu;
    known.profile = what;
  };
  for (size_t i = 0; profile != nullptr && i < profile->kernels.size(); ++i) {
    const core::KernelProfile& k = profile->kernels[i];
    measured({k.facts.id, k.duration, k.gap_launching, k.gap_synchronized, 0, k.facts.metrics});
    for (const core::DurationAfter& a : k.after) {
      measured({k.facts.id, {a.mean_us, a.mean_us, a.mean_us, a.count}, {}, {}, a.before, {}});
    }
  }
  for (const Kernel& kernel : kernels_) {
    if (!kernel.there) continue;
    core::Event& known = events.emplace_back(core::EventKind::kKernel, now, identity_.id);
    known.device = gpu;
    known.kernel = kernel.kernel;
    if (!kernel.nodes) continue;
    core::Event& nodes = events.emplace_back(core::EventKind::kNodes, now, identity_.id);
    nodes.device = gpu;
    nodes.nodes = *kernel.nodes;
  }
  return events;
}

void Client::let_go(std::string reason) {
  unmanaged_reason_ = std::move(reason);
  set_bypass(true);
  gate_queue_->give_up();
}

}  // namespace heddle::server
