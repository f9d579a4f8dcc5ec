// What is heard of work on the device: that it is done, that a thread waits for it, and of launches
// that nobody told of: of a client alone at work, and of rows (ipc/sparse.h).
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
  // A graph stands at a gate inside.
  void recalled(Client& client, const Event& event);
  // It stays at work until it is told again. What it has on the device then nobody knows, and it is
  // taken for busy until it synchronizes, or for as long as a client may be silent.
  void unobserved(Client& client, const Event& event);
  void observed(Client& client, const Event& event);
  // The device was done with each before the next came, or soon after. What is open is no gap,
  // then: launches went on in it.
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
