// The usual launch of a client with a lease: posted, and nothing else to be done about it.
//
// What needs more, or may, takes a Turn (gate.h), which would do the same here. This way is half
// as long: an application's own work leaves little of the shim in the caches, so that a launch
// costs its lines of code and data.
#pragma once

#include "shim/admission/gate.h"
#include "shim/admission/kernels.h"
#include "shim/admission/post.h"

namespace heddle::shim {

class Leased {
 public:
  // Posts the launch if it is such a one; otherwise nothing has happened, and it takes a Turn.
  [[gnu::always_inline]] Leased(StreamRef ref, void* handle, const ipc::LaunchShape& shape)
      : ref_(ref) {
    if (guard().current.load(std::memory_order_relaxed) == nullptr) return;  // no daemon
    if (!post(known_kernel(handle, shape))) [[unlikely]]
      in_.leave();
  }
  Leased(const Leased&) = delete;
  Leased& operator=(const Leased&) = delete;
  explicit operator bool() const { return stream_ != nullptr; }

  // CU_LAUNCH_ATTRIBUTE_PRIORITY for this launch; 0: as the application has it.
  int priority() const { return priority_; }

  // The driver refused the launch with that priority, and took it without.
  void priority_refused() {
    unraised.add(kernel_);
    in_.count(&ipc::ClientMemory::Counters::marker_errors);
  }

  // Called once, with what the driver said. Returns it.
  CUresult launched(CUresult result);

 private:
  bool post(KernelRef kernel);
  void mark();

  Inside in_{nullptr};
  const StreamRef ref_;
  StreamSlot* stream_ = nullptr;  // nullptr: not posted
  // What follows is set when it is.
  int64_t at_ns_;
  uint64_t seq_;
  uint32_t kernel_;
  uint32_t before_;  // the kernel of the stream's launch before this one, + 1; 0: not told
  float predicted_us_;
  int priority_;
};

[[gnu::always_inline]] inline CUresult Leased::launched(CUresult result) {
  HEDDLE_FAULT_POINT("gate: launched, not recorded");
  in_.thread().in_hand.store(0, std::memory_order_release);
  // The driver, which locks, was the fence; and a daemon that has to wake up is late in any case.
  in_.ring(ipc::kWakeOnAny, true);
  if (result == CUDA_SUCCESS) [[likely]] {
    if (in_.contended()) [[unlikely]]
      mark();
    stream_->launched_ns.store(at_ns_, std::memory_order_relaxed);
  } else {
    ipc::RecordFields record;
    fill_record(record, *stream_, seq_, kernel_, at_ns_);
    in_.post(failure_of(record), true);
  }
  return result;
}

}  // namespace heddle::shim
