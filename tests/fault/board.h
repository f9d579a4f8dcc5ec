// What the campaign's clients write into memory that outlives them, so that the campaign can judge
// the dead as well.
#pragma once

#include <atomic>
#include <cstdint>

namespace heddle::fault {

inline constexpr int kBoardFd = 99;  // a memfd, inherited by every client
inline constexpr uint32_t kClients = 4;

struct ClientNote {
  std::atomic<uint64_t> attempted;   // launches begun
  std::atomic<uint64_t> launched;    // launches that the driver took
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
