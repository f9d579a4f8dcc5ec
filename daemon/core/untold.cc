// Launches that nobody told of: of a client alone at work, and of rows (ipc/sparse.h).
#include "daemon/core/scheduler_state.h"

namespace heddle::core {

// It stays at work until it is told again. What it has on the device then nobody knows, and it is
// taken for busy until it synchronizes, or for as long as a client may be silent.
void Scheduler::State::on_unobserved(Client& c, const Event& e) {
  count_untold(c, e.untold.launches);
  c.rhythm.gap_open = c.run.going = false;  // an open gap is not over
  c.rhythm.last_kernel = kUnknownKernel;
  touch(c, e.at);
  c.work.unseen_until = kNever;
}

void Scheduler::State::on_observed(Client& c, const Event& e) {
  count_untold(c, e.untold.launches);
  if (c.work.unobserved()) c.work.unseen_until = e.at + to_ns(config.idle_us);
}

void Scheduler::State::count_untold(Client& c, uint64_t launches) {
  c.rhythm.context.forget();
  if (c.told.launches > 0) {
    charge(c, static_cast<double>(launches) *
                  (c.gpu_time.worked_us / static_cast<double>(c.told.launches)));
  }
  c.told.launches += launches;
  stats.posted += launches;
}

// The device was done with each before the next came, or soon after. What is open is no gap, then:
// launches went on in it.
void Scheduler::State::on_row(Client& c, const Event& e) {
  if (e.untold.launches == 0) return;
  count_untold(c, e.untold.launches);
  c.rhythm.last_kernel = kUnknownKernel;
  if (!c.active) touch(c, e.at);
  c.rhythm.gap_open = false;
  Work last;
  last.posted_at = e.at;
  last.kernel = c.rhythm.last_kernel = e.untold.kernel;
  c.run.launched(last.kernel, last.posted_at, 0);
  c.run.launches += static_cast<uint32_t>(e.untold.launches) - 1;
  const TimeNs backlog = e.at + to_ns(static_cast<double>(e.untold.backlog_us));
  c.work.set_busy_until(std::max(c.work.busy_until, backlog), e.at);
}

}  // namespace heddle::core
