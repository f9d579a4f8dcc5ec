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

}  // namespace

GpuModel::GpuModel(const GpuConfig& config) : config_(config), gpu_(room_of(config.sm_count)) {}

GpuModel::Room GpuModel::room_of(uint32_t sms) const {
  return {sms * config_.threads_per_sm, sms * config_.registers_per_sm,
          sms * config_.shared_bytes_per_sm, sms * config_.blocks_per_sm, sms};
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

size_t GpuModel::region_of(ClientIndex client, const SmSet& set) {
  if (set.id == 0) return 0;
  if (config_.mode == Mode::kMps) client = kNobody;
  const auto same = std::find_if(regions_.begin(), regions_.end(), [&](const Region& r) {
    return r.client == client && r.id == set.id;
  });
  if (same != regions_.end()) return static_cast<size_t>(same - regions_.begin());
  regions_.push_back({client, set.id, room_of(set.sms)});
  return regions_.size() - 1;
}

ClientIndex GpuModel::add_client(uint32_t sm_limit) {
  assert(sm_limit <= config_.sm_count);
  ClientIndex index = 0;
  while (index < clients_.size() && clients_[index].live) ++index;
  if (index == clients_.size()) clients_.emplace_back();
  clients_[index] = {true, 0, room_of(sm_limit == 0 ? config_.sm_count : sm_limit)};
  return index;
}

void GpuModel::remove_client(TimeNs at, ClientIndex client) {
  for (StreamIndex s = 0; s < streams_.size(); ++s) {
    if (streams_[s].open && streams_[s].client == client) close_stream(at, s);
  }
  clients_[client].live = false;
  if (on_gpu_ == client) on_gpu_ = kNobody;
  dirty_ = true;
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
  assert(op.sms.id == 0 || (op.sms.sms > 0 && op.sms.sms <= config_.sm_count));
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
}

TimeNs GpuModel::find_next() const {
  TimeNs next = kNever;
  for (StreamIndex s : active_) {
    const Stream& stream = streams_[s];
    if (stream.phase != Phase::kQueued && stream.phase_end > now_) {
      next = std::min(next, stream.phase_end);
    }
  }
  double least = std::numeric_limits<double>::infinity();
  for (const Cohort& cohort : cohorts_) {
    if (cohort.speed > 0) least = std::min(least, cohort.left_ns / cohort.speed);
  }
  if (least < std::numeric_limits<double>::infinity()) {
    next = std::min(next, now_ + static_cast<TimeNs>(std::ceil(std::max(0.0, least))));
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
  dirty_ = next_known_ = false;
  bool again = true;
  while (again) {
    finish_cohorts(notices);
    again = move_heads(notices);  // what completed may be what another stream waits for
    again |= choose_client();
    again |= place_blocks(notices);
  }
  if (unshared_ || now_ == switch_end_) share_sms();
  unshared_ = false;
}

void GpuModel::pass_time(TimeNs to) {
  if (to == now_) return;
  next_known_ = false;
  for (Cohort& cohort : cohorts_) {
    cohort.left_ns -= static_cast<double>(to - now_) * cohort.speed;
  }
  now_ = to;
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
  stream.region = region_of(stream.client, op.sms);
  stream.needs = needs_of(stream);
  const auto behind = std::find_if(ready_.begin(), ready_.end(), [&](StreamIndex other) {
    return streams_[other].head_priority > stream.head_priority;
  });
  ready_.insert(behind, s);
}

GpuModel::Needs GpuModel::needs_of(const Stream& stream) const {
  const KernelShape& kernel = stream.queue[stream.head].op.kernel;
  Needs n;
  n.threads = kernel.threads;
  n.registers = kernel.threads * kernel.registers;
  n.shared_bytes = kernel.shared_bytes;
  n.per_sm = blocks_per_sm(kernel);
  n.wave = n.per_sm * (stream.region > 0 ? regions_[stream.region].room.sms : config_.sm_count);
  n.least = static_cast<double>(kernel.saturation);
  const uint32_t most = n.per_sm * clients_[stream.client].room.sms;
  const uint32_t blocks = std::min({kernel.blocks, most, n.wave});
  n.alone = std::max(n.least, static_cast<double>(blocks) / n.wave);
  return n;
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

void GpuModel::finish_cohorts(std::vector<Notice>& notices) {
  for (size_t i = 0; i < cohorts_.size();) {
    if (cohorts_[i].left_ns > kDoneNs || !may_run(streams_[cohorts_[i].stream].client)) {
      ++i;
      continue;
    }
    const Cohort cohort = cohorts_[i];
    Stream& stream = streams_[cohort.stream];
    unshared_ = true;
    cohorts_.erase(cohorts_.begin() + static_cast<ptrdiff_t>(i));
    give_room(stream, cohort.blocks);
    stream.running -= cohort.blocks;
    if (stream.running == 0 && stream.unplaced == 0) finish_head(cohort.stream, notices);
  }
}

void GpuModel::end_kernel(StreamIndex s) {
  for (Cohort& cohort : cohorts_) {
    if (cohort.stream == s) cohort.left_ns = 0;
  }
  Stream& stream = streams_[s];
  stream.queue[stream.head].op.kernel.block_ns = 0;  // of the blocks that found no room yet
  dirty_ = true;
}

std::array<GpuModel::Room*, 3> GpuModel::rooms(const Stream& stream) {
  return {&clients_[stream.client].room,
          stream.region > 0 ? &regions_[stream.region].room : nullptr,
          config_.mode == Mode::kMps ? &gpu_ : nullptr};
}

void GpuModel::give_room(const Stream& stream, uint32_t blocks) {
  const Needs& needs = stream.needs;
  for (Room* room : rooms(stream)) {
    if (room == nullptr) continue;
    room->threads += blocks * needs.threads;
    room->registers += blocks * needs.registers;
    room->shared_bytes += blocks * needs.shared_bytes;
    room->blocks += blocks;
  }
}

void GpuModel::take_room(const Stream& stream, uint32_t blocks) {
  const Needs& needs = stream.needs;
  for (Room* room : rooms(stream)) {
    if (room == nullptr) continue;
    room->threads -= blocks * needs.threads;
    room->registers -= blocks * needs.registers;
    room->shared_bytes -= blocks * needs.shared_bytes;
    room->blocks -= blocks;
  }
}

// Of the stream's unplaced blocks.
uint32_t GpuModel::blocks_that_fit(const Stream& stream, const Room& room) {
  const Needs& needs = stream.needs;
  const uint32_t most = needs.per_sm * room.sms;
  uint32_t fit = std::min(stream.unplaced, room.blocks);
  fit = std::min(fit, most - std::min(most, stream.running));
  if (needs.threads > 0) fit = std::min(fit, room.threads / needs.threads);
  if (needs.registers > 0) fit = std::min(fit, room.registers / needs.registers);
  if (needs.shared_bytes > 0) fit = std::min(fit, room.shared_bytes / needs.shared_bytes);
  return fit;
}

// For one block more.
bool GpuModel::too_little(const Stream& stream, const Room& room) {
  const Needs& needs = stream.needs;
  return room.blocks == 0 || room.threads < needs.threads || room.registers < needs.registers ||
         room.shared_bytes < needs.shared_bytes || stream.running >= needs.per_sm * room.sms;
}

// A kernel that found too little room keeps those behind it out of that room, and of no other.
// True if some blocks that were placed take no time.
bool GpuModel::place_blocks(std::vector<Notice>& notices) {
  bool over = false;
  ++pass_;
  for (size_t i = 0; i < ready_.size() && gpu_.short_in != pass_;) {
    const StreamIndex s = ready_[i];
    Stream& stream = streams_[s];
    const std::array<Room*, 3> all = rooms(stream);
    uint32_t blocks = may_run(stream.client) ? stream.unplaced : 0;
    Room least = *all[0];
    for (const Room* room : all) {
      if (room == nullptr) continue;
      if (room->short_in == pass_) blocks = 0;
      least.threads = std::min(least.threads, room->threads);
      least.registers = std::min(least.registers, room->registers);
      least.shared_bytes = std::min(least.shared_bytes, room->shared_bytes);
      least.blocks = std::min(least.blocks, room->blocks);
      least.sms = std::min(least.sms, room->sms);
    }
    if (blocks > 0) blocks = blocks_that_fit(stream, least);
    if (blocks > 0) over |= place(s, blocks, notices);
    if (stream.unplaced == 0) {
      ready_.erase(ready_.begin() + static_cast<ptrdiff_t>(i));
      continue;
    }
    ++i;
    for (Room* room : all) {
      if (room != nullptr && too_little(stream, *room)) room->short_in = pass_;
    }
  }
  return over;
}

// True if the blocks take no time.
bool GpuModel::place(StreamIndex s, uint32_t blocks, std::vector<Notice>& notices) {
  Stream& stream = streams_[s];
  const Op& op = stream.queue[stream.head].op;
  if (stream.phase == Phase::kReady) {
    stream.phase = Phase::kRunning;
    notices.push_back({Notice::kStarted, {s, stream.done + 1}, stream.client, now_, op.tag});
  }
  const uint32_t wave = stream.needs.wave;
  cohorts_.push_back({s, blocks, static_cast<double>(op.kernel.block_ns), 0,
                      static_cast<double>(std::min(blocks, wave)) / wave});
  unshared_ = true;
  take_room(stream, blocks);
  stream.running += blocks;
  stream.unplaced -= blocks;
  return op.kernel.block_ns == 0;
}

// An SM is busy once a kernel's `saturation` of it is filled; from there on blocks share it. Since
// block_ns is what they take with the kernel alone on the GPU, only what others add slows them: a
// small kernel beside a large one much, the large one hardly. Blocks of an SmSet lie beside those
// of the same set and of launches that may run anywhere.
void GpuModel::share_sms() {
  for (Region& region : regions_) region.fill = 0;
  double anywhere = 0;  // of region 0
  for (const Cohort& cohort : cohorts_) {
    const Stream& stream = streams_[cohort.stream];
    if (!may_run(stream.client)) continue;
    (stream.region > 0 ? regions_[stream.region].fill : anywhere) += cohort.fill;
  }
  double everywhere = anywhere;
  for (size_t i = 1; i < regions_.size(); ++i) {
    everywhere += regions_[i].fill * regions_[i].room.sms / config_.sm_count;
  }
  for (Cohort& cohort : cohorts_) {
    const Stream& stream = streams_[cohort.stream];
    const double beside = stream.region > 0 ? regions_[stream.region].fill + anywhere : everywhere;
    const Needs& needs = stream.needs;
    cohort.speed =
        may_run(stream.client) ? std::min(1.0, needs.alone / std::max(beside, needs.least)) : 0;
  }
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
    unshared_ = true;
    switch_end_ = now_ + config_.switch_ns;
    slice_end_ = switch_end_ + config_.slice_ns;
    return true;
  }
  if (wanted) slice_end_ += config_.slice_ns;
  return false;
}

}  // namespace heddle::sim
