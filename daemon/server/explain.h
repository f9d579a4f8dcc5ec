// `heddle explain`: why a client's launches wait, as JSON.
#pragma once

#include <nlohmann/json.hpp>

#include "daemon/server/engine.h"

namespace heddle::server {

const char* decider_text(core::Decider decider);
// What was charged most in the last block that broke the promise; "": nothing was.
std::string_view channel_text(const core::PromiseStatus& promise);

// {client, devices: [{device, policy, generation, granted, waited, now: [...], past: [...]}]};
// null if there is no such client. Kernels, and what policies say of them, are "" unless `named`.
nlohmann::json explain_json(const Engine& engine, core::ClientId id, bool named);

const char* stall_text(core::Staller by);
// {policy, client, gpu: how often; last: {by, client, waited, waited_us, stalled_us}}.
nlohmann::json stall_json(const core::Scheduler& scheduler);

}  // namespace heddle::server
