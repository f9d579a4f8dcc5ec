// The constants of one GPU model for the interference estimator (daemon/model/interference.h), a
// file each in profiles/gpu/. Its reader; the format is in profiles/gpu/README.md. Files in
// load_gpu_model() and find_gpu_model() alone.
#pragma once

#include <string>
#include <string_view>

#include "daemon/base/result.h"
#include "daemon/model/interference.h"

namespace heddle::profiles {

inline constexpr int kGpuModelVersion = 1;

// Any text is a model, or an error "FILE:LINE: what; remedy". An unknown key is an error.
Result<core::DeviceModel> parse_gpu_model(std::string_view text, const std::string& file);
Result<core::DeviceModel> load_gpu_model(const std::string& path);

// Of the files in `directory` the one whose `gpu` names are those of the device, as cuDeviceGetName
// has it: the longest that the name begins with.
Result<core::DeviceModel> find_gpu_model(const std::string& directory, const std::string& gpu);

}  // namespace heddle::profiles
