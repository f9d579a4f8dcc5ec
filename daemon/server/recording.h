// One recording: the shared memory into which the engine writes the events and decisions of its
// cores, for the `heddle record` at the other end of a connection. It ends with that connection.
#pragma once

#include <memory>

#include "daemon/base/result.h"
#include "daemon/server/handles.h"
#include "daemon/trace/ring.h"

namespace heddle::server {

class Recording {
 public:
  static Result<std::unique_ptr<Recording>> make();
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  int memory() const { return memory_.get(); }  // to be sent to the reader
  trace::Recorder& recorder() { return recorder_; }

 private:
  Recording(Descriptor memory, trace::Ring* ring)
      : memory_(std::move(memory)), ring_(ring), recorder_(*ring) {}

  Descriptor memory_;
  trace::Ring* ring_;
  trace::Recorder recorder_;
};

}  // namespace heddle::server
