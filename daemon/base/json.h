// JSON from outside: parsed without exceptions, and not deeper than it can be copied. For the files
// that read JSON which this process did not write.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "daemon/base/nesting.h"

namespace heddle {

// Discarded (is_discarded(), so neither object nor array) if `text` is no JSON, or nests too deep.
template <class Json = nlohmann::json>
Json parse_json(std::string_view text) {
  if (nests_too_deep(text) != 0) return Json(nlohmann::detail::value_t::discarded);
  return Json::parse(text, nullptr, false);
}

}  // namespace heddle
