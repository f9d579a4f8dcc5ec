// The blocks of the GPU model: what room they need and get, and how fast they run.
#include <algorithm>
#include <cmath>

#include "daemon/sim/gpu_model.h"

namespace heddle::sim {

namespace {

// A double has every whole number below it. A kernel that lasts until it is ended has more.
constexpr double kExactNs = 1LL << 53;

}  // namespace

GpuModel::Needs GpuModel::needs_of(const Stream& stream) const {
  const KernelShape& kernel = stream.queue[stream.head].op.kernel;
  Needs n;
  n.threads = kernel.threads;
  n.registers = kernel.threads * kernel.registers;
  n.shared_bytes = kernel.shared_bytes;
  n.per_sm = blocks_per_sm(kernel);
  n.wave =
      n.per_sm * (stream.region > 0 ? regions_[stream.region].room.sms.get() : config_.sm_count);
  n.least = static_cast<double>(kernel.saturation);
  const uint32_t most = n.per_sm * clients_[stream.client].room.sms.get();
  const uint32_t blocks = std::min({kernel.blocks, most, n.wave});
  n.alone = std::max(n.least, static_cast<double>(blocks) / n.wave);
  return n;
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
  part_waves();
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

double GpuModel::gpu_ns(ClientIndex client) const {
  const Client& c = clients_[client];
  return c.gpu_ns + (c.blocks > 0 ? part_ns_ - c.part_at : 0);
}

void GpuModel::count_blocks(ClientIndex client, uint32_t more, uint32_t less) {
  Client& c = clients_[client];
  c.gpu_ns = gpu_ns(client);
  c.part_at = part_ns_;
  if (c.blocks > 0) --sharers_;
  c.blocks += more - less;
  if (c.blocks > 0) ++sharers_;
}

void GpuModel::give_room(const Stream& stream, uint32_t blocks) {
  count_blocks(stream.client, 0, blocks);
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
  count_blocks(stream.client, blocks, 0);
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
  const uint32_t most = needs.per_sm * room.sms.get();
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
         room.shared_bytes < needs.shared_bytes || stream.running >= needs.per_sm * room.sms.get();
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
// small kernel beside a large one much, the large one hardly. Blocks of an SM set lie beside those
// of the same set and of launches that may run anywhere.
void GpuModel::share_sms() {
  for (Region& region : regions_) region.fill = 0;
  double anywhere = 0;  // of region 0
  for (const Cohort& cohort : cohorts_) {
    const Stream& stream = streams_[cohort.stream];
    if (!may_run(stream.client)) continue;
    if (stream.region == 0) {
      anywhere += cohort.fill;
    } else {
      regions_[stream.region].fill += cohort.fill;
    }
  }
  double everywhere = anywhere;
  for (size_t i = 1; i < regions_.size(); ++i) {
    everywhere += regions_[i].fill * regions_[i].room.sms.get() / config_.sm_count;
  }
  StreamIndex of = kNone;
  double speed = 0;  // of all its blocks
  for (Cohort& cohort : cohorts_) {
    if (cohort.stream != of) {
      of = cohort.stream;
      const Stream& stream = streams_[of];
      const Needs& needs = stream.needs;
      const double beside =
          stream.region > 0 ? regions_[stream.region].fill + anywhere : everywhere;
      speed =
          may_run(stream.client) ? std::min(1.0, needs.alone / std::max(beside, needs.least)) : 0;
    }
    cohort.speed = speed;
  }
}

// A kernel that has the GPU to itself: its full waves, the last one left out, are as one that takes
// as long as all, until something else happens. Whole ns at full speed, so that no rounding
// differs.
void GpuModel::join_waves() {
  Cohort* only = nullptr;
  for (Cohort& cohort : cohorts_) {
    if (cohort.speed == 0) continue;
    if (only != nullptr) return;
    only = &cohort;
  }
  if (only == nullptr || only->speed < 1 || only->left_ns != std::floor(only->left_ns)) return;
  Stream& stream = streams_[only->stream];
  if (stream.unplaced <= only->blocks) return;
  for (StreamIndex s : ready_) {
    if (s != only->stream && may_run(streams_[s].client)) return;
  }
  const uint32_t behind = (stream.unplaced - 1) / only->blocks;
  const double all_ns = only->left_ns + behind * wave_ns(stream);
  if (all_ns >= kExactNs) return;
  only->left_ns = all_ns;
  stream.behind = behind;
  stream.unplaced -= behind * only->blocks;
  joined_ = only->stream;
}

// The same at now_ as if each wave had been placed when the one before it ended.
void GpuModel::part_waves() {
  if (joined_ == kNone) return;
  Stream& stream = streams_[joined_];
  Cohort& cohort = *std::find_if(cohorts_.begin(), cohorts_.end(),
                                 [&](const Cohort& c) { return c.stream == joined_; });
  joined_ = kNone;
  const double wave = wave_ns(stream), waves = cohort.left_ns / wave;
  // A wave that ends right now is over if advance() has been here, and else is still to end.
  const double whole = settled_ == now_ ? std::ceil(waves) - 1 : std::floor(waves);
  const uint32_t behind = std::min(stream.behind, static_cast<uint32_t>(std::max(0.0, whole)));
  stream.unplaced += behind * cohort.blocks;
  cohort.left_ns -= behind * wave;
  if (behind < stream.behind) renew_slice(now_ - static_cast<TimeNs>(wave - cohort.left_ns));
}

void GpuModel::pass_time(TimeNs to) {
  if (to == now_) return;
  next_known_ = false;
  const auto passed_ns = static_cast<double>(to - now_);
  if (config_.mode == Mode::kMps) {
    if (sharers_ > 0 && standing_ == 0) part_ns_ += passed_ns / sharers_;
  } else if (on_gpu_ != kNobody && may_run(on_gpu_) && clients_[on_gpu_].blocks > 0) {
    clients_[on_gpu_].gpu_ns += passed_ns;
  }
  for (Cohort& cohort : cohorts_) {
    cohort.left_ns -= passed_ns * cohort.speed;
  }
  now_ = to;
}

}  // namespace heddle::sim
