#include "daemon/sim/gpu_model.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace heddle::sim {

namespace {

// Freed queue entries are kept until this many, so that a deep queue is not moved for each one.
constexpr size_t kQueueSlack = 64;

}  // namespace

GpuModel::GpuModel(const GpuConfig& config)
    : config_(config), gpu_(room_of(ipc::SmCount(config.sm_count))) {}

GpuModel::Room GpuModel::room_of(ipc::SmCount sms) const {
  const uint32_t n = sms.get();
  return {n * config_.threads_per_sm, n * config_.registers_per_sm, n * config_.shared_bytes_per_sm,
          n * config_.blocks_per_sm, sms};
}

uint32_t GpuModel::blocks_per_sm(const KernelShape& kernel) const {
  uint64_t fit = std::min<uint64_t>(config_.blocks_per_sm,
                                    config_.threads_per_sm / std::max(1u, kernel.threads));
  const uint64_t registers = uint64_t{kernel.registers} * kernel.threads;
  if (registers > 0) fit = std::min(fit, config_.registers_per_sm / registers);
  if (kernel.shared_bytes > 0) {
    fit = std::min<uint64_t>(fit, config_.shared_bytes_per_sm / kernel.shared_bytes);
  }
  return static_cast<uint32_t>(fit);
}

uint32_t GpuModel::waves(const KernelShape& kernel) const {
  const uint32_t wave = std::max(1u, blocks_per_sm(kernel) * config_.sm_count);
  return (kernel.blocks + wave - 1) / wave;
}

TimeNs GpuModel::alone_ns(const KernelShape& kernel) const {
  return waves(kernel) * kernel.block_ns;
}

size_t GpuModel::region_of(ClientIndex client, const Place& place) {
  if (place.set.empty()) return 0;
  if (config_.mode == Mode::kMps) client = kNobody;
  const auto same = std::find_if(regions_.begin(), regions_.end(), [&](const Region& r) {
    return r.client == client && r.set == place.set;
  });
  if (same != regions_.end()) return static_cast<size_t>(same - regions_.begin());
  regions_.push_back({client, place.set, room_of(place.sms)});
  return regions_.size() - 1;
}

ClientIndex GpuModel::add_client(uint32_t sm_limit) {
  assert(sm_limit <= config_.sm_count);
  ClientIndex index = 0;
  while (index < clients_.size() && clients_[index].live) ++index;
  if (index == clients_.size()) clients_.emplace_back();
  clients_[index] = {};
  clients_[index].live = true;
  clients_[index].room = room_of(ipc::SmCount(sm_limit == 0 ? config_.sm_count : sm_limit));
  return index;
}

void GpuModel::remove_client(TimeNs at, ClientIndex client) {
  for (StreamIndex s = 0; s < streams_.size(); ++s) {
    if (streams_[s].open && streams_[s].client == client) close_stream(at, s);
  }
  if (clients_[client].stands) --standing_;
  clients_[client] = {};
  unshared_ = true;  // under MPS others may have stood with it
  if (on_gpu_ == client) on_gpu_ = kNobody;
  dirty_ = true;
}

void GpuModel::pass_to(TimeNs at) {
  assert(at == now_ || (at > now_ && next_event() >= at));
  if (at > now_) pass_time(at);
  dirty_ = true;
}

void GpuModel::set_slice(TimeNs at, ClientIndex client, TimeNs slice_ns) {
  pass_to(at);
  clients_[client].slice_ns = slice_ns;
  if (on_gpu_ != client) return;
  const TimeNs begin = std::max(now_, switch_end_);
  if (slice_end_ > begin) slice_end_ = std::min(slice_end_, begin + this->slice_ns(client));
}

void GpuModel::stop(TimeNs at, ClientIndex client) { order(at, client, true, facts::kStopNs); }

void GpuModel::go_on(TimeNs at, ClientIndex client) { order(at, client, false, facts::kGoOnNs); }

void GpuModel::order(TimeNs at, ClientIndex client, bool stands, TimeNs takes_ns) {
  pass_to(at);
  Client& c = clients_[client];
  if (c.stands == stands) {
    c.turns_at = kNever;
  } else if (c.turns_at == kNever) {
    c.turns_at = at + takes_ns;
    turns_at_ = std::min(turns_at_, c.turns_at);
  }
}

// Those whose time has come stand, or go on.
void GpuModel::turn_clients() {
  if (turns_at_ > now_) return;
  turns_at_ = kNever;
  for (Client& client : clients_) {
    if (client.turns_at <= now_) {
      client.stands = !client.stands;
      standing_ += client.stands ? 1 : -1U;
      client.turns_at = kNever;
      unshared_ = true;
    }
    turns_at_ = std::min(turns_at_, client.turns_at);
  }
}

