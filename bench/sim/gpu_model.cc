#include "bench/sim/gpu_model.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace heddle::sim {

namespace {

// A cohort with less than this left is done: sums of rounded steps never hit zero exactly.
constexpr double kDoneNs = 0.5;

// Freed queue entries are kept until this many, so that a deep queue is not moved for each one.
constexpr size_t kQueueSlack = 64;

double speed(double bandwidth, double in_use) {
  return in_use <= 1 ? 1.0 : 1.0 / (1.0 - bandwidth + bandwidth * in_use);
}

}  // namespace

GpuModel::GpuModel(const GpuConfig& config) : config_(config) {
  if (config_.mode == Mode::kMps) rooms_.push_back(room_of(config.sm_count));
}

GpuModel::Room GpuModel::room_of(uint32_t sms) const {
  const uint64_t n = sms;
  return {n * config_.threads_per_sm, n * config_.registers_per_sm, n * config_.shared_bytes_per_sm,
          n * config_.blocks_per_sm};
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

ClientIndex GpuModel::add_client(uint32_t sm_limit) {
  ClientIndex index = 0;
  while (index < clients_.size() && clients_[index].live) ++index;
  if (index == clients_.size()) {
    clients_.emplace_back();
    if (config_.mode == Mode::kTimeSlice) rooms_.emplace_back();
  }
  const uint32_t domain = config_.mode == Mode::kMps ? 0 : index;
  if (config_.mode == Mode::kTimeSlice) rooms_[domain] = room_of(config_.sm_count);
  const uint32_t sms = sm_limit == 0 ? config_.sm_count : sm_limit;
  clients_[index] = {true, domain, 0, room_of(sms), sms};
  return index;
}

void GpuModel::remove_client(TimeNs at, ClientIndex client) {
  for (StreamIndex s = 0; s < streams_.size(); ++s) {
    if (streams_[s].open && streams_[s].client == client) close_stream(at, s);
  }
  clients_[client].live = false;
  if (on_gpu_ == client) on_gpu_ = kNobody;
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
  std::erase_if(cohorts_, [s](const Cohort& cohort) { return cohort.stream == s; });
  const bool is_kernel = stream.queue[stream.head].kind == OpKind::kKernel;
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
  if (at > now_) pass_time(at);
  Stream& stream = streams_[s];
  if (idle(s)) active_.push_back(s);
  stream.queue.push_back(op);
  ++stream.issued;
  dirty_ = true;
  return {s, stream.issued};
}

void GpuModel::advance(TimeNs to, std::vector<Notice>& notices) {
  for (TimeNs next = next_event(); next <= to; next = next_event()) {
    pass_time(next);
    settle(notices);
  }
  pass_time(to);
}

TimeNs GpuModel::next_event() const {
  if (dirty_) return now_;
  TimeNs next = kNever;
  for (StreamIndex s : active_) {
    const Stream& stream = streams_[s];
    const bool timed = stream.phase == Phase::kLaunching || stream.phase == Phase::kRunning;
    if (timed && stream.phase_end > now_) next = std::min(next, stream.phase_end);
  }
  const double in_use = bandwidth_in_use();
  for (const Cohort& cohort : cohorts_) {
    if (!may_run(streams_[cohort.stream].client)) continue;
    const double left = std::max(0.0, cohort.left_ns) / speed(cohort.bandwidth, in_use);
    next = std::min(next, now_ + static_cast<TimeNs>(std::ceil(left)));
  }
  if (config_.mode == Mode::kMps || on_gpu_ == kNobody) return next;
  if (switch_end_ > now_) next = std::min(next, switch_end_);
  const bool contended = std::any_of(clients_.begin(), clients_.end(), [&](const Client& c) {
    return c.kernels > 0 && &c != &clients_[on_gpu_];
  });
  if (contended && slice_end_ > now_) next = std::min(next, slice_end_);
  return next;
}

// Everything that happens at now_, until nothing more does.
void GpuModel::settle(std::vector<Notice>& notices) {
  dirty_ = false;
  bool changed = true;
  while (changed) {
    changed = finish_cohorts(notices);
    changed |= move_heads(notices);
    changed |= choose_client();
    place_blocks(notices);
  }
}

void GpuModel::pass_time(TimeNs to) {
  const double in_use = bandwidth_in_use();
  for (Cohort& cohort : cohorts_) {
    if (!may_run(streams_[cohort.stream].client)) continue;
    cohort.left_ns -= static_cast<double>(to - now_) * speed(cohort.bandwidth, in_use);
  }
  now_ = to;
}

bool GpuModel::move_heads(std::vector<Notice>& notices) {
  bool changed = false;
  // By index: finishing a stream's last operation takes it out of active_.
  for (size_t i = 0; i < active_.size();) {
    const StreamIndex s = active_[i];
    if (!move_head(s, notices)) {
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
    const Op& op = stream.queue[stream.head];
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
  const Op& op = stream.queue[stream.head];
  stream.phase = Phase::kRunning;
  stream.phase_end = now_;
  if (op.kind == OpKind::kDelay) stream.phase_end += op.delay_ns;
  if (op.kind != OpKind::kKernel) return;
  stream.phase = Phase::kLaunching;
  stream.phase_end += config_.launch_ns;
  ++clients_[stream.client].kernels;
}

void GpuModel::make_ready(StreamIndex s) {
  Stream& stream = streams_[s];
  const Op& op = stream.queue[stream.head];
  stream.phase = Phase::kReady;
  stream.unplaced = op.kernel.blocks;
  stream.head_priority = stream.priority + op.priority;
  const auto behind = std::find_if(ready_.begin(), ready_.end(), [&](StreamIndex other) {
    return streams_[other].head_priority > stream.head_priority;
  });
  ready_.insert(behind, s);
}

void GpuModel::finish_head(StreamIndex s, std::vector<Notice>& notices) {
  Stream& stream = streams_[s];
  const Op& op = stream.queue[stream.head];
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

bool GpuModel::finish_cohorts(std::vector<Notice>& notices) {
  bool changed = false;
  for (size_t i = 0; i < cohorts_.size();) {
    const Cohort cohort = cohorts_[i];
    Stream& stream = streams_[cohort.stream];
    if (cohort.left_ns > kDoneNs || !may_run(stream.client)) {
      ++i;
      continue;
    }
    cohorts_.erase(cohorts_.begin() + static_cast<ptrdiff_t>(i));
    give_room(stream, cohort.blocks);
    stream.running -= cohort.blocks;
    if (stream.running == 0 && stream.unplaced == 0) finish_head(cohort.stream, notices);
    changed = true;
  }
  return changed;
}

void GpuModel::end_kernel(StreamIndex s) {
  for (Cohort& cohort : cohorts_) {
    if (cohort.stream == s) cohort.left_ns = 0;
  }
  Stream& stream = streams_[s];
  stream.queue[stream.head].kernel.block_ns = 0;  // of the blocks that found no room yet
  dirty_ = true;
}

GpuModel::Room* GpuModel::region_of(const Stream& stream) {
  const SmSet& set = stream.queue[stream.head].sms;
  if (set.id == 0) return nullptr;
  const uint32_t domain = clients_[stream.client].domain;
  for (Region& region : regions_) {
    if (region.domain == domain && region.id == set.id) return &region.room;
  }
  return &regions_.emplace_back(Region{domain, set.id, room_of(set.sms)}).room;
}

std::array<GpuModel::Room*, 3> GpuModel::rooms_of(const Stream& stream) {
  Client& client = clients_[stream.client];
  return {&rooms_[client.domain], &client.room, region_of(stream)};
}

void GpuModel::give_room(const Stream& stream, uint32_t blocks) {
  const KernelShape& kernel = stream.queue[stream.head].kernel;
  const uint64_t threads = uint64_t{blocks} * kernel.threads;
  for (Room* room : rooms_of(stream)) {
    if (room == nullptr) continue;
    room->threads += threads;
    room->registers += threads * kernel.registers;
    room->shared_bytes += uint64_t{blocks} * kernel.shared_bytes;
    room->blocks += blocks;
  }
}

void GpuModel::take_room(const Stream& stream, uint32_t blocks) {
  const KernelShape& kernel = stream.queue[stream.head].kernel;
  const uint64_t threads = uint64_t{blocks} * kernel.threads;
  for (Room* room : rooms_of(stream)) {
    if (room == nullptr) continue;
    room->threads -= threads;
    room->registers -= threads * kernel.registers;
    room->shared_bytes -= uint64_t{blocks} * kernel.shared_bytes;
    room->blocks -= blocks;
  }
}

uint32_t GpuModel::blocks_that_fit(const Stream& stream) {
  const Op& op = stream.queue[stream.head];
  const KernelShape& kernel = op.kernel;
  const uint32_t sms = op.sms.id == 0 ? config_.sm_count : op.sms.sms;
  const uint64_t most =
      uint64_t{blocks_per_sm(kernel)} * std::min(sms, clients_[stream.client].sms);
  const uint64_t registers = uint64_t{kernel.registers} * kernel.threads;
  uint64_t fit =
      std::min<uint64_t>(stream.unplaced, most - std::min<uint64_t>(most, stream.running));
  for (const Room* room : rooms_of(stream)) {
    if (room == nullptr) continue;
    fit = std::min(fit, room->blocks);
    fit = std::min(fit, room->threads / std::max(1u, kernel.threads));
    if (registers > 0) fit = std::min(fit, room->registers / registers);
    if (kernel.shared_bytes > 0) fit = std::min(fit, room->shared_bytes / kernel.shared_bytes);
  }
  return static_cast<uint32_t>(fit);
}

void GpuModel::place_blocks(std::vector<Notice>& notices) {
  for (size_t i = 0; i < ready_.size();) {
    const StreamIndex s = ready_[i];
    Stream& stream = streams_[s];
    if (!may_run(stream.client)) {
      ++i;
      continue;
    }
    const uint32_t blocks = blocks_that_fit(stream);
    const Op& op = stream.queue[stream.head];
    // It may have run out of its own room alone: then others may have some.
    const bool confined = op.sms.id != 0 || clients_[stream.client].sms < config_.sm_count;
    if (blocks == 0 && !confined) return;
    if (blocks == 0) {
      ++i;
      continue;
    }
    if (stream.phase == Phase::kReady) {
      stream.phase = Phase::kRunning;
      notices.push_back({Notice::kStarted, {s, stream.done + 1}, stream.client, now_, op.tag});
    }
    const KernelShape& kernel = op.kernel;
    const float filled =
        static_cast<float>(blocks) / static_cast<float>(blocks_per_sm(kernel) * config_.sm_count);
    cohorts_.push_back({s, blocks, static_cast<double>(kernel.block_ns), kernel.bandwidth,
                        kernel.bandwidth * filled});
    take_room(stream, blocks);
    stream.running += blocks;
    stream.unplaced -= blocks;
    if (stream.unplaced > 0 && !confined) return;  // the rest goes before anyone behind it
    if (stream.unplaced > 0) {
      ++i;
      continue;
    }
    ready_.erase(ready_.begin() + static_cast<ptrdiff_t>(i));
  }
}

double GpuModel::bandwidth_in_use() const {
  double sum = 0;
  for (const Cohort& cohort : cohorts_) {
    if (may_run(streams_[cohort.stream].client)) sum += static_cast<double>(cohort.demand);
  }
  return sum;
}

bool GpuModel::may_run(ClientIndex client) const {
  return config_.mode == Mode::kMps || (on_gpu_ == client && now_ >= switch_end_);
}

// Time-slicing: whose turn is it? A slice ends early when its client has nothing to run, and is
// renewed while nobody else wants the GPU. True if another client's turn began.
bool GpuModel::choose_client() {
  if (config_.mode == Mode::kMps) return false;
  const auto count = static_cast<ClientIndex>(clients_.size());
  const bool wanted = on_gpu_ != kNobody && clients_[on_gpu_].kernels > 0;
  if (wanted) {
    if (slice_end_ < now_) {
      const TimeNs missed = (now_ - slice_end_) / config_.slice_ns + 1;
      slice_end_ += missed * config_.slice_ns;
    }
    if (slice_end_ > now_) return false;
  }
  const ClientIndex first = on_gpu_ == kNobody ? 0 : on_gpu_ + 1;
  for (ClientIndex i = 0; i < count; ++i) {
    const ClientIndex candidate = (first + i) % count;
    if (candidate == on_gpu_ || clients_[candidate].kernels == 0) continue;
    on_gpu_ = candidate;
    switch_end_ = now_ + config_.switch_ns;
    slice_end_ = switch_end_ + config_.slice_ns;
    return true;
  }
  if (wanted) slice_end_ += config_.slice_ns;
  return false;
}

}  // namespace heddle::sim
