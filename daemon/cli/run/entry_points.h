// Which entry points the installed driver has that the shim does not stand in for, by what the two
// files export; neither is run. For `heddle doctor`.
//
// A program finds those through cuGetProcAddress, whose answers the shim passes on if it knows no
// better, and through nothing else: dlsym asks the shim. The shim exports what it wraps as global
// symbols and what it passes on as weak ones (shim/driver/trampolines.S).
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace heddle::cli {

// {table (CUDA version of the shim's table, as cuDriverGetVersion has it), known (how many of the
// driver's the shim has), unknown: [names], past: [those that by their names launch, or are a newer
// version of what the shim wraps]}; {error} if one of the files cannot be read.
nlohmann::json probe_entry_points(const std::string& shim, const std::string& driver);

}  // namespace heddle::cli
