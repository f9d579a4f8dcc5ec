#include "daemon/core/ceilings.h"

namespace heddle::core {

void Ceilings::limit(Client& c, const ChannelMax& max) {
  forget(c);
  c.ceiling.limit(max);
  limited_ += c.ceiling.any() ? 1 : 0;
}

void Ceilings::forget(const Client& c) { limited_ -= c.ceiling.any() ? 1 : 0; }

bool Ceilings::beside(const Client& c) const {
  const auto& active = roster_.active();
  return active.size() > 1 || (active.size() == 1 && active.front() != &c);
}

void Ceilings::pass(double us) {
  if (!any()) return;
  for (const auto& [id, c] : roster_.all()) {
    if (c->ceiling.any()) c->ceiling.pass(us, beside(*c));
  }
}

void Ceilings::spend(Client& c, const Work& work) {
  // A graph that was stopped inside has what it did behind it.
  spend(c, work.kernel, std::max(0.0, c.predict_us(work.kernel) - work.ran_us));
}

void Ceilings::give_back(Client& c, const Work& work, double ran_us) {
  spend(c, work.kernel, std::min(0.0, work.ran_us + ran_us - c.predict_us(work.kernel)));
}

void Ceilings::spend(Client& c, uint32_t kernel, double us) {
  if (!limits(c)) return;
  const Kernel* k = c.kernel(kernel);
  if (k == nullptr) return c.ceiling.spend(nullptr, us);
  c.ceiling.spend(promises_.use_here(*k, c.predict_us(kernel)), us * (1 - k->unknown()));
  c.ceiling.spend(nullptr, us * k->unknown());
}

}  // namespace heddle::core
