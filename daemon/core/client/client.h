// One client on one device: parts that change together, each with its verbs.
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

// What the administrator's rules give it.
struct Rule {
  int priority = kPriorityLowest;
  bool fail_closed = false;
  bool gates = false;    // AttachedBody's
  bool ungated = false;  // its gates stand open for good, whatever is said
  double share = 1, slo_ms = 0;
  Compute compute;
};

struct Who {
  uint64_t task = 0;
  std::string name, label;
  uint32_t pid = 0, uid = 0;
};

inline constexpr uint32_t kNoHead = 0xffffffff;

// Its oldest unit that is held.
struct HeldHead {
  uint32_t slot = kNoHead;  // where it waits
  bool withheld = false;    // by its ceiling
  TimeNs since = 0;
  double turn_us = 0;  // when its next turn begins (Heads::take_turn)

  bool any() const { return slot != kNoHead; }
};

// What was promised to it, and what it does to others' promises.
struct Promised {
  RecentMix mix;    // while anybody was promised anything
  Account account;  // of what it was promised itself, in the mean
  Tail tail;        // likewise, but for one run in a hundred
};

// For whoever asks: how long what was granted had waited, and why the last ones did.
struct Told {
  uint64_t launches = 0, granted = 0;
  double work_us = 0;  // of those launches, as each takes alone, as far as that is known
  Waits waits;
  PastWaits past_waits;
};

// Where its launches may run.
struct Place {
  SmGroups groups{};
  SmSet sm_set{};        // by rule, empty: all
  SmFamily family;       // its SM sets, as long as it is attached
  ipc::SmRing ring;      // and where they lie
  bool claimed = false;  // by its own word
  SmSet cut_set{};       // Places::standing_set
  bool sized = false;    // some kernel has a size, or a priority, of its own

  // The set of that many groups, the ring's first, within what the client is cut to.
  SmSet set_of(GroupCount size) const {
    return ipc::ring_groups(size, ring, 0, cut_set.or_if_empty(sm_set), groups.count);
  }
  GroupCount size_for(SmCount sm) const { return groups.size_for(sm, family.sizes, ring, sm_set); }
};

struct Client {
  // What each event looks at in every active client.
  ClientId id = 0;
  // Time alone changes nothing before then (Progress::settle); 0: it is not known when it does.
  TimeNs settled_until = 0;
  bool active = false;
  bool at_work = false;  // it was busy as it was last settled
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
  // Where the launch runs; empty: on all that the client has.
  SmSet set_of(const Work& launch) const {
    return launch.strayed ? place.groups.all() : launch.sm_set;
  }
  double predict_us(uint32_t kernel) const { return known.predict_us(kernel, rhythm.context); }
  // It waits to launch, and its ceiling is not what it waits for.
  bool wants() const { return head.any() && !head.withheld; }
  // Refused, and not free to launch for all that: nothing but a change of policy lets it go.
  bool held_back() const { return standing.choice.refused && rule.fail_closed; }

  // The set of a launch that does not ask: of its kernel's size, within what the client is cut to.
  SmSet set_of(uint32_t kernel) const;
  // How many times longer the kernel takes in a set than the `whole_us` on all that the client has.
  double stretch(const Kernel& kernel, double whole_us, SmSet set) const;
  // How long the launch takes in its set.
  void predict(Work& work) const;
  // What its launches carry.
  int8_t launch_priority(const Config& config) const;
  // The SMs of what it has in flight, or else of what it launched last.
  SmSet runs_on() const;

  // True while work is, or must be taken to be, on the device.
  bool busy(TimeNs now) const { return now < busy_deadline(); }
  // Its held launches wait on the GPU, as far as it was told.
  bool holds_on_device() const { return rule.gates && !standing.kernels_ask; }
  // Of what goes freely, and not by gates, little is marked.
  bool is_believed() const {
    return standing.leased() || (!standing.gated() && !holds_on_device());
  }
  TimeNs busy_deadline() const { return work.busy_deadline(is_believed()); }
  double remaining_us(TimeNs now) const { return work.remaining_us(now, is_believed()); }
  // Predicted length of the present gap: 0 while busy or unknown.
  double gap_length_us(TimeNs now) const;
  // What is left of it; or until its ceiling lets it launch.
  double gap_left_us(TimeNs now) const;
  // How long it may be silent before it counts as idle.
  double patience_us(double idle_us, double idle_us_max) const;
  const GapEstimate* gap_estimate() const {
    const Kernel* k = kernel(rhythm.last_kernel);
    return k != nullptr ? &k->stats->gap(rhythm.gap_synchronized) : nullptr;
  }
};

}  // namespace heddle::core
