// What heddle-stop-probe asks of the driver besides CUDA: its channels off and on, and its time
// slice. One thread; what was changed goes back with these objects.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "shim/stop/objects.h"

namespace heddle::workloads {

enum class Answer : int { kNone, kYes, kNo, kNotAsked };

// Ends the asking: what holds it up is said, and what was changed is given back on the way out.
struct Ends {
  Answer answer;
  std::string why;
};

[[noreturn]] inline void no(const std::string& why) { throw Ends{Answer::kNo, why}; }
[[noreturn]] inline void not_asked(const std::string& why) { throw Ends{Answer::kNotAsked, why}; }

// From here on the objects are seen that the driver makes; `inside` is an address in its library.
void watch_requests(const void* inside);
// Ends where what was seen cannot be stopped.
void expect_channels();
// Ends unless that is 0, the driver's OK.
void expect_ok(uint32_t status);

// The channels are off while it lives, or until on().
class Standing {
 public:
  Standing();
  ~Standing();
  Standing(const Standing&) = delete;
  Standing& operator=(const Standing&) = delete;
  uint32_t status() const { return status_; }
  uint32_t on();

 private:
  bool off_ = true;
  const uint32_t status_;
};

// The process has that slice while it lives.
class Slice {
 public:
  explicit Slice(uint64_t us);
  ~Slice();
  Slice(const Slice&) = delete;
  Slice& operator=(const Slice&) = delete;
  uint32_t status() const { return status_; }

 private:
  std::vector<std::pair<shim::Objects::Target, rm::Timeslice>> before_;
  uint32_t status_ = 0;
};

}  // namespace heddle::workloads
