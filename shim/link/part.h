// Parses a fraction such as "0.3" from an environment variable.
#pragma once

namespace heddle::shim {

// Parses digit by digit, because strtof follows the application's locale, which may have a decimal
// comma. 0: the text is no number from 0.01 to 1.
inline float part_of(const char* text) {
  double value = 0, place = 0;
  for (const char* c = text; *c != '\0'; ++c) {
    if (*c == '.' && place == 0) {
      place = 1;
    } else if (*c < '0' || *c > '9') {
      return 0;
    } else if (place == 0) {
      value = value * 10 + (*c - '0');
    } else {
      place /= 10;
      value += (*c - '0') * place;
    }
  }
  return value >= 0.01 && value <= 1 ? static_cast<float>(value) : 0;
}

}  // namespace heddle::shim
