// Result<T>: a value, or one line that names the place and the remedy. Hides the borrowed type, so
// that std::expected can take its place with C++23.
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace heddle {

struct [[nodiscard]] Error {
  std::string message;  // "place: what is wrong; what to do"
};

template <class T>
using Result = tl::expected<T, Error>;

inline tl::unexpected<Error> fail(std::string message) {
  return tl::unexpected<Error>(Error{std::move(message)});
}

}  // namespace heddle
