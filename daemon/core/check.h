// Checks of what cannot be, whatever clients and policies do: a failed one is a mistake of ours.
// They are always on. Those on the launch path take a comparison; the thorough ones run as clients
// come and go, and once in a thousand events (checks.cc).
#pragma once

#include <functional>

namespace heddle::core {

struct Broken {
  const char* invariant;
  const char* file;
  int line;
};

// Gets each that fails. It returns, and must not call back into whoever failed: what decides on
// doubtful grounds goes on until the bypass is opened from outside.
using OnBroken = std::function<void(const Broken&)>;

// What tests and simulations do, who set no other: says it on standard error, and aborts.
void abort_on_broken(const Broken& broken);

}  // namespace heddle::core

// `whose`: it has a member `on_broken`.
#define HEDDLE_CHECK_IN(whose, invariant) \
  ((invariant) ? void() : (whose).on_broken(::heddle::core::Broken{#invariant, __FILE__, __LINE__}))
