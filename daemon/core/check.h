// Checks of what cannot be, whatever clients and policies do: a failed one is a mistake of ours.
// They are always on. Those on the launch path take a comparison; the thorough ones run as clients
// come and go, and once in a thousand events (checks.cc).
#pragma once

#include <cstdint>
#include <functional>

namespace heddle::core {

struct Broken {
  const char* invariant;
  const char* file;
  int line;
  uint64_t client = 0;  // whose state alone it is; 0: nobody's
};

// Gets each that fails. It returns, and must not call back into whoever failed: what decides on
// doubtful grounds goes on until the client is let go, or the bypass opened, from outside.
using OnBroken = std::function<void(const Broken&)>;

// What tests and simulations do, who set no other: says it on standard error, and aborts.
void abort_on_broken(const Broken& broken);

}  // namespace heddle::core

// `whose`: it has a member `on_broken`.
#define HEDDLE_CHECK_IN(whose, invariant) \
  ((invariant) ? void() : (whose).on_broken(::heddle::core::Broken{#invariant, __FILE__, __LINE__}))
// The same of the state of one client, by its ID.
#define HEDDLE_CHECK_OF(whose, id, invariant) \
  ((invariant) ? void()                       \
               : (whose).on_broken(::heddle::core::Broken{#invariant, __FILE__, __LINE__, (id)}))
