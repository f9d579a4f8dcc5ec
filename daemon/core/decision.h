// What the scheduler core decides. Plain like core::Event, and carried out by whoever drives the
// core: the server writes shared memory, the simulator starts a launch.
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
  kHint,  // kernel `kernel` is predicted to take `predicted_us`, is timed or not, and where it runs
  kStop,  // what runs of the client stands or goes on, and for how long it has the GPU at a time
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
  SmSet sm_set{};              // of the launch, or kAllowance: of those that do not ask; empty: all
                               // that the client has
  Allowance allowed = Allowance::kGated;  // kAllowance
  bool gates_soon = false;                // kAllowance: what it launches may yet stand at gates,
  bool gates_inside = false;  // and long graphs have some inside: somebody may have them stopped
  bool kernels_ask = false;   // kAllowance: nothing but such graphs stands at gates
  uint32_t kernel = 0;        // kHint
  float predicted_us = 0;     // kHint, 0: not known
  uint8_t measure = 0;        // kHint: one in so many launches is to be timed; 0: now and then
  GroupCount size{};          // kHint: of its launches' SM sets; 0: all
  bool raised = false;        // kHint: launch_priority is for its launches
  bool off = false;           // kStop: what runs of it stands
  uint32_t slice_us = 0;      // kStop: how long it has the GPU at a time; 0: as the driver set it
  ipc::SmRing ring;           // kAllowance: of the client's SM sets, the same all along,
  SetSizes sizes{};           // and their sizes (SmFamily); none: it has no sets
};

static_assert(std::is_trivially_copyable_v<Decision>);

// What a policy leaves behind that lost its place to its faults.
inline constexpr size_t kLastDecisions = 64;

struct LastWords {
  struct Queued {
    std::string name;
    size_t waiting;
  };
  TimeNs at = -1;                   // -1: none has
  std::string dump;                 // what its dump hook said
  std::vector<Queued> queues;       // of it, as they were
  std::vector<Decision> decisions;  // the last grants by whomever, the oldest first
};

}  // namespace heddle::core
