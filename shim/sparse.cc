#include "shim/sparse.h"

namespace heddle::shim {

constinit Quiet quiet;
constinit __thread ipc::Telling telling;
constinit __thread uint32_t untold_kernel = ipc::kNoKernel;

uint32_t tell_row(const Inside& in, uint32_t before, bool sparse, ipc::RecordFields& record) {
  const uint32_t wait = waits(), untold = telling.untold();
  const auto at_ns = static_cast<int64_t>(record.at_ns);
  const auto predicted_ns = [&](uint32_t kernel) {
    if (kernel >= ipc::kKernels) return int64_t{0};
    const auto& us = in.control().kernels[kernel].predicted_us;
    return static_cast<int64_t>(us.load(std::memory_order_relaxed) * 1e3F);
  };
  if (telling.adjacent(wait) && before - 1 < ipc::kKernels) {
    quiet.set(before - 1, telling.was_quiet(at_ns) ? predicted_ns(before - 1) : 0);
  }
  in.thread().unreported += untold;
  telling.tell(at_ns, predicted_ns(record.kernel), sparse && quiet.predicted_ns(record.kernel) != 0,
               wait);
  record.untold = untold;
  record.may_follow = static_cast<uint16_t>(telling.may_follow());
  return untold == 0 ? before : 0;
}

}  // namespace heddle::shim
