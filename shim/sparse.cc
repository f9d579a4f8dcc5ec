#include "shim/sparse.h"

namespace heddle::shim {

constinit KernelSet quiet;
constinit __thread ipc::Telling telling;
constinit __thread uint32_t untold_kernel = ipc::kNoKernel;

uint32_t tell_row(const Inside& in, const StreamSlot& stream, uint32_t before, bool sparse,
                  ipc::RecordFields& record) {
  const uint32_t wait = waits(), untold = telling.untold();
  if (telling.adjacent(wait) && before - 1 < ipc::kKernels) {
    const int64_t interval_ns =
        static_cast<int64_t>(record.at_ns) - stream.launched_ns.load(std::memory_order_relaxed);
    const auto& predicted_us = in.control().kernels[before - 1].predicted_us;
    if (ipc::is_quiet(interval_ns, predicted_us.load(std::memory_order_relaxed))) {
      quiet.add(before - 1);
    } else {
      quiet.remove(before - 1);
    }
  }
  in.thread().unreported += untold;
  telling.tell(sparse && quiet.has(record.kernel), wait);
  record.untold = untold;
  record.may_follow = static_cast<uint16_t>(telling.may_follow());
  return untold == 0 ? before : 0;
}

}  // namespace heddle::shim
