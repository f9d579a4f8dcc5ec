// A campaign against the core: clients on two GPUs that launch, ask, synchronize, fail and die, by
// seed. No clock and no GPU: each stream runs one launch after the other, and clients do what
// their windows and grants allow. Everything that the cores decide or tell goes to a log.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/core/scheduler.h"

namespace heddle::core {

// A chain of hashes, one for each decision; what is told between two is hashed into the next.
class DecisionLog {
 public:
  void decision(const Decision& d);
  void tell(uint64_t value) { hash_ = (hash_ ^ value) * 0x9e3779b97f4a7c15u ^ (hash_ >> 29); }
  void tell(double value);
  void tell(std::string_view text);
  void tell(const Scheduler& core, TimeNs now);

  const std::vector<Decision>& decisions() const { return decisions_; }
  // After the first `count` decisions.
  uint64_t hash_at(size_t count) const { return count == 0 ? 0 : hashes_[count - 1]; }
  uint64_t hash() const { return hash_; }

 private:
  uint64_t hash_ = 0;
  std::vector<uint64_t> hashes_;
  std::vector<Decision> decisions_;
};

class Campaign {
 public:
  // Makes a policy, or nullptr for the built-in; whatever it made lives as long as the campaign.
  using MakePolicy = std::function<Policy*()>;

  Campaign(uint64_t seed, MakePolicy policy, MakePolicy candidate);
  ~Campaign();
  DecisionLog run(uint32_t steps);

 private:
  struct Running {
    uint64_t seq = 0;
    TimeNs end = 0;
    double us = 0;
  };
  struct Stream {
    uint64_t seq = 0;
    std::deque<Running> running;
  };
  struct Seat {  // a client on one device
    bool attached = false, waiting = false, unobserved = false;
    Allowance allowed = Allowance::kGated;
    std::vector<Stream> streams;  // one of a thread
    uint32_t ticket = 0;          // the newest,
    bool asking = false;          // which the core did not let go
    bool at_gate = false;
    uint16_t thread = 0;  // whose it is,
    uint32_t kernel = 0;  // and of what
  };
  struct Client {
    ClientId id = 0;
    uint64_t task = 0;
    double gap_us = 0;
    std::vector<double> kernel_us;
    Seat seats[2];
  };

  uint32_t random(uint32_t below);
  bool one_in(uint32_t n) { return random(n) == 0; }
  void take(size_t device, std::span<const Decision> decisions);
  void step(size_t device, const Event& event);
  void arrive(Client& client);
  void attach(Client& client, size_t device);
  void announce(Client& client, size_t device, uint32_t kernel);
  void profile(Client& client, size_t device, uint32_t kernel);
  void leave(Client& client);
  void act(Client& client, size_t device);
  void launch(Client& client, size_t device, uint16_t thread);
  void post(Client& client, size_t device, uint16_t thread, Admission admission);
  void begin(Client& client, Seat& seat, uint16_t stream, uint32_t kernel);
  void withdraw(Client& client, size_t device);
  void mark(Client& client, size_t device);
  void synchronize(Client& client, size_t device);
  void go_unseen(Client& client, size_t device);
  void new_terms(Client& client, size_t device);
  void administer(size_t device);
  void change_policy(size_t device);
  Event event(EventKind kind, const Client& client, size_t device) const;
  Event launch_event(EventKind kind, const Client& client, size_t device, uint16_t thread,
                     uint32_t kernel);
  Event ticket_event(EventKind kind, const Client& client, size_t device);

  uint64_t random_;
  TimeNs now_ = 1'000'000;
  ClientId next_id_ = 1;
  MakePolicy policy_, candidate_;
  bool shadow_[2] = {};
  std::unique_ptr<Scheduler> cores_[2];
  std::vector<Client> clients_;
  DecisionLog log_;
};

}  // namespace heddle::core
