#include "daemon/core/ceiling.h"

#include <algorithm>

namespace heddle::core {

void Ceiling::limit(const ChannelMax& max) {
  const std::array by_channel = {max.issue, max.l2, max.dram};
  any_ = false;
  for (size_t i = 0; i < accounts_.size(); ++i) {
    Account& account = accounts_[i];
    const auto now = static_cast<double>(by_channel[i]);
    any_ |= now > 0;
    if (account.max == now) continue;
    account = {};
    account.max = now;
    account.balance_us = account.most_us();
    told_[i] = {};
    told_[i].channel = kChannels[i];
    told_[i].max = now;
  }
}

void Ceiling::pass(double us, bool beside) {
  for (Account& account : accounts_) {
    const double refill_us = us * (beside ? account.max : 1);
    account.balance_us = std::min(account.most_us(), account.balance_us + refill_us);
  }
  if (beside) beside_us_ += us;
  if (beside_us_ >= kToldUs) tell();
}

void Ceiling::spend(const Use* use, double us) {
  launched_us_ += us;
  for (size_t i = 0; i < accounts_.size() && use != nullptr; ++i) {
    const auto part = static_cast<double>((*use)[kChannels[i]]);
    if (part < 0) continue;
    Account& account = accounts_[i];
    account.known_us += us;
    account.used_us += part * us;
    if (account.max <= 0) continue;
    account.balance_us = std::max(-account.max * kOwedUsMax, account.balance_us - part * us);
  }
}

std::optional<Channel> Ceiling::spent() const {
  const auto most = std::max_element(
      accounts_.begin(), accounts_.end(),
      [](const Account& a, const Account& b) { return a.owes_us() < b.owes_us(); });
  if (most->owes_us() <= 0) return std::nullopt;
  return kChannels[static_cast<size_t>(most - accounts_.begin())];
}

double Ceiling::owes_us() const {
  double us = 0;
  for (const Account& account : accounts_) us = std::max(us, account.owes_us());
  return us;
}

void Ceiling::tell() {
  for (size_t i = 0; i < accounts_.size(); ++i) {
    Account& account = accounts_[i];
    told_[i].use.reset();
    if (account.known_us > 0 || launched_us_ <= 0) told_[i].use = account.used_us / beside_us_;
    told_[i].unknown = launched_us_ > 0 ? 1 - account.known_us / launched_us_ : 0;
    account.used_us = account.known_us = 0;
  }
  beside_us_ = launched_us_ = 0;
}

}  // namespace heddle::core
