// "2026-11-22T03:40:00Z": how files of ours say when. Texts compare as times do.
#pragma once

#include <time.h>

#include <string>

namespace heddle {

inline std::string utc_text(time_t at) {
  tm fields{};
  gmtime_r(&at, &fields);
  char text[32];
  strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &fields);
  return text;
}

}  // namespace heddle
