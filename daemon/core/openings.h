// Openings: a grant may open its client's gates for the units behind it.
//
// A client with gates on the GPU can be stopped at the next one, so the length of a gap does not
// matter. Its gates close once a client as important waits, or a more important one has work, or
// the promises above cannot afford one more unit. A running graph with gates inside stops on the
// same conditions. The gates of a client with a ceiling stay closed while another client is active.
#pragma once

#include "daemon/core/allowances.h"
#include "daemon/core/heads.h"

namespace heddle::core {

class Openings {
 public:
  Openings(const Scene& scene, Allowances& allowances)
      : now_(scene.now),
        roster_(scene.roster),
        heads_(scene.heads),
        promises_(scene.promises),
        ceilings_(scene.ceilings),
        allowances_(allowances) {}

  // A unit that stood at a gate was granted. A graph that goes `whole` is not stopped inside again.
  void granted(Client& client, const Head& unit, bool open, bool whole);
  // Closes the openings of clients that may not go on.
  void close();
  // When a graph that was let go for a piece may have to stop.
  TimeNs deadline() const;

 private:
  bool may_open(const Client& client);
  bool may_go_on(const Client& client);

  Situation& now_;
  const Roster& roster_;
  const Heads& heads_;
  Promises& promises_;
  const Ceilings& ceilings_;
  Allowances& allowances_;
  bool any_ = false;  // there may be one
};

}  // namespace heddle::core
