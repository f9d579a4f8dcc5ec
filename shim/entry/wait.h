// Calls of the application that wait for what it launched and are no synchronizing calls by name.
//
// Used by entry points of all kinds, around the driver's own. Measured on an H100: at a closed gate
// they stand until it opens, and hold up launches and allocations of the process's other threads.
#pragma once

#include "shim/evidence/streams.h"

namespace heddle::shim {

// While it lives, a client that may have launches at gates counts as in a synchronizing call. That
// the call returned is no evidence: it may have had nothing to wait for.
class ImplicitWait {
 public:
  ImplicitWait();
  ~ImplicitWait();
  ImplicitWait(const ImplicitWait&) = delete;
  ImplicitWait& operator=(const ImplicitWait&) = delete;

 private:
  StreamSlot* slot_ = nullptr;
};

}  // namespace heddle::shim