StreamIndex GpuModel::open_stream(ClientIndex client, int priority) {
  assert(clients_[client].live);
  StreamIndex index = static_cast<StreamIndex>(streams_.size());
  if (free_streams_.empty()) {
    streams_.emplace_back();
  } else {
    index = free_streams_.back();
    free_streams_.pop_back();
  }
  Stream& stream = streams_[index];
  stream.client = client;
  stream.priority = priority;
  stream.open = true;
  return index;
}

void GpuModel::close_stream([[maybe_unused]] TimeNs at, StreamIndex stream) {
  assert(at >= now_);
  drop_work(stream);
  streams_[stream].open = false;
  free_streams_.push_back(stream);
  dirty_ = true;
}

// Running blocks go too: what is left of a dead process does not run on.
void GpuModel::drop_work(StreamIndex s) {
  Stream& stream = streams_[s];
  if (idle(s)) return;
  if (stream.running > 0) give_room(stream, stream.running);
  if (joined_ == s) joined_ = kNone;
  unshared_ = true;
  std::erase_if(cohorts_, [s](const Cohort& cohort) { return cohort.stream == s; });
  const bool is_kernel = stream.queue[stream.head].op.kind == OpKind::kKernel;
  if (is_kernel && stream.phase != Phase::kQueued) --clients_[stream.client].kernels;
  forget(s);
  stream.queue.clear();
  stream.head = 0;
  stream.phase = Phase::kQueued;
  stream.unplaced = stream.running = 0;
  stream.done = stream.issued;
}

void GpuModel::forget(StreamIndex s) {
  std::erase(active_, s);
  std::erase(ready_, s);
}

OpId GpuModel::submit(TimeNs at, StreamIndex s, const Op& op) {
  assert(at == now_ || (at > now_ && next_event() >= at));
  assert(op.kind != OpKind::kKernel || blocks_per_sm(op.kernel) > 0);
  assert(op.place.set.empty() ||
         (op.place.sms.get() > 0 && op.place.sms.get() <= config_.sm_count));
  if (at > now_) pass_time(at);
  Stream& stream = streams_[s];
  // Behind others of its stream it changes nothing, but what is over within rounding ends now.
  bool matters = idle(s) || (config_.mode == Mode::kTimeSlice && slice_end_ <= now_);
  for (const Cohort& cohort : cohorts_) matters |= cohort.left_ns <= kDoneNs;
  if (idle(s)) active_.push_back(s);
  stream.queue.push_back({op, at});
  ++stream.issued;
  dirty_ |= matters;
  return {s, stream.issued};
}

void GpuModel::advance(TimeNs to, std::vector<Notice>& notices) {
  for (TimeNs next = next_event(); next <= to; next = next_event()) {
    pass_time(next);
    settle(notices);
  }
  pass_time(to);
  settled_ = to;
}

TimeNs GpuModel::find_next() const {
  TimeNs next = turns_at_;
  for (StreamIndex s : active_) {
    const Stream& stream = streams_[s];
    if (stream.phase != Phase::kQueued && stream.phase_end > now_) {
      next = std::min(next, stream.phase_end);
    }
  }
  double least = std::numeric_limits<double>::infinity();
  for (const Cohort& cohort : cohorts_) {
    // No speed is above 1, and the first to be placed is the first to end: few divisions.
    if (cohort.left_ns >= least || cohort.speed == 0) continue;
    least = std::min(least, std::max(0.0, cohort.left_ns) / cohort.speed);
  }
  if (least < std::numeric_limits<double>::infinity()) {
    next = std::min(next, now_ + static_cast<TimeNs>(std::ceil(least)));
  }
  if (config_.mode == Mode::kMps || on_gpu_ == kNobody) return next;
  if (switch_end_ > now_) next = std::min(next, switch_end_);
  if (slice_end_ <= now_) return next;
  for (ClientIndex i = 0; i < clients_.size(); ++i) {
    if (i != on_gpu_ && wants_gpu(i)) return std::min(next, slice_end_);
  }
  return next;
}

// Everything that happens at now_, until nothing more does.
void GpuModel::settle(std::vector<Notice>& notices) {
  part_waves();
  dirty_ = next_known_ = false;
  turn_clients();
  bool again = true;
  while (again) {
    finish_cohorts(notices);
    again = move_heads(notices);  // what completed may be what another stream waits for
    again |= choose_client();
    again |= place_blocks(notices);
  }
  if (unshared_ || now_ == switch_end_) share_sms();
  unshared_ = false;
  join_waves();
}

bool GpuModel::move_heads(std::vector<Notice>& notices) {
  bool changed = false;
  // By index: finishing a stream's last operation takes it out of active_.
  for (size_t i = 0; i < active_.size();) {
    const StreamIndex s = active_[i];
    const Stream& stream = streams_[s];
    const bool waits = stream.phase != Phase::kQueued && stream.phase_end > now_;
    if (waits || !move_head(s, notices)) {
      ++i;
      continue;
    }
    changed = true;
    if (i < active_.size() && active_[i] == s) ++i;
  }
  return changed;
}

