#include "bench/sim/mem_ops.h"

#include <signal.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace heddle::sim {
namespace {

constexpr auto kLook = std::chrono::microseconds(10);

// Measured on an H100: CUDA_DEVICE_MAX_CONNECTIONS, or 8; under MPS 2.
uint32_t hardware_queues() {
  const char* const wanted = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  if (wanted != nullptr && atoi(wanted) > 0) return static_cast<uint32_t>(atoi(wanted));
  const char* const mode = getenv("HEDDLE_SIM_MODE");
  return mode != nullptr && strcmp(mode, "timeslice") == 0 ? 8 : 2;
}

template <class Word>
bool satisfied(const MemOp& op) {
  const Word now = __atomic_load_n(static_cast<const Word*>(op.word), __ATOMIC_ACQUIRE);
  const Word value = static_cast<Word>(op.value);
  switch (op.kind) {
    case MemOp::kGeq:  // cyclic
      return static_cast<Word>(now - value) >> (8 * sizeof(Word) - 1) == 0;
    case MemOp::kEq:
      return now == value;
    case MemOp::kAnd:
      return (now & value) != 0;
    case MemOp::kNor:
      return static_cast<Word>(~(now | value)) != 0;
    case MemOp::kWrite:
    case MemOp::kCall:
      break;
  }
  __atomic_store_n(static_cast<Word*>(op.word), value, __ATOMIC_RELEASE);
  return true;
}

bool done(const MemOp& op) { return op.wide ? satisfied<uint64_t>(op) : satisfied<uint32_t>(op); }

}  // namespace

MemOps::MemOps(Link& link) : link_(link), queues_(hardware_queues()) {}

Lane* MemOps::lane_for(uint16_t stream_slot) {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::find_if(free_.begin(), free_.end(), [](Lane* lane) { return lane->holds.empty(); });
  if (found == free_.end()) return nullptr;
  Lane* const lane = *found;
  free_.erase(found);
  lane->stream_slot = stream_slot;
  return lane;
}

Lane* MemOps::make_lane(uint16_t slot, uint64_t issued, uint16_t stream_slot) {
  const std::lock_guard lock(mutex_);
  Lane& lane = lanes_.emplace_back();
  lane.slot = slot;
  lane.stream_slot = stream_slot;
  lane.promised = lane.completed = issued;
  return &lane;
}

void MemOps::give_back(Lane* lane) {
  const std::lock_guard lock(mutex_);
  free_.push_back(lane);
}

uint64_t MemOps::promise(Lane& lane, uint64_t seq, std::vector<MemOp> ops) {
  const std::lock_guard lock(mutex_);
  lane.holds.push_back({seq, std::move(ops)});
  pending_.fetch_add(1);
  if (!running_) start();
  work_.notify_one();
  return ++lane.promised;
}

void MemOps::start() {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([this] { run(); }).detach();
  std::thread([this] { run_calls(); }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  running_ = true;
}

bool MemOps::pending(const Lane& lane) {
  const std::lock_guard lock(mutex_);
  return !lane.holds.empty();
}

uint64_t MemOps::stopped(Lane& stop) {
  const std::lock_guard lock(mutex_);
  if (standing() < queues_) return 0;
  stop_ = &stop;
  if (stop.promised == stop.completed) ++stop.promised;
  return stop.promised;
}

void MemOps::run() {
  prctl(PR_SET_TIMERSLACK, 1);
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [this] { return pending(); });
    for (Lane& lane : lanes_) advance(lane);
    if (stop_ != nullptr && stop_->promised != stop_->completed && standing() < queues_) {
      complete(*stop_);
    }
    lock.unlock();
    std::this_thread::sleep_for(kLook);
    lock.lock();
  }
}

// One after the other, whatever their streams.
void MemOps::run_calls() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wanted_.wait(lock, [this] { return !calls_.empty(); });
    Lane::Hold& hold = *calls_.front();
    calls_.pop_front();
    const MemOp op = hold.ops[hold.next];
    lock.unlock();
    op.call(op.word);
    lock.lock();
    hold.call = Lane::Hold::kDone;
  }
}

bool MemOps::pass(Lane::Hold& hold) {
  const MemOp& op = hold.ops[hold.next];
  if (op.kind != MemOp::kCall) return done(op);
  if (hold.call == Lane::Hold::kDone) return true;
  if (hold.call == Lane::Hold::kNot) {
    hold.call = Lane::Hold::kWanted;
    calls_.push_back(&hold);
    wanted_.notify_one();
  }
  return false;
}

// The operations of a hold take effect one by one, in their order.
void MemOps::advance(Lane& lane) {
  while (is_head(lane)) {
    Lane::Hold& hold = lane.holds.front();
    while (hold.next < hold.ops.size() && pass(hold)) ++hold.next;
    if (hold.next < hold.ops.size()) return;
    lane.holds.pop_front();
    pending_.fetch_sub(1);
    complete(lane);
  }
}

bool MemOps::is_head(const Lane& lane) const {
  return !lane.holds.empty() && link_.done(lane.stream_slot) + 1 >= lane.holds.front().seq;
}

uint32_t MemOps::standing() const {
  return static_cast<uint32_t>(std::count_if(lanes_.begin(), lanes_.end(), [&](const Lane& lane) {
    if (!is_head(lane)) return false;
    const Lane::Hold& hold = lane.holds.front();
    return std::any_of(hold.ops.begin() + static_cast<ptrdiff_t>(hold.next), hold.ops.end(),
                       [](const MemOp& op) { return op.kind < MemOp::kWrite && !done(op); });
  }));
}

void MemOps::complete(Lane& lane) {
  Command marker;
  marker.stream = lane.slot;
  marker.seq = ++lane.completed;
  link_.push(marker);
}

}  // namespace heddle::sim
