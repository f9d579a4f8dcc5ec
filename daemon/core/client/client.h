// One client on one device, as parts that change together.
#pragma once

#include <string>
#include <vector>

#include "daemon/core/budget.h"
#include "daemon/core/ceiling.h"
#include "daemon/core/client/kernel.h"
#include "daemon/core/client/on_device.h"
#include "daemon/core/client/rhythm.h"
#include "daemon/core/client/standing.h"
#include "daemon/core/client/stop.h"
#include "daemon/core/explain.h"
#include "daemon/core/gpu_time.h"
#include "daemon/core/tail.h"
#include "daemon/core/waits.h"

namespace heddle::core {

// The client's terms by the rules.
struct Rule {
  int priority = kPriorityLowest;
  bool fail_closed = false;
  bool gates = false;    // AttachedBody::gates
  bool ungated = false;  // its gates stand open for good, whatever a policy decides
  double share = 1, slo_ms = 0;
  Compute compute;
};

struct Who {
  uint64_t task = 0;
  std::string name, label;
  uint32_t pid = 0, uid = 0;
};

inline constexpr uint32_t kNoHead = 0xffffffff;

// The client's oldest held unit.
struct HeldHead {
  uint32_t slot = kNoHead;  // in Heads
  bool withheld = false;    // by the client's ceiling
  TimeNs since = 0;
  double turn_us = 0;  // when the client's next turn begins (Heads::take_turn)

  bool any() const { return slot != kNoHead; }
};

// Promises to the client, and its load on others' promises.
struct Promised {
  RecentMix mix;    // kept only while any client has a promise
  Account account;  // of the client's own promise, of the mean
  Tail tail;        // likewise, of the 99th percentile
};

// For status commands: counts, and how long and why launches waited.
struct Told {
  uint64_t launches = 0, granted = 0;
  double work_us = 0;  // of those launches: predicted time of each alone
  Waits waits;
  PastWaits past_waits;
};

// Device memory, as the driver of the core says.
struct Memory {
  uint64_t bytes = 0;
  bool parked = false;
  bool to_move = false;  // the policy wants `parked` to change
};

// Where the client's launches may run, and where its memory is.
struct Place {
  SmGroups groups{};
  SmSet sm_set{};        // by rule; empty: all
  SmFamily family;       // its SM sets, constant while it is attached,
  ipc::SmRing ring;      // and where they lie
  bool claimed = false;  // the client claims to have made these under an earlier daemon
  SmSet cut_set{};       // Places::standing_set
  bool sized = false;    // some kernel has a size, or a priority, of its own
  Memory memory;

  // The ring's first set of that many groups, within cut_set.
  SmSet set_of(GroupCount size) const {
    return ipc::ring_groups(size, ring, 0, cut_set.or_if_empty(sm_set), groups.count);
  }
  GroupCount size_for(SmCount sm) const { return groups.size_for(sm, family.sizes, ring, sm_set); }
};

struct Client {
  // Fields that each event may read in every active client:
  ClientId id = 0;
  // Until then the passing of time changes nothing (Progress::settle); 0: unknown.
  TimeNs settled_until = 0;
  bool active = false;
  bool at_work = false;  // it was busy when it was last settled
  Rule rule;
  OnDevice work;
  Rhythm rhythm;
  Standing standing;
  HeldHead head;
  Run run;
  Stop stop;
  Known known;
  TimeShare gpu_time;
  Got got;
  GapBound bound;
  Promised promise;
  Ceiling ceiling;
  Told told;
  Who who;
  Place place;

  const Kernel* kernel(uint32_t index) const { return known.kernel(index); }
  // The SM set on which the launch runs; empty: on all SMs that the client has.
  SmSet set_of(const Work& launch) const {
    return launch.strayed ? place.groups.all() : launch.sm_set;
  }
  double predict_us(uint32_t kernel) const { return known.predict_us(kernel, rhythm.context); }
  // It has a waiting launch that its ceiling does not withhold.
  bool wants() const { return head.any() && !head.withheld; }
  // The policy refused a fail-closed client: only a change of policy lets its launches go.
  bool held_back() const { return standing.choice.refused && rule.fail_closed; }

  // The set of a launch without a ticket: by its kernel's size, within cut_set.
  SmSet set_of(uint32_t kernel) const;
  // How many times longer the kernel takes in a set than the `whole_us` on all that the client has.
  double stretch(const Kernel& kernel, double whole_us, SmSet set) const;
  // Fills in how long the launch takes in its set.
  void predict(Work& work) const;
  // The priority of its launches.
  int8_t launch_priority(const Config& config) const;
  // The SMs of its work in flight, or else of its last launch.
  SmSet runs_on() const;

  // True while it has, or may have, work on the device.
  bool busy(TimeNs now) const { return now < busy_deadline(); }
  // Its held launches wait on the GPU, by the allowance that it was sent.
  bool holds_on_device() const { return rule.gates && !standing.kernels_ask; }
  // Whether the predicted end of its work is believed. Launches that go freely, without gates, have
  // few markers, so there is little other evidence.
  bool is_believed() const {
    return standing.leased() || (!standing.gated() && !holds_on_device());
  }
  TimeNs busy_deadline() const { return work.busy_deadline(is_believed()); }
  double remaining_us(TimeNs now) const { return work.remaining_us(now, is_believed()); }
  // Predicted length of the present gap; 0: it is busy, or that is unknown.
  double gap_length_us(TimeNs now) const;
  // The rest of that gap; or the time until its ceiling lets it launch, if that is longer.
  double gap_left_us(TimeNs now) const;
  // The silence after which it counts as idle.
  double patience_us(double idle_us, double idle_us_max) const;
  const GapEstimate* gap_estimate() const {
    const Kernel* k = kernel(rhythm.last_kernel);
    return k != nullptr ? &k->stats->gap(rhythm.gap_synchronized) : nullptr;
  }
};

}  // namespace heddle::core
