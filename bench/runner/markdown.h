// A table of Markdown, and how figures are written in it. For table.cc.
#pragma once

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

namespace heddle::bench {

// Three significant digits, no exponent.
inline std::string three(double value) {
  char text[32];
  const double size = std::fabs(value);
  const int digits = size >= 100 || size == 0 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3;
  snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

class Table {
 public:
  explicit Table(std::vector<std::string> header) : columns_(header.size()) { row(header); }

  void row(const std::vector<std::string>& cells) {
    for (const std::string& cell : cells) text_ += "| " + cell + " ";
    text_ += "|\n";
    if (rows_++ > 0) return;
    text_ += "| ---";
    for (size_t i = 1; i < columns_; ++i) text_ += " | ---:";
    text_ += " |\n";
  }
  const std::string& text() const { return text_; }
  bool empty() const { return rows_ < 2; }

 private:
  const size_t columns_;
  size_t rows_ = 0;
  std::string text_;
};

}  // namespace heddle::bench
