// The Scheduler's state: its parts, in the order in which they need each other.
#pragma once

#include <algorithm>
#include <memory>
#include <span>

#include "daemon/core/checks.h"
#include "daemon/core/members.h"
#include "daemon/core/scheduler.h"
#include "daemon/core/shadow_state.h"
#include "daemon/core/stops.h"
#include "daemon/core/witness.h"

namespace heddle::core {

struct Scheduler::State final : Situation {
  explicit State(const Config& c);
  ~State();

  Roster roster;
  BusyTime busy_time;
  GpuTime gpu_time;
  Promises promises{*this, roster, gpu_time};

 private:
  Ceilings ceilings_{*this, roster, promises};

 public:
  Telling telling{*this};
  Bounds bounds{*this, roster};
  Learning learning{*this, roster, telling};

  Heads heads;
  Places places{*this, roster};
  Stalls stalls{*this, roster};
  Explaining told{*this, roster, heads};

  Scene scene() {
    return {*this, roster, heads, promises, learning, bounds, places, busy_time, ceilings_};
  }
  Seat seat{scene(), telling};
  KernelSizes sizes{*this, roster, learning, promises, seat};
  Progress progress{scene(), gpu_time, telling, seat};
  Witness witness{*this, learning, bounds, ceilings_, seat, sizes, progress};
  Allowances allowances{*this, roster, places, ceilings_, telling, seat, sizes, progress};
  Openings openings{scene(), allowances};
  Admitting admission{scene(), telling, stalls, told, seat, sizes, progress, allowances, openings};

 private:
  Stops stops_{*this, roster, busy_time, telling, progress};

 public:
  Members members{scene(), gpu_time, seat, admission, stops_};
  std::unique_ptr<Shadow> shadow;  // if there is a candidate; then it stands in for the policy

  void on_kernel(Client&, const KernelBody&);
  void advance(TimeNs to);  // time passes
  void note_busy();
  void on_stops(Client& c, const StopBody& body) { stops_.told(c, body); }
  void settle_parking();
  void settle_stops() {  // the built-in stops long kernels for more important clients
    stops_.settle(seat.policy() == nullptr ? StopWhen::kLong : StopWhen::kNever);
  }
  TimeNs deadline() const {
    return std::min({progress.deadline(), allowances.deadline(), openings.deadline(),
                     admission.deadline(), stops_.deadline(), seat.tick_deadline()});
  }
  void check() const { core::check(*this, roster, gpu_time, heads, seat.orders().queues().all()); }
};

}  // namespace heddle::core
