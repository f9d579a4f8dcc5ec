#include "daemon/server/gates.h"

#include <algorithm>
#include <utility>

namespace heddle::server {
namespace {

uint16_t thread_of(size_t device) { return static_cast<uint16_t>(ipc::kThreads + device); }

}  // namespace

// Several threads' tickets may be read in another order than they were drawn in. What the core was
// asked for stays the first.
bool GateQueue::add(const Claim& claim) {
  Device& device = devices_[claim.fields.device];
  if (device.waiting.size() == kMost) return false;
  const uint32_t ticket = claim.fields.ask_seq;
  const auto later = std::find_if(
      device.waiting.begin() + (device.asked ? 1 : 0), device.waiting.end(),
      [=](const Claim& other) { return !ipc::gate_lets(ticket, other.fields.ask_seq); });
  device.waiting.insert(later, claim);
  if (!ipc::gate_lets(device.newest, ticket)) device.newest = ticket;
  return true;
}

std::optional<Claim> GateQueue::next(core::TimeNs now, bool open) {
  for (size_t i = 0; i < devices_.size(); ++i) {
    Device& device = devices_[i];
    if (device.waiting.empty() || (device.asked && !open)) continue;
    Claim claim = device.waiting.front();
    claim.thread = thread_of(i);
    claim.seq = claim.fields.ask_seq;
    claim.at = now;
    if (std::exchange(device.asked, false)) {
      claim.source = Claim::Source::kWithdrawal;
    } else if (open || ipc::gate_lets(device.released, claim.seq)) {
      claim.fields.admission = wire::Admission::BYPASS;
      claim.fields.ask_seq = 0;
      device.waiting.pop_front();
    } else {
      claim.source = Claim::Source::kAsk;
      claim.fields.admission = wire::Admission::ASK;
      device.asked = true;
    }
    return claim;
  }
  return std::nullopt;
}

void GateQueue::release(uint16_t thread, ipc::GatePage& page) {
  const size_t index = thread - ipc::kThreads;
  Device& device = devices_[index];
  if (!std::exchange(device.asked, false)) return;
  const uint32_t ticket = device.waiting.front().fields.ask_seq;
  device.waiting.pop_front();
  if (!ipc::gate_lets(device.released, ticket)) device.released = ticket;
  ipc::gate_release(page.released[index], page.leaving, device.released, device.newest);
}

void GateQueue::open(ipc::GatePage& page) {
  for (size_t i = 0; i < devices_.size(); ++i) {
    const uint32_t newest = devices_[i].newest;
    ipc::gate_release(page.released[i], page.leaving, ipc::gate_open(newest), newest);
  }
}

void GateQueue::close(ipc::GatePage& page) {
  for (size_t i = 0; i < devices_.size(); ++i) {
    Device& device = devices_[i];
    device.released = device.newest;
    ipc::gate_release(page.released[i], page.leaving, device.released, device.newest);
  }
}

}  // namespace heddle::server