// Takes the head of one stream as far as it goes at now_. True if anything completed or changed.
bool GpuModel::move_head(StreamIndex s, std::vector<Notice>& notices) {
  bool changed = false;
  while (!idle(s)) {
    Stream& stream = streams_[s];
    const Op& op = stream.queue[stream.head].op;
    if (op.kind != OpKind::kDelay && stands(stream.client)) return changed;
    if (stream.phase == Phase::kQueued) {
      if (!done(op.after)) return changed;
      changed = true;
      begin(stream);
      if (op.kind == OpKind::kDelay) {
        notices.push_back({Notice::kStarted, {s, stream.done + 1}, stream.client, now_, op.tag});
      }
    }
    const bool over = now_ >= stream.phase_end;
    if (stream.phase == Phase::kLaunching && over && op.kernel.blocks > 0) {
      make_ready(s);
      return true;
    }
    const bool timed = stream.phase == Phase::kLaunching || op.kind != OpKind::kKernel;
    if (!timed || !over) return changed;
    if (op.kind == OpKind::kKernel) {  // no blocks: over as soon as it is launched
      notices.push_back({Notice::kStarted, {s, stream.done + 1}, stream.client, now_, op.tag});
    }
    finish_head(s, notices);
    changed = true;
  }
  return changed;
}

void GpuModel::begin(Stream& stream) {
  const auto& [op, submitted] = stream.queue[stream.head];
  stream.phase = Phase::kRunning;
  stream.phase_end = now_;
  if (op.kind == OpKind::kDelay) stream.phase_end += op.delay_ns;
  if (op.kind != OpKind::kKernel) return;
  stream.phase = Phase::kLaunching;
  stream.phase_end = std::max(now_ + config_.queue_ns, submitted + config_.launch_ns);
  ++clients_[stream.client].kernels;
}

void GpuModel::make_ready(StreamIndex s) {
  Stream& stream = streams_[s];
  const Op& op = stream.queue[stream.head].op;
  stream.phase = Phase::kReady;
  stream.unplaced = op.kernel.blocks;
  stream.phase_end = kNever;
  stream.head_priority = stream.priority + op.priority;
  stream.region = region_of(stream.client, op.place);
  stream.needs = needs_of(stream);
  const auto behind = std::find_if(ready_.begin(), ready_.end(), [&](StreamIndex other) {
    return streams_[other].head_priority > stream.head_priority;
  });
  ready_.insert(behind, s);
}

void GpuModel::finish_head(StreamIndex s, std::vector<Notice>& notices) {
  Stream& stream = streams_[s];
  const Op& op = stream.queue[stream.head].op;
  if (op.kind == OpKind::kKernel) --clients_[stream.client].kernels;
  ++stream.done;
  notices.push_back({Notice::kCompleted, {s, stream.done}, stream.client, now_, op.tag});
  ++stream.head;
  stream.phase = Phase::kQueued;
  if (idle(s)) {
    stream.queue.clear();
    stream.head = 0;
    forget(s);
  } else if (stream.head >= kQueueSlack && stream.head * 2 >= stream.queue.size()) {
    stream.queue.erase(stream.queue.begin(),
                       stream.queue.begin() + static_cast<ptrdiff_t>(stream.head));
    stream.head = 0;
  }
}

// Nobody else wanted the GPU until `at`.
void GpuModel::renew_slice(TimeNs at) {
  if (on_gpu_ == kNobody) return;
  const TimeNs slice = slice_ns(on_gpu_);
  if (slice_end_ <= at) slice_end_ += ((at - slice_end_) / slice + 1) * slice;
}

// Time-slicing: whose turn is it? A slice ends early when its client has nothing to run, and is
// renewed while nobody else wants the GPU. True if another client's turn began.
bool GpuModel::choose_client() {
  if (config_.mode == Mode::kMps) return false;
  const auto count = static_cast<ClientIndex>(clients_.size());
  const bool wanted = on_gpu_ != kNobody && wants_gpu(on_gpu_);
  if (wanted) {
    if (slice_end_ < now_) renew_slice(now_);
    if (slice_end_ > now_) return false;
  }
  const ClientIndex first = on_gpu_ == kNobody ? 0 : on_gpu_ + 1;
  for (ClientIndex i = 0; i < count; ++i) {
    const ClientIndex candidate = (first + i) % count;
    if (candidate == on_gpu_ || !wants_gpu(candidate)) continue;
    on_gpu_ = candidate;
    unshared_ = true;
    switch_end_ = now_ + config_.switch_ns;
    const TimeNs slice = slice_ns(candidate);
    slice_end_ = switch_end_ + (slice < facts::kSliceLeastNs ? 0 : slice);
    return true;
  }
  if (wanted) slice_end_ += slice_ns(on_gpu_);
  return false;
}

}  // namespace heddle::sim
