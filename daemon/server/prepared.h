// A policy generation with instances of it, made where nobody waits.
#pragma once

#include <memory>
#include <vector>

#include "daemon/server/policy_source.h"

namespace heddle::server {

using Instances = std::vector<std::unique_ptr<core::Policy>>;

struct Prepared {
  Generation generation;
  Instances instances;
};

// Any thread.
Result<Prepared> prepare(Generation generation, size_t instances);
// One of those that are `spare`, else a fresh one, of what was read then.
Result<std::unique_ptr<core::Policy>> take_instance(const Generation& generation, Instances& spare);

}  // namespace heddle::server
