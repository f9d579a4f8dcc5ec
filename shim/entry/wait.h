// Calls that wait for the application's launches although they are no synchronizing calls by name,
// such as cuMemFree.
//
// Used by entry points of all kinds, around the driver's call. Measured on an H100: at a closed
// gate such a call stands until the gate opens, and holds up launches and allocations of other
// threads.
#pragma once

#include "shim/evidence/streams.h"

namespace heddle::shim {

// While one exists, a client that may have launches at gates counts as being in a synchronizing
// call. The call's return is no evidence: there may have been nothing to wait for.
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
