// Waits for words in memory, writes of them, and host functions, in stream order.
//
// The owner of the GPU does not see a program's memory. So such an operation is a marker in its
// stream that comes after one in the stream's lane, a stream of the wire of its own. A thread of
// this process looks at the words of those operations whose turn it is, and completes the lane's
// marker when they are satisfied. It shares no lock with the entry points, which may wait for it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "bench/sim/link.h"

namespace heddle::sim {

struct MemOp {
  enum Kind : uint8_t { kGeq, kEq, kAnd, kNor, kWrite, kCall };  // the first four: how to wait
  Kind kind = kGeq;
  bool wide = false;  // 64 bits
  void* word = nullptr;
  uint64_t value = 0;
  void (*call)(void*) = nullptr;  // of the word
};

struct Lane {
  uint16_t slot = 0;         // of the wire
  uint16_t stream_slot = 0;  // whose operations they are
  uint64_t promised = 0;     // markers that something waits for
  uint64_t completed = 0;    // and those that were pushed
  struct Hold {
    uint64_t seq;  // of the marker in the stream
    std::vector<MemOp> ops;
    size_t next = 0;
    enum : uint8_t { kNot, kWanted, kDone } call = kNot;  // of the next one
  };
  std::deque<Hold> holds;
};

// Any thread, but for promise() and add(), which belong together: under the driver's lock.
class MemOps {
 public:
  explicit MemOps(Link& link);

  // One that was given back and is drained; nullptr: make one of a slot of the wire.
  Lane* lane_for(uint16_t stream_slot);
  Lane* make_lane(uint16_t slot, uint64_t issued, uint16_t stream_slot);
  void give_back(Lane* lane);

  // The lane's marker that the stream's next one, `seq`, is to come after; `ops` complete it.
  uint64_t promise(Lane& lane, uint64_t seq, std::vector<MemOp> ops);
  bool pending() const { return pending_.load() != 0; }
  bool pending(const Lane& lane);

  // When as many streams stand at words as the process has hardware queues, none of its other work
  // begins. The marker of `stop` that work comes after which is launched now; 0: none.
  uint64_t stopped(Lane& stop);

 private:
  [[noreturn]] void run();
  [[noreturn]] void run_calls();
  void start();
  void advance(Lane& lane);
  bool pass(Lane::Hold& hold);
  bool is_head(const Lane& lane) const;
  uint32_t standing() const;
  void complete(Lane& lane);

  Link& link_;
  const uint32_t queues_;
  std::mutex mutex_;  // of all below
  std::condition_variable work_, wanted_;
  std::deque<Lane> lanes_;
  std::vector<Lane*> free_;
  Lane* stop_ = nullptr;
  std::deque<Lane::Hold*> calls_;  // a hold stays where it is until it is passed
  bool running_ = false;
  std::atomic<uint32_t> pending_{0};  // holds
};

}  // namespace heddle::sim
