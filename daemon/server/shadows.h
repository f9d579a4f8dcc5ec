// `heddle policy shadow`: a candidate beside the live policy on every device (core/shadow.h), as
// JSON.
#pragma once

#include <nlohmann/json.hpp>

#include "daemon/core/shadow.h"

namespace heddle::server {

// {seconds, ended, faulted, calls, skipped, spent_us, longest_us, share, clients: [{id, there,
// name, label, priority, alike, sooner, later, unseen, live, candidate: {p50_us, p99_us},
// live_window, window}]}.
nlohmann::json shadow_json(const core::ShadowReport& report);
nlohmann::json window_json(uint32_t window_us);

}  // namespace heddle::server
