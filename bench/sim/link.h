// The client's end of the connection to the owner of the simulated GPU.
#pragma once

#include <mutex>
#include <string_view>

#include "bench/sim/wire.h"

namespace heddle::sim {

class Link {
 public:
  // Connects; starts an owner if none answers. False if there is none to be had.
  bool connect();

  // Everything below needs a connection. name_index() needs the driver's lock; the rest may be
  // called from any thread.

  // Publishes a command and wakes the owner if it could not find it by itself.
  void push(Command& command);
  uint16_t name_index(std::string_view kernel);
  // Gives an order of the stream kOrders, and waits. False if the owner is gone.
  bool order(Command& command);

  uint64_t done(uint16_t stream) const {
    return region_->streams[stream].done.load(std::memory_order_acquire);
  }
  // Waits until the stream's work up to `seq` is done. False if the owner is gone.
  bool wait(uint16_t stream, uint64_t seq);

  int64_t timing(uint32_t slot) const { return region_->timings[slot].load(); }
  char* heap() const { return heap_; }
  ClientRegion* region() const { return region_; }

 private:
  bool attach();
  bool owner_alive() const;

  std::mutex pushing_, ordering_;
  uint64_t ordered_ = 0;
  ClientRegion* region_ = nullptr;
  char* heap_ = nullptr;
  int connection_ = -1;
  int doorbell_ = -1;
};

}  // namespace heddle::sim
