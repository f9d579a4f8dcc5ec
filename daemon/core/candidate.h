// The world as a candidate sees it (shadow.h): the live policy's, but for what the candidate let
// go, its queues and its allowances. Its orders change nothing else.
#pragma once

#include <map>
#include <vector>

#include "daemon/core/allowances.h"
#include "daemon/core/queues.h"

namespace heddle::core {

class Candidate final : public Sight {
 public:
  struct Launch {  // by the slot that it waits in
    LaunchId id = 0;
    TimeNs let_go = -1;       // by the candidate
    double predicted_us = 0;  // as it did
    int32_t queue = -1;       // of the candidate
    bool unseen = false;      // it was not asked about it
  };

  Candidate(const Scene& scene, const Allowances& allowances)
      : Sight(scene), allowances_(allowances) {}

  // The launch that waits in the slot, as it was last met.
  Launch launch_in(uint32_t slot) const;
  // True if it waits in the candidate's world too;
  bool holds(uint32_t slot) const;
  bool holds_any() const;
  // where it is in one of its queues, or -1.
  int32_t queue_of(uint32_t slot) const { return launches_[slot].queue; }
  void meet(uint32_t slot);
  void set_unseen(uint32_t slot, bool unseen) { launches_[slot].unseen = unseen; }
  void let_go(uint32_t slot);
  void forget(uint32_t slot);

  // By client: what the candidate allowed; whether it let something of the client go that
  // waits, or runs.
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
  bool resize(ClientId id) override { return roster_.find(id) != nullptr; }

 private:
  double in_flight_us(const Client* of) const;

  const Allowances& allowances_;
  std::vector<Launch> launches_;
  std::map<ClientId, AllowanceChoice> choices_;
};

}  // namespace heddle::core
