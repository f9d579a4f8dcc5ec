// Decisions of the scheduler core. Plain structs like core::Event. The core's driver carries them
// out: the server writes shared memory, the simulator starts a launch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "daemon/core/event.h"

namespace heddle::core {

inline constexpr uint16_t kDecisionVersion = 1;

enum class DecisionKind : uint16_t {
  kGrant,      // ticket `ask_seq` of `client` goes
  kAllowance,  // the client's standing allowance changes
  kHint,       // of kernel `kernel`: its predicted time, how often it is timed, and where it runs
  kStop,       // the client's kernels are stopped or go on; and its time slice
  kPark,       // the client's memory is to leave the device, or to come back
};

// Who decided, for `heddle status` and `heddle explain`.
enum class Decider : uint8_t { kPolicy, kBuiltin, kStarvation, kBypass };

struct Decision {
  uint16_t version = kDecisionVersion;
  DecisionKind kind = DecisionKind::kGrant;
  uint8_t device = 0;
  Decider decider = Decider::kBuiltin;
  TimeNs at = 0;
  ClientId client = 0;
  uint32_t ask_seq = 0;
  uint16_t thread = 0;
  int8_t launch_priority = 0;  // CU_LAUNCH_ATTRIBUTE_PRIORITY, 0: none
  uint8_t managed = 1;         // kAllowance: 0 when the policy refused the client
  SmSet sm_set{};              // kGrant: the launch's; kAllowance: of launches without a ticket's
                               // answer. Empty: all SMs that the client has
  Allowance allowed = Allowance::kGated;  // kAllowance
  bool gates_soon = false;                // kAllowance: its launches may later stand at gates,
  bool gates_inside = false;  // and its long graphs need gates inside, to be stopped there
  bool kernels_ask = false;   // kAllowance: only long graphs stand at gates, else threads wait
  uint32_t kernel = 0;        // kHint
  float predicted_us = 0;     // kHint; 0: unknown
  uint8_t measure = 0;        // kHint: one in so many launches is timed; 0: now and then
  GroupCount size{};          // kHint: of its launches' SM sets; 0: all
  bool raised = false;        // kHint: its launches have launch_priority
  bool off = false;           // kStop: the client's kernels are stopped; kPark: it is to leave
  uint32_t slice_us = 0;      // kStop: the client's time slice; 0: as the driver set it
  ipc::SmRing ring;           // kAllowance: the client's SM sets, constant while it is attached,
  SetSizes sizes{};           // and their sizes (SmFamily); none: it has no sets
};

static_assert(std::is_trivially_copyable_v<Decision>);

// What is kept of a policy that was dropped for its faults.
inline constexpr size_t kLastDecisions = 64;

struct LastWords {
  struct Queued {
    std::string name;
    size_t waiting;
  };
  TimeNs at = -1;                   // -1: no policy was dropped
  std::string dump;                 // the result of its dump hook
  std::vector<Queued> queues;       // its queues at that time
  std::vector<Decision> decisions;  // the last grants by any decider, the oldest first
};

}  // namespace heddle::core
