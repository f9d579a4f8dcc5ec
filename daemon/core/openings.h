// Openings: what a grant lets go on behind its unit.
//
// What stands at gates on the GPU can be stopped, so that no gap's length matters: a grant may open
// its client's gates. They close once somebody as important waits, or somebody more important has
// work, or the promises above cannot afford a unit. So does the way of a graph with gates inside.
// The gates of a client with a ceiling stay closed while another is active.
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

  // A unit that stood at a gate was granted. A graph that goes `whole` is not stopped inside any
  // more.
  void granted(Client& client, const Head& unit, bool open, bool whole);
  // Of those that may not go on.
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
