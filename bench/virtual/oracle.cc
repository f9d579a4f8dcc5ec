#include "bench/virtual/oracle.h"

#include <algorithm>

namespace heddle::bench {
namespace {

// The machine numbers clients from 0, the core from 1.
size_t index_of(core::ClientId client) { return static_cast<size_t>(client - 1); }

}  // namespace

// The most important never ask; all others always do.
core::AllowanceVerdict Oracle::window(core::Gpu& gpu, core::ClientId client) const {
  core::ClientView me, other;
  if (!gpu.client(client, me)) return {};
  for (const core::ClientId id : gpu.clients()) {
    if (gpu.client(id, other) && other.priority < me.priority) {
      return {core::HookResult::kDecided, false, core::Allowance::kGated};
    }
  }
  return {core::HookResult::kDecided, false, core::Allowance::kLeased};
}

core::AllowanceVerdict Oracle::client_init(core::Gpu& gpu, core::ClientId client) {
  // Whoever was the most important so far may not be any more.
  for (const core::ClientId id : gpu.clients()) {
    if (id != client) gpu.set_allowance(id, window(gpu, id).allowed, 0);
  }
  return window(gpu, client);
}

core::AllowanceVerdict Oracle::client_active(core::Gpu& gpu, core::ClientId client) {
  return window(gpu, client);
}

core::AllowanceVerdict Oracle::client_idle(core::Gpu& gpu, core::ClientId client) {
  return window(gpu, client);
}

core::EnqueueVerdict Oracle::enqueue(core::Gpu& gpu, core::LaunchId launch) {
  gpu.queue_insert(gpu.queue_create("all"), launch, 0);
  waiting_.push_back(launch);
  return {core::HookResult::kDecided, false};
}

bool Oracle::fits(core::Gpu& gpu, const core::LaunchView& launch, double us) const {
  const bool sliced = gpu_.mode == sim::Mode::kTimeSlice;
  const double switches_us = sliced ? 2 * static_cast<double>(gpu_.switch_ns) / 1e3 : 0;
  const double needs_us =
      us + switches_us + round_trip_us_ + static_cast<double>(gpu_.launch_ns) / 1e3;
  core::ClientView other;
  for (const core::ClientId id : gpu.clients()) {
    const size_t index = index_of(id);
    // One at a time, its own too: side by side they would last longer than is known.
    if (!gpu.client(id, other) || machine_.on_gpu(index)) return false;
    if (other.priority >= launch.priority) continue;
    const sim::TimeNs next = machine_.next_launch(index);
    if (next != sim::kNever && static_cast<double>(next - gpu.now()) / 1e3 < needs_us) return false;
  }
  return true;
}

core::DispatchVerdict Oracle::dispatch(core::Gpu& gpu) {
  core::DispatchVerdict verdict;
  verdict.result = core::HookResult::kDecided;
  core::LaunchView view;
  double best_us = 0;
  int best_priority = core::kPriorityCount;
  std::erase_if(waiting_, [&](core::LaunchId id) { return !gpu.launch(id, view); });
  for (const core::LaunchId id : waiting_) {
    gpu.launch(id, view);
    const double us = machine_.asked_us(index_of(view.client));
    const bool better =
        view.priority < best_priority || (view.priority == best_priority && us > best_us);
    if (!better || !fits(gpu, view, us)) continue;
    verdict.run = id;
    best_us = us;
    best_priority = view.priority;
  }
  return verdict;
}

}  // namespace heddle::bench
