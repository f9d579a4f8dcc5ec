#include "daemon/server/contention.h"

#include <algorithm>
#include <bit>

namespace heddle::server {
namespace {

// Less important work that waits from ticket to ticket counts as waiting in between, so that the
// word on which more important clients report finely does not flicker.
constexpr core::TimeNs kContendedNs = 5'000'000;

}  // namespace

void Contention::update(core::TimeNs now) {
  std::array<int8_t, ipc::kDevices> lowest;
  lowest.fill(-1);
  bool threads = false;
  for (const Client* client : roster_.managed()) {
    if (client->intake().asking() == 0) continue;
    threads |= client->any_thread_waits();
    for (GpuNumbers::Numbers rest = client->working(); rest != 0; rest &= rest - 1) {
      int8_t& on = lowest[static_cast<size_t>(std::countr_zero(rest))];
      on = std::max(on, static_cast<int8_t>(client->identity().priority));
    }
  }
  if (threads) any_until_ = now + kContendedNs;
  any_ = now < any_until_;
  bool changed = false;
  for (size_t gpu = 0; gpu < devices_.schedulers().size(); ++gpu) {
    Below& below = below_[gpu];
    // Not so soon back: each change is a write to a line that all launching threads read.
    if (lowest[gpu] >= below.priority) {
      below.until = now + kContendedNs;
    } else if (now < below.until) {
      continue;
    }
    changed |= lowest[gpu] != below.priority;
    below.priority = lowest[gpu];
  }
  if (!changed) return;
  for (Client* client : roster_.managed()) client->set_contended(concerns(*client));
}

bool Contention::concerns(const Client& client) const {
  for (GpuNumbers::Numbers rest = client.working(); rest != 0; rest &= rest - 1) {
    const Below& below = below_[static_cast<size_t>(std::countr_zero(rest))];
    if (client.identity().priority < below.priority) return true;
  }
  return false;
}

}  // namespace heddle::server
