// What a program says quotes files and other users: a terminal must not obey it.
#pragma once

#include <string>
#include <string_view>

namespace heddle {

// Control bytes but newline and tab as \x1b, also those of UTF-8 (C2 80 to C2 9F). `before` is the
// byte before the text, and the last one afterwards.
std::string without_controls(std::string_view text, unsigned char& before);
inline std::string without_controls(std::string_view text) {
  unsigned char before = '\n';
  return without_controls(text, before);
}

// Called first in main(): all that C and C++ streams write to standard error goes through the
// above, and to standard output where that is a terminal. A pipe or a file gets each byte, for
// `policy show` and JSON. Who draws on the terminal calls write() (heddle top).
void keep_output_printable();

}  // namespace heddle
