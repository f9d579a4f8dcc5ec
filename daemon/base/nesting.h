// How deep a text nests, before a parser sees it: what TOML and JSON make of it is copied and
// destroyed by recursion, so that 200 KB of `a.a.a...` end a process. For toml.h and json.h.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace heddle {

// Behind the string that begins at `at`, or at the end of its line if it does not end there. Of one
// in three quotes up to two more may be part.
inline size_t behind_string(std::string_view text, size_t at) {
  const char quote = text[at];
  const std::string three(3, quote);
  const size_t length = text.substr(at, 3) == three ? 3 : 1;
  for (at += length; at < text.size(); ++at) {
    if (text[at] == '\n' && length == 1) return at;
    if (text[at] == '\\' && quote == '"') {
      ++at;
    } else if (text.compare(at, length, three, 0, length) == 0) {
      at += length;
      for (int more = 0; length == 3 && more < 2 && at < text.size() && text[at] == quote; ++more)
        ++at;
      return at;
    }
  }
  return text.size();
}

// The line, from 1 on, where `text` (TOML or JSON) nests deeper than any file of heddle's; 0:
// nowhere. Right as far as the text is sound, which is as far as a parser takes it.
inline uint32_t nests_too_deep(std::string_view text) {
  constexpr int kBracketsMost = 64, kDotsMost = 16;  // open at once; in one key
  int brackets = 0, dots = 0;
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (c == '"' || c == '\'') {
      i = behind_string(text, i);
      continue;
    }
    if (c == '#') {
      i = std::min(text.find('\n', i), text.size());
      continue;
    }
    if (c == '[' || c == '{') ++brackets;
    if (c == ']' || c == '}') --brackets;
    if (c == '.') ++dots;
    if (std::string_view("[]{}=,\n").find(c) != std::string_view::npos) dots = 0;
    ++i;
    if (brackets <= kBracketsMost && dots <= kDotsMost) continue;
    return 1 + static_cast<uint32_t>(
                   std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(i), '\n'));
  }
  return 0;
}

}  // namespace heddle
