#include "daemon/server/batch.h"

#include <algorithm>

namespace heddle::server {

Batch::Batch() {
  claims_.reserve(ipc::kRingRecords);
  entries_.reserve(ipc::kRingRecords);
}

bool Batch::hear(Client& client, core::TimeNs now) {
  size_t taken = claims_.size();
  if (!client.collect(now, claims_)) {
    claims_.resize(taken);
    return false;
  }
  const size_t end = claims_.size();
  for (; taken < end; ++taken) entries_.push_back({claims_[taken].at, taken, &client});
  return true;
}

void Batch::sort() {
  if (entries_.size() < 2) return;
  std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
    return a.at != b.at ? a.at < b.at : a.claim < b.claim;
  });
}

}  // namespace heddle::server
