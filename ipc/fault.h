// Fault points: lines at which a test may kill, stop or end the process that runs them. They name
// the steps of the slot, gate and ring protocols, and of attaching and leaving. They compile to
// nothing except with HEDDLE_FAULTS, which tests/fault defines.
#pragma once

#ifdef HEDDLE_FAULTS
extern "C" void heddle_fault_point(const char* name);
#define HEDDLE_FAULT_POINT(name) heddle_fault_point(name)
#else
#define HEDDLE_FAULT_POINT(name) static_cast<void>(0)
#endif

namespace heddle::ipc {

// The default hook of ipc/ring.h, ipc/slot.h and ipc/gate.h; tests may pass their own.
struct FaultPoint {
  static void at([[maybe_unused]] const char* name) { HEDDLE_FAULT_POINT(name); }
};

}  // namespace heddle::ipc
