// Fault points: where a test may kill, stop or end whoever runs the line. They name the steps of
// the slot and ring protocols, and of attaching and leaving. Nothing in any build but the one that
// tests/fault makes with HEDDLE_FAULTS.
#pragma once

#ifdef HEDDLE_FAULTS
extern "C" void heddle_fault_point(const char* name);
#define HEDDLE_FAULT_POINT(name) heddle_fault_point(name)
#else
#define HEDDLE_FAULT_POINT(name) static_cast<void>(0)
#endif

namespace heddle::ipc {

// The hook of ipc/ring.h and ipc/slot.h, unless a test brings its own.
struct FaultPoint {
  static void at([[maybe_unused]] const char* name) { HEDDLE_FAULT_POINT(name); }
};

}  // namespace heddle::ipc
