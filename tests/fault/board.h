// What the campaign's clients write into memory that outlives them, so that the campaign can judge
// the dead as well.
#pragma once

#include <atomic>
#include <cstdint>

namespace heddle::fault {

inline constexpr int kBoardFd = 99;  // a memfd, inherited by every client
inline constexpr uint32_t kClients = 4;
inline constexpr uint32_t kThreads = 3;  // of one client, at most

// What a launch hands to its kernel, so that the simulated GPU's log names it: threads count from
// 0, the launches of a thread from 1.
constexpr uint64_t launch_id(uint64_t thread, uint64_t number) { return thread << 40 | number; }
constexpr uint64_t thread_of(uint64_t id) { return id >> 40; }
constexpr uint64_t number_of(uint64_t id) { return id & ((uint64_t{1} << 40) - 1); }

struct ThreadNote {
  std::atomic<uint64_t> attempted;  // launches begun
  std::atomic<uint64_t> launched;   // launches that the driver took
};

struct ClientNote {
  ThreadNote threads[kThreads];
  std::atomic<int64_t> longest_ns;   // one cuLaunchKernel
  std::atomic<uint32_t> finished;    // every thread is done and every answer was compared
  std::atomic<uint32_t> wrong;       // threads whose answer is not theirs
  std::atomic<uint32_t> ended;       // threads that a fault ended
  std::atomic<uint32_t> forked;      // children that passed straight through and left
  std::atomic<uint32_t> fork_hangs;  // children that did not
};

struct Board {
  ClientNote clients[kClients];
};

}  // namespace heddle::fault
