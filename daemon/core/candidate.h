// The world as a candidate policy sees it (shadow.h): the live policy's world, with the candidate's
// own queues and allowances, and without the launches that the candidate let go. Its orders change
// nothing else.
#pragma once

#include <map>
#include <vector>

#include "daemon/core/allowances.h"
#include "daemon/core/queues.h"

namespace heddle::core {

class Candidate final : public Sight {
 public:
  struct Launch {  // a waiting launch, by slot
    LaunchId id = 0;
    TimeNs let_go = -1;       // when the candidate let it go; -1: it has not
    double predicted_us = 0;  // at that time
    int32_t queue = -1;       // the candidate's queue
    bool unseen = false;      // the candidate was not asked about it
  };

  Candidate(const Scene& scene, const Allowances& allowances)
      : Sight(scene), allowances_(allowances) {}

  // What is known of the launch that waits in the slot.
  Launch launch_in(uint32_t slot) const;
  // Whether the launch waits in the candidate's world, too.
  bool holds(uint32_t slot) const;
  bool holds_any() const;
  // The candidate's queue that the launch is in; -1: none.
  int32_t queue_of(uint32_t slot) const { return launches_[slot].queue; }
  void meet(uint32_t slot);
  void set_unseen(uint32_t slot, bool unseen) { launches_[slot].unseen = unseen; }
  void let_go(uint32_t slot);
  void forget(uint32_t slot);

  // The candidate's allowance of a client, and whether the client has work in the candidate's
  // world: work that runs, or a launch that the candidate let go.
  AllowanceChoice& choice(ClientId id) { return choices_[id]; }
  void forget_choice(ClientId id) { choices_.erase(id); }
  AllowanceChoice choice_of(const Client& client) const;
  Allowance allowance_of(const Client& client) const {
    return allowances_.of(client, choice_of(client));
  }
  bool at_work(const Client& client) const;

  GpuView gpu() const override;
  bool client(ClientId, ClientView&) const override;
  bool queue_insert(QueueId, LaunchId, double key) override;
  bool set_allowance(ClientId, Allowance allowed, double for_us) override;
  bool set_launch_priority(ClientId id, int) override { return roster_.find(id) != nullptr; }
  bool keep_to(ClientId id, SmCount, double) override { return roster_.find(id) != nullptr; }
  bool set_stop(ClientId id, StopWhen) override { return roster_.find(id) != nullptr; }
  bool set_slice(ClientId id, uint32_t) override { return roster_.find(id) != nullptr; }
  bool set_parked(ClientId id, bool) override { return roster_.find(id) != nullptr; }
  bool resize(ClientId id) override { return roster_.find(id) != nullptr; }

 private:
  double in_flight_us(const Client* of) const;

  const Allowances& allowances_;
  std::vector<Launch> launches_;
  std::map<ClientId, AllowanceChoice> choices_;
};

}  // namespace heddle::core
