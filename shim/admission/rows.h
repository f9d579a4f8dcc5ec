// Rows of launches (ipc/sparse.h): the shortest way of a leased client while others are active.
//
// While Header::sparse is set, a launch of a quiet kernel, one with no gap worth filling behind it,
// goes to the driver without a record, a number or a stay in the session. It has the client's
// launch priority. The thread's next record says how many such launches there were. `sparse` is
// read at a fixed place, as unobserved.h says. Any thread.
#pragma once

#include <algorithm>

#include "ipc/fault.h"
#include "ipc/sparse.h"
#include "shim/admission/kernels.h"
#include "shim/admission/unobserved.h"
#include "shim/evidence/streams.h"

namespace heddle::shim {

// The predicted time of each quiet kernel, 0 of all others. A kernel is quiet if the recorded
// launch that came last after it followed closely. Two bytes each, in units of 16 ns, so that a
// program's kernels share a few cache lines.
class Quiet {
 public:
  int64_t predicted_ns(uint32_t kernel) const {
    return kernel < ipc::kKernels ? times_[kernel].load(std::memory_order_relaxed) * kUnitNs : 0;
  }
  void set(uint32_t kernel, int64_t predicted_ns) {
    times_[kernel].store(
        static_cast<uint16_t>(std::min((predicted_ns + kUnitNs - 1) / kUnitNs, kMost)),
        std::memory_order_relaxed);
  }

 private:
  static constexpr int64_t kUnitNs = 16, kMost = UINT16_MAX;
  std::atomic<uint16_t> times_[ipc::kKernels] = {};
};
extern constinit Quiet quiet;

// This thread's row, and the kernel of its last launch under a lease.
extern __thread ipc::Telling telling __attribute__((tls_model("initial-exec")));
extern __thread uint32_t last_kernel __attribute__((tls_model("initial-exec")));

class Untold {
 public:
  // Converts to true if the launch is one of a row and needs no record. Not for cooperative ones.
  [[gnu::always_inline]] Untold(void* handle, const ipc::LaunchShape& shape) {
    const uint32_t word = word_page.header.sparse.load(std::memory_order_relaxed);
    const uint32_t wait = waits();
    if (word == 0 || !telling.has_room(wait) || anything_captures() ||
        any_detours.load(std::memory_order_relaxed)) {
      return;
    }
    const int64_t at_ns = now_ns();
    if (!telling.may_skip(at_ns, wait)) return;
    const KernelRef kernel = known_kernel(handle, shape);
    const int64_t predicted_ns = quiet.predicted_ns(kernel.index);
    if (kernel.exempt || predicted_ns == 0) return;
    telling.skip(at_ns, predicted_ns);
    kernel_ = last_kernel = kernel.index;
    priority_ = ipc::sparse_priority(word);
    HEDDLE_FAULT_POINT("row: skipped, not launched");
  }
  explicit operator bool() const { return kernel_ != ipc::kNoKernel; }

  // As of Leased (leased.h).
  int priority() const { return priority_; }
  void priority_refused() { quiet.set(kernel_, 0); }  // its next launch has a record, and remembers
  static CUresult launched(CUresult result) {
    HEDDLE_FAULT_POINT("row: launched, not told");
    return result;
  }

 private:
  uint32_t kernel_ = ipc::kNoKernel;
  int priority_ = 0;
};

// Adds to the record of a leased launch what it says of the row before it. `before`: the kernel of
// the stream's previous launch, + 1. tell_row() returns it, or 0 if that launch had no record.
uint32_t tell_row(const Inside& in, uint32_t before, bool sparse, ipc::RecordFields& record);
[[gnu::always_inline]] inline void tell_launch(const Inside& in, uint32_t& before,
                                               ipc::RecordFields& record) {
  const bool sparse = in.control().header.sparse.load(std::memory_order_relaxed) != 0;
  if (sparse || telling.untold() != 0) before = tell_row(in, before, sparse, record);
}

// The same for the record of a wait. Called after note_wait(), which makes every thread record its
// next launch.
inline void tell_wait(const Inside& in, ipc::RecordFields& record) {
  if (telling.untold() != 0) {
    record.kernel = last_kernel;
    record.untold = telling.untold();
    in.thread().unreported += telling.untold();
    HEDDLE_FAULT_POINT("row: ended by a wait, not told");
  }
  telling.tell_wait();
}

void forget_rows();  // in a forked child

}  // namespace heddle::shim
