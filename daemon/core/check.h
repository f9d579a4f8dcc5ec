// Checks of the core's invariants, which hold whatever clients and policies do: a failed one is a
// bug of heddle. They are always on. Those on the launch path cost a comparison. The thorough ones
// run when clients come and go, and once in 1024 events (checks.cc).
#pragma once

#include <cstdint>
#include <functional>

namespace heddle::core {

struct Broken {
  const char* invariant;
  const char* file;
  int line;
  uint64_t client = 0;  // the client whose state alone is concerned; 0: none
};

// Called for each failed check. It returns, and must not call back into the object that failed. The
// core goes on with its doubtful state until the server detaches the client, or opens the bypass.
using OnBroken = std::function<void(const Broken&)>;

// The default, for tests and simulations: prints the check on standard error, and aborts.
void abort_on_broken(const Broken& broken);

}  // namespace heddle::core

// `whose`: an object with a member `on_broken`.
#define HEDDLE_CHECK_IN(whose, invariant) \
  ((invariant) ? void() : (whose).on_broken(::heddle::core::Broken{#invariant, __FILE__, __LINE__}))
// The same for the state of one client, by its ID.
#define HEDDLE_CHECK_OF(whose, id, invariant) \
  ((invariant) ? void()                       \
               : (whose).on_broken(::heddle::core::Broken{#invariant, __FILE__, __LINE__, (id)}))
