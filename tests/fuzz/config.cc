// The daemon's TOML: any text is a configuration, or an error that names the file.
#include <cstdint>
#include <string_view>

#include "daemon/server/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto config = heddle::server::parse_config(text, "fuzz.toml");
  if (!config && config.error().message.find("fuzz.toml") == std::string::npos) __builtin_trap();
  return 0;
}
