// What the Scheduler keeps; shared by scheduler.cc (events) and admission.cc (windows and grants).
#pragma once

#include <memory>
#include <span>

#include "daemon/core/asks.h"
#include "daemon/core/bounds.h"
#include "daemon/core/builtin.h"
#include "daemon/core/check.h"
#include "daemon/core/client/client.h"
#include "daemon/core/explaining.h"
#include "daemon/core/kernel_sizes.h"
#include "daemon/core/learning.h"
#include "daemon/core/places.h"
#include "daemon/core/roster.h"
#include "daemon/core/scheduler.h"
#include "daemon/core/stalls.h"
#include "daemon/core/witness.h"

namespace heddle::core {

struct Scheduler::State final : Situation {
  explicit State(const Config& c);
  ~State();

  Roster roster;
  bool credit_out = false;  // some of them may have credit
  BusyTime busy_time;
  GpuTime gpu_time;
  Promises promises{*this, roster, gpu_time};
  Telling telling{*this};
  Bounds bounds{*this, roster};
  Learning learning{*this, roster, telling};
  bool stepping = false;  // within step()

  Asks asks;
  Places places{*this, roster};
  Stalls stalls{*this, roster};
  Explaining told{*this, roster, asks};

  Scene scene() { return {*this, roster, asks, promises, learning, bounds, places, busy_time}; }
  Seat seat{scene(), telling};
  KernelSizes sizes{*this, roster, learning, seat};
  Progress progress{scene(), gpu_time, telling, seat};
  Witness witness{*this, learning, bounds, seat, sizes, progress};
  std::unique_ptr<Shadow> shadow;         // a candidate beside the policy; then it has the seat
  TimeNs starve_at = 0;                   // nobody waits for too long before
  TimeNs lent_until = kNever;             // no lent window ends before
  int highest_attached = kPriorityCount;  // as the windows were last refreshed
  TimeNs retry_at = 0;  // next dispatch while launches wait and the policy said IDLE

  // ---- scheduler.cc ----
  void on_attached(const Event&);
  void on_detached(Client&);
  void on_terms(Client&, const TermsBody&);
  void set_terms(Client&, const TermsBody&);
  void on_kernel(Client&, const KernelBody&);
  void on_posted(Client&, const Event&);
  void on_asked(Client&, const Event&);
  void on_withdrawn(Client&, const Event&);
  bool reconcile(Client&, const LaunchBody&);
  void advance(TimeNs to);  // time passes
  void note_busy();
  // ---- checks.cc ----
  void check() const;
  void check_waiting() const;

  // ---- credit.cc ----
  double give_credit(Client&, Granted&, double us);
  void use_credit(Client&, uint16_t thread, Work&);
  void revoke_credits();
  TimeNs credit_deadline(const Client&) const;

  // ---- admission.cc ----
  void refresh_windows();
  uint32_t window_of(const Client&, const WindowChoice&) const;
  void send_window(Client&, uint32_t window_us, uint32_t free_streams);
  void enqueue(uint32_t slot);
  void dispatch();
  bool dispatch_once();
  // `world`: of a candidate; nullptr: this one.
  LaunchId pick_builtin(bool unplaced_only, const Shadow* world = nullptr) const;
  bool grant(LaunchId, Decider, const DispatchVerdict&);
  void release(uint32_t slot);  // frees a waiting slot
  void starve();
  TimeNs starve_ns() const;
};

}  // namespace heddle::core
