// Profiles: any text is a profile, or an error that names file and line; and what was read is
// written so that it is read again.
#include <cstdint>
#include <string_view>

#include "daemon/profile/profile.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace heddle::profiles;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto profile = parse(text, "fuzz.toml");
  if (!profile) {
    const std::string& error = profile.error().message;
    const bool placed = error.rfind("fuzz.toml:", 0) == 0 && isdigit(error[10]) != 0;
    if (!placed || error.find('\n') != std::string::npos) __builtin_trap();
    return 0;
  }
  const auto again = parse(format(*profile), "again.toml");
  if (!profile->task.kernels.empty() && !again) __builtin_trap();
  if (again && format(*again) != format(*profile)) __builtin_trap();
  return 0;
}
