// Which GPU model's constants the interference estimator goes by (profiles/gpu). Called once a
// device, on the loop's thread, as it is learned.
#pragma once

#include <string>

#include "daemon/core/scheduler.h"
#include "daemon/server/log.h"

namespace heddle::server {

// share/heddle/gpu beside the executable's bin/.
std::string installed_gpu_models();

// Gives the scheduler the model in `directory` that is of the GPU, as its driver names it. Where
// there is none, or its file is wrong, the log says so, and the core's own constants stay.
void use_gpu_model(core::Scheduler& scheduler, const std::string& directory, const std::string& gpu,
                   Log& log);

}  // namespace heddle::server
