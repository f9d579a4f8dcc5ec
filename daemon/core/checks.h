// The thorough checks: data that is kept in two places must agree.
#pragma once

#include <span>

#include "daemon/core/heads.h"
#include "daemon/core/queues.h"
#include "daemon/core/roster.h"
#include "daemon/core/situation.h"

namespace heddle::core {

// `queues`: the queues of the policy in force.
void check(const Situation& now, const Roster& roster, const GpuTime& gpu_time, const Heads& heads,
           std::span<const Queue> queues);

}  // namespace heddle::core
