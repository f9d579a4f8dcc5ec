#include "daemon/server/observation.h"

namespace heddle::server {

void Observation::observe(core::TimeNs now, core::TimeNs length, uint64_t posted) {
  unobserved_ = false;
  since_ = now;
  until_ = now + length;
  posted_ = posted;
}

core::ClientId Observation::update(core::TimeNs now, core::ClientId alone, uint64_t posted) {
  if (alone != client_) {
    client_ = alone;
    observe(now, kSettleNs, posted);
  } else if (now >= until_ && unobserved_) {
    observe(now, kObservedNs, posted);
  } else if (now >= until_) {
    const double seconds = static_cast<double>(now - since_) / 1e9;
    const bool fast = static_cast<double>(posted - posted_) >= kLaunchesPerS * seconds;
    observe(now, fast ? kUnobservedNs : kSettleNs, posted);
    unobserved_ = fast && client_ != 0;
  }
  return unobserved_ ? client_ : 0;
}

}  // namespace heddle::server
