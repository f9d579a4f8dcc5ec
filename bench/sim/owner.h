// The process that owns the simulated GPU: executes what clients command, in real time, by the
// model. One thread. main() is in sim_gpu.cc.
#pragma once

#include <cstdio>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/sim/wire.h"
#include "daemon/sim/gpu_model.h"

namespace heddle::sim {

// One attached process. Unmaps and closes what it was given.
class OwnerClient {
 public:
  // Takes an accepted connection; nullptr if the peer does not speak the protocol or is gone.
  static std::unique_ptr<OwnerClient> accept(int connection, Mode mode);
  ~OwnerClient();
  OwnerClient(const OwnerClient&) = delete;
  OwnerClient& operator=(const OwnerClient&) = delete;

  struct Executing {
    Command command;
    TimeNs start = 0;
  };
  struct Slot {
    bool open = false;
    StreamIndex model = 0;
    uint64_t base = 0;  // the model's sequence number - the client's
    std::deque<Executing> work;
  };

  ClientRegion& region() { return *region_; }
  uint64_t* word(uint64_t offset);               // nullptr if outside the heap
  char* range(uint64_t offset, uint64_t bytes);  // likewise
  int pidfd() const { return pidfd_; }
  int connection() const { return connection_; }
  int doorbell() const { return doorbell_; }
  int pid() const { return pid_; }
  const std::string& label() const { return label_; }
  ClientIndex index() const { return index_; }
  void set_index(ClientIndex index) { index_ = index; }
  uint32_t sm_limit() const { return sm_limit_; }
  Slot& slot(uint16_t stream) { return slots_[stream]; }
  bool busy() const;  // has work, or is in a call

  uint32_t taken = 0;     // commands
  uint64_t launches = 0;  // kernels completed

 private:
  OwnerClient() = default;
  bool share(int connection, Mode mode);

  ClientRegion* region_ = nullptr;
  char* heap_ = nullptr;
  int connection_ = -1;
  int pidfd_ = -1;
  int doorbell_ = -1;
  int pid_ = 0;
  ClientIndex index_ = 0;
  uint32_t sm_limit_ = 0;
  std::string label_;
  std::vector<Slot> slots_;
};

class Owner {
 public:
  Owner(const GpuConfig& config, int listener, FILE* log);  // log may be nullptr

  // Until the last client has been gone for `linger_ns`.
  void run(int64_t linger_ns);

 private:
  struct Guest {
    ClientIndex client;
    StreamIndex stream;
  };
  struct Incoming {
    OwnerClient* client;
    Command command;
  };

  // An order of a client: carried out at `begin`, answered at `end`.
  struct Order {
    OwnerClient* client;
    Command command;
    TimeNs begin, end;
    bool begun = false;
  };

  bool collect();
  void execute_until(TimeNs now);
  void advance(TimeNs to);
  void submit(OwnerClient& client, const Command& command);
  void open_slot(OwnerClient& client, const Command& command);
  void finish(const Notice& notice);
  void handle_notices();
  void apply(OwnerClient& client, const Command& command);
  void meet(OwnerClient& client, const OwnerClient::Slot& slot);
  void log_kernel(OwnerClient& client, const OwnerClient::Executing& done, TimeNs end);
  void log_exit(OwnerClient& client);
  // --- owner_orders.cc: one at a time, as the real driver's lock is over all GPUs ---
  void take_order(OwnerClient& client, const Command& command);
  void checkpoint(OwnerClient& client, const Command& command);
  void answer(OwnerClient& client, const Command& order);
  TimeNs next_order() const;  // when one begins or ends
  void step_order();
  void drop_orders(const OwnerClient& client);

  void sleep_until(TimeNs wake);
  void admit();
  void remove_dead(size_t which);

  GpuModel gpu_;
  int listener_;
  FILE* log_;
  std::vector<std::unique_ptr<OwnerClient>> clients_;
  std::vector<Incoming> incoming_;
  std::vector<Notice> notices_;
  std::map<uint64_t, std::vector<Guest>> meetings_;  // those that wait for more
  std::deque<Order> orders_;
  TimeNs orders_end_ = 0;  // of the last one
  TimeNs empty_since_ = 0;
};

}  // namespace heddle::sim
