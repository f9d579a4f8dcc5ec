// A client's stream runs in order, whether its launches stand at a gate on the GPU or their threads
// ask.
#include "tests/unit/core_gap_fixture.h"

namespace heddle::core {
namespace {

// Client 1 (Q0) is active and has nothing on the device; client 2 (Q9) has gates.
class GateOrderTest : public CoreTest {
 protected:
  void begin() {
    attach(1, 0);
    Event e(EventKind::kAttached, now_, 2);
    e.attached = {};
    e.attached.task = 2;
    e.attached.priority = 9;
    e.attached.gates = true;
    step(e);
    kernel(1, 0, 11);
    kernel(2, 0, 22);
    post(1);
    done(1);
  }
  Event at_gate(EventKind kind) {
    Event e = launch(kind, 2, Admission::kGated);
    e.launch.ask_seq = 1;
    if (kind == EventKind::kAsked) e.launch.thread = kTicketThreads;
    return e;
  }
  void work(ClientId id) {  // until it is done
    post(id);
    wait(id);
  }

  Giving policy_;
};

// The gates closed behind what was let go after them.
TEST_F(GateOrderTest, WhatItsStreamHasAtTheGateGoesBeforeWhatWasLetGoBehindIt) {
  begin();
  const Event first = at_gate(EventKind::kAsked);
  ask(2);
  ASSERT_EQ(grants_.size(), 1u);
  policy_.verdict = {};  // lets nothing go
  use(&policy_);
  work(1);
  step(first);
  EXPECT_EQ(grants_.size(), 1u) << "somebody above works";
  done(1);
  tick(kMs);
  ASSERT_EQ(grants_.size(), 2u);
  EXPECT_EQ(grants_.back().thread, kTicketThreads);
}

}  // namespace
}  // namespace heddle::core
