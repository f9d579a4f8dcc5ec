// Evidence about work on the device: that it is done, or was stopped at a gate; and reports of
// launches without records, while one client is alone at work or in rows (ipc/sparse.h).
#pragma once

#include "daemon/core/allowances.h"
#include "daemon/core/progress.h"

namespace heddle::core {

class Witness {
 public:
  Witness(Situation& now, Learning& learning, Bounds& bounds, Ceilings& ceilings, Seat& seat,
          KernelSizes& sizes, Progress& progress)
      : now_(now),
        learning_(learning),
        bounds_(bounds),
        ceilings_(ceilings),
        seat_(seat),
        sizes_(sizes),
        progress_(progress) {}

  void completed(Client& client, const Event& event);
  // A running graph stopped at a gate inside.
  void recalled(Client& client, const Event& event);
  // An unobserved client counts as busy until it is observed again. Its work on the device is
  // unknown then: it counts as busy until it synchronizes, or for Config::idle_us.
  void unobserved(Client& client, const Event& event);
  void observed(Client& client, const Event& event);
  // Launches in a row, without records: the device was done with each before the next came, or soon
  // after. So an open gap was none: launches went on in it.
  void row(Client& client, const Event& event);

 private:
  void failed(Client& client, const DoneBody& body);
  void dated(Client& client, const Work& late, const Event& event);
  void synchronized(Client& client, TimeNs at);
  void count_untold(Client& client, uint64_t launches);

  Situation& now_;
  Learning& learning_;
  Bounds& bounds_;
  Ceilings& ceilings_;
  Seat& seat_;
  KernelSizes& sizes_;
  Progress& progress_;
};

}  // namespace heddle::core
