#include "shim/admission/rows.h"

#include "shim/admission/gate.h"

namespace heddle::shim {

constinit Quiet quiet;
constinit __thread ipc::Telling telling;
constinit __thread uint32_t last_kernel = ipc::kNoKernel;

uint32_t tell_row(const Inside& in, uint32_t before, bool sparse, ipc::RecordFields& record) {
  const uint32_t wait = waits(), untold = telling.untold(), kernel = record.kernel;
  const auto at_ns = static_cast<int64_t>(record.at_ns);
  const auto* hints = in.hints(record.device).kernels;
  const auto predicted_ns = [&](uint32_t of) {
    const float us =
        of < ipc::kKernels ? hints[of].predicted_us.load(std::memory_order_relaxed) : 0;
    return static_cast<int64_t>(us * 1e3F);
  };
  // A kernel with a special hint, or one that the driver refused at a priority, is never quiet.
  const auto may_be = [&](uint32_t of) {
    return of < ipc::kKernels && hints[of].special.load(std::memory_order_relaxed) == 0 &&
           !unraised.has(of);
  };
  if (telling.says_of_last(wait) && last_kernel < ipc::kKernels) {
    const bool is_quiet = telling.follows_closely(at_ns) && may_be(last_kernel);
    quiet.set(last_kernel, is_quiet ? predicted_ns(last_kernel) : 0);
  }
  in.thread().unreported += untold;
  if (untold != 0) {
    record.duration_us = static_cast<float>(telling.backlog_ns(at_ns, wait)) * 1e-3F;
  }
  telling.tell(at_ns, predicted_ns(kernel), sparse && quiet.predicted_ns(kernel) != 0, wait);
  last_kernel = kernel;
  record.untold = untold;
  if (untold != 0) HEDDLE_FAULT_POINT("row: counted, not told");
  record.may_follow = static_cast<uint16_t>(telling.may_follow());
  return untold == 0 ? before : 0;
}

void forget_rows() {
  telling = {};
  last_kernel = ipc::kNoKernel;
  for (uint32_t kernel = 0; kernel < ipc::kKernels; ++kernel) quiet.set(kernel, 0);
}

}  // namespace heddle::shim
