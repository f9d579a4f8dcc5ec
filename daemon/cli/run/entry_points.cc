#include "daemon/cli/run/entry_points.h"

#include <set>

#include "daemon/cli/run/elf.h"

namespace heddle::cli {
namespace {

using nlohmann::json;

bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Of the driver API: not cudbg…, the debugger's.
bool is_entry_point(const std::string& name) {
  return name.size() > 2 && name.compare(0, 2, "cu") == 0 && is_upper(name[2]);
}

// Without its version and its per-thread-stream variant: cuLaunchKernelEx of
// cuLaunchKernelEx_v2_ptsz.
std::string stem(std::string name) {
  for (const char* variant : {"_ptsz", "_ptds"}) {
    if (name.size() > 5 && name.compare(name.size() - 5, 5, variant) == 0) {
      name.resize(name.size() - 5);
    }
  }
  size_t digits = name.size();
  while (digits > 0 && is_digit(name[digits - 1])) --digits;
  const bool versioned =
      digits < name.size() && digits > 2 && name.compare(digits - 2, 2, "_v") == 0;
  return versioned ? name.substr(0, digits - 2) : name;
}

}  // namespace

json probe_entry_points(const std::string& shim, const std::string& driver) {
  const MappedFile shim_file(shim), driver_file(driver);
  std::set<std::string> known, wrapped;
  for (const Symbol& symbol : exported_symbols(shim_file.bytes())) {
    if (!is_entry_point(symbol.name)) continue;
    known.insert(symbol.name);
    if (!symbol.weak) wrapped.insert(stem(symbol.name));
  }
  if (known.empty()) return {{"error", shim + ": its symbols cannot be read"}};
  std::set<std::string> unknown, past;
  size_t both = 0;
  for (const Symbol& symbol : exported_symbols(driver_file.bytes())) {
    if (!is_entry_point(symbol.name)) continue;
    if (known.count(symbol.name) != 0) {
      ++both;
      continue;
    }
    unknown.insert(symbol.name);
    if (symbol.name.find("Launch") != std::string::npos || wrapped.count(stem(symbol.name)) != 0) {
      past.insert(symbol.name);
    }
  }
  if (both == 0) return {{"error", driver + ": its symbols cannot be read"}};
  return {{"table", HEDDLE_CUDA_TABLE}, {"known", both}, {"unknown", unknown}, {"past", past}};
}

}  // namespace heddle::cli
