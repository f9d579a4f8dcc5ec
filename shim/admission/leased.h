// The short way of the usual launch under a lease: it is posted, and goes.
//
// A launch that needs more takes a Turn (gate.h), which would do the same for this one. This way
// has half the code: the application's own work evicts most of the shim from the caches, so that
// the cost of a launch is the cache lines of code and data that it touches.
#pragma once

#include "shim/admission/gate.h"
#include "shim/admission/kernels.h"
#include "shim/admission/post.h"

namespace heddle::shim {

class Leased {
 public:
  // Posts the launch if this way is open to it. Otherwise this does nothing, and it takes a Turn.
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

  // Called once, with the driver's result. Returns it.
  CUresult launched(CUresult result);

 private:
  bool post(KernelRef kernel);
  void mark();

  Inside in_{nullptr};
  const StreamRef ref_;
  StreamSlot* stream_ = nullptr;  // nullptr: not posted
  // Initialized only if the launch is posted:
  int64_t at_ns_;
  uint64_t seq_;
  uint32_t kernel_;
  uint32_t before_;  // the kernel of the stream's previous launch, + 1; 0: it had no record
  float predicted_us_;
  int priority_;
};

[[gnu::always_inline]] inline CUresult Leased::launched(CUresult result) {
  HEDDLE_FAULT_POINT("gate: launched, not recorded");
  in_.thread().in_hand.store(0, std::memory_order_release);
  // The driver's locked instructions serve as the fence between the record and this look at
  // `sleeping`. If they should not, a sleeping daemon hears of the launch a little later.
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
