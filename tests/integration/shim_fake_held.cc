// Calls to the fake driver that do not return while a test wants so.
#include <sched.h>

#include <atomic>

#include "tests/integration/shim_fake_driver.h"

FAKE std::atomic<int> fake_held;     // which one, as Held says; the first of that kind
FAKE std::atomic<int> fake_holding;  // 1: it is there
std::atomic<int> fake_held{0}, fake_holding{0};

void hold(Held call) {
  const int number = static_cast<int>(call);
  if (fake_held != number || fake_holding.exchange(1) != 0) return;
  while (fake_held == number) sched_yield();
  fake_holding = 0;
}
