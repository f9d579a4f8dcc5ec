// The container in which a process runs, by its cgroup's path.
#pragma once

#include <string>

namespace heddle {

inline bool is_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }

// 64 hexadecimal digits, as Docker, containerd and CRI-O write them; "" if there are none.
inline std::string container_id_of(const std::string& cgroup) {
  constexpr size_t kDigits = 64;
  size_t run = 0;
  for (size_t i = cgroup.size(); i-- > 0;) {  // the innermost
    run = is_hex(cgroup[i]) ? run + 1 : 0;
    if (run == kDigits && (i == 0 || !is_hex(cgroup[i - 1]))) return cgroup.substr(i, kDigits);
  }
  return "";
}

}  // namespace heddle
