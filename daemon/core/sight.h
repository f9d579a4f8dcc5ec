// Sight: what a policy can read of the core, collected from its parts, and the policy's queues. The
// orders are elsewhere: the live policy's are carried out (seat.h), a candidate's are kept apart
// (candidate.h).
#pragma once

#include "daemon/core/bounds.h"
#include "daemon/core/gpu_time.h"
#include "daemon/core/heads.h"
#include "daemon/core/learning.h"
#include "daemon/core/places.h"
#include "daemon/core/promises.h"
#include "daemon/core/queues.h"

namespace heddle::core {

// The parts of the core that a policy can see.
struct Scene {
  Situation& now;
  Roster& roster;
  Heads& heads;
  Promises& promises;
  Learning& learning;
  Bounds& bounds;
  Places& places;
  BusyTime& busy_time;
  Ceilings& ceilings;
};

class Sight : public Gpu {
 public:
  explicit Sight(const Scene& scene)
      : now_(scene.now),
        roster_(scene.roster),
        heads_(scene.heads),
        promises_(scene.promises),
        learning_(scene.learning),
        bounds_(scene.bounds),
        places_(scene.places),
        busy_time_(scene.busy_time) {}

  TimeNs now() const override { return now_.clock; }
  GpuView gpu() const override;
  bool launch(LaunchId, LaunchView&) const override;
  bool client(ClientId, ClientView&) const override;
  std::span<const ClientId> clients() const override { return roster_.ids(); }
  double gap_us(int priority) const override;
  double gap_length_us(int priority) const override;
  bool busy(int priority) const override { return roster_.busy(priority, now_.clock); }
  double idle_us(int priority) const override { return busy_time_.idle_us(priority); }
  RunTimes runs(int priority) const override { return learning_.runs(priority); }
  SlowRunCount slower_runs(int priority, double times) const override {
    return learning_.slower_runs(priority, times);
  }
  bool comparing(int priority) const override { return roster_.comparing(priority, now_.clock); }
  BudgetVerdict budget_fits(LaunchId, SmCount sm) override;
  SmCount free_sms(LaunchId, SmCount sm) const override;
  double slowdown(ClientId id) override {
    const Client* c = roster_.find(id);
    return c != nullptr ? promises_.slowdown(*c) : 1;
  }
  double channel_left(Channel channel) const override { return promises_.channel_left(channel); }

  QueueId queue_create(std::string_view name) override { return queues_.create(name); }
  LaunchId queue_peek(QueueId queue, size_t place) const override {
    return queues_.peek(queue, place, [this](LaunchId id) { return may_begin(id); });
  }
  LaunchId queue_best_fit(QueueId, double us) const override;
  size_t queue_len(QueueId queue) const override { return queues_.size(queue); }

  // Fills in a launch of the client's kernel that does not wait.
  static void fill(const Client& client, uint32_t kernel, LaunchKind kind, LaunchView& view);

 protected:
  ~Sight() = default;
  // False if the launch's client has work on SM sets in flight, behind which it would run.
  bool follows_none_on_sets(LaunchId id) const {
    return heads_[heads_.slot_of(id)].client->work.outstanding.sm_set().empty();
  }

  Situation& now_;
  const Roster& roster_;
  Heads& heads_;
  Queues queues_;
  mutable Saw saw_;  // values that hooks read since take_saw()

 private:
  // False for a launch that is early (pauses.h).
  bool may_begin(LaunchId id) const { return !heads_[heads_.slot_of(id)].early; }

  Promises& promises_;
  const Learning& learning_;
  const Bounds& bounds_;
  const Places& places_;
  const BusyTime& busy_time_;
};

}  // namespace heddle::core
