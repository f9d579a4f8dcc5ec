#include "daemon/sim/gates.h"

#include <cmath>

#include "ipc/gate_sizes.h"

namespace heddle::sim {

uint32_t Gates::unit_of(size_t thread, double predicted_us, bool alone) {
  const bool goes_on = !alone && newest_us_ > 0 && thread == thread_ && newest_ > released_ &&
                       newest_us_ + predicted_us <= ipc::kGateUnitUs;
  if (!goes_on) {
    ++newest_;
    newest_us_ = 0;
  }
  thread_ = thread;
  newest_us_ = alone ? ipc::kGateUnitUs : newest_us_ + predicted_us;
  return newest_;
}

uint32_t Gates::pieces_of(double predicted_us) {
  if (predicted_us <= ipc::kGatesInsideFromUs) return 1;
  return static_cast<uint32_t>(std::ceil(predicted_us / ipc::kGatePieceUs));
}

double Gates::unit_us(uint32_t unit) const {
  double us = 0;
  for (const AtGate& launch : waiting_) us += launch.unit == unit ? launch.predicted_us : 0;
  return us;
}

bool Gates::lets(const AtGate& launch) {
  if (launch.stopped()) return running();
  if (!open_ && launch.unit > released_) return false;
  released_ = std::max(released_, launch.unit);
  return true;
}

bool Gates::must_ask() const {
  if (waiting_.empty() || asked_ != 0 || open_) return false;
  const AtGate& oldest = waiting_.front();
  return oldest.stopped() ? !running() : oldest.unit > released_;
}

void Gates::granted(bool graph) {
  released_ = std::max(released_, asked_);
  asked_ = 0;
  running_ |= graph;
}

}  // namespace heddle::sim
