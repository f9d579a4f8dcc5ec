// The tickets of one simulated client (ipc/gate.h): which launches wait, at gates on the GPU or in
// their thread, and what has been let go. Of the shim the units, of the server the queue;
// virtual_gates.cc drives both.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <vector>

#include "ipc/sm_set.h"

namespace heddle::sim {

// One launch with a ticket.
struct AtGate {
  size_t thread = 0;
  bool in_thread = false;  // that waits, and no stream
  uint32_t kernel = 0;     // index into the client's
  double us = 0;           // alone
  double predicted_us = 0;
  ipc::SmSet sm_set;
  uint64_t seq = 0;  // in its stream
  size_t record = 0;
  uint32_t unit = 0;
  uint32_t pieces = 1, left = 1;  // of a graph: gates stand between its pieces
  bool asked = false;             // the core knows of it by its ask
  bool recalled = false;          // the core was told that it stops behind the piece that runs
  bool stopped() const { return left < pieces; }  // inside, and it waits to go on
};

class Gates {
 public:
  static constexpr double kAheadUs = 5'000;  // as predicted; then its threads wait

  // The unit that a launch of the thread is part of, or begins.
  uint32_t unit_of(size_t thread, double predicted_us, bool alone);
  static uint32_t pieces_of(double predicted_us);
  void post(const AtGate& launch) {
    waiting_.push_back(launch);
    if (!launch.in_thread) ahead_us_ += launch.predicted_us;
  }
  void stop(const AtGate& launch) { waiting_.push_front(launch); }  // it was under way
  void done(const AtGate& launch) { ahead_us_ -= launch.predicted_us; }
  // Predicted, of what was posted and is not done.
  double ahead_us() const { return ahead_us_; }

  // The launches that wait, by ticket.
  std::deque<AtGate>& waiting() { return waiting_; }
  const std::deque<AtGate>& waiting() const { return waiting_; }
  // Its gate stands open: the launch begins.
  bool lets(const AtGate& launch);
  // Graphs go on behind their next gate.
  bool running() const { return open_ || running_; }

  // The oldest waits for a grant, and none was asked for.
  bool must_ask() const;
  double unit_us(uint32_t unit) const;  // predicted, of what waits
  void asks(uint32_t unit) { asked_ = unit; }
  uint32_t asked() const { return asked_; }

  // The oldest, which was asked for, goes, with all of its unit.
  void granted(bool graph);
  void open() { open_ = true; }
  void close() { open_ = running_ = false; }
  bool is_open() const { return open_; }

 private:
  std::deque<AtGate> waiting_;
  uint32_t newest_ = 0, released_ = 0, asked_ = 0;
  size_t thread_ = 0;     // of the newest unit,
  double newest_us_ = 0;  // and how long it is
  double ahead_us_ = 0;
  bool open_ = false, running_ = false;
};

}  // namespace heddle::sim
