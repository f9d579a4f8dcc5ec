// A table of the configuration, as config.cc reads it.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/base/nearest.h"
#include "daemon/base/toml.h"
#include "daemon/core/event.h"

namespace heddle::server {

// Reads one table, key by key, and keeps the first error. finish() then refuses the keys that were
// not read, so that the list of known keys cannot differ from the code. An unknown key is reported
// before other errors, because a mistyped key may have caused those.
class Section {
 public:
  Section(const toml::table& table, std::string name, const std::string& file)
      : table_(table), name_(std::move(name)), file_(file) {}

  void number(std::string_view key, double least, double most, double& out) {
    const toml::node* node = find(key);
    if (node == nullptr) return;
    const std::optional<double> value = node->value<double>();
    if (!value || !node->is_number() || *value < least || *value > most) {
      std::ostringstream range;
      range << "a number from " << least << " to " << most;
      return bad(*node, key, range.str());
    }
    out = *value;
  }

  template <class T>
  void integer(std::string_view key, double least, double most, T& out) {
    double value = 0;
    if (find(key) == nullptr) return;
    number(key, least, most, value);
    if (value != std::floor(value)) return bad(*find(key), key, "a whole number");
    out = static_cast<T>(value);
  }

  void text(std::string_view key, std::string& out) {
    const toml::node* node = find(key);
    if (node == nullptr) return;
    if (!node->is_string()) return bad(*node, key, "a string in quotes");
    out = *node->value<std::string>();
  }

  void text(std::string_view key, std::optional<std::string>& out) {
    std::string value;
    if (find(key) == nullptr) return;
    text(key, value);
    out = value;
  }

  void flag(std::string_view key, bool& out) {
    const toml::node* node = find(key);
    if (node == nullptr) return;
    if (!node->is_boolean()) return bad(*node, key, "true or false");
    out = *node->value<bool>();
  }

  template <class T>
  void choice(std::string_view key, const std::vector<std::pair<std::string_view, T>>& choices,
              T& out) {
    const toml::node* node = find(key);
    if (node == nullptr) return;
    std::string wanted;
    for (const auto& [word, value] : choices) {
      if (node->value<std::string_view>() == word) {
        out = value;
        return;
      }
      wanted += (wanted.empty() ? "\"" : " or \"") + std::string(word) + "\"";
    }
    bad(*node, key, wanted);
  }

  // Q0 to Q9, or the name of a class.
  void priority(std::string_view key, std::optional<int>& out) {
    const toml::node* node = find(key);
    if (node == nullptr) return;
    const std::optional<std::string_view> word = node->value<std::string_view>();
    const std::optional<int64_t> number = node->value<int64_t>();
    if (node->is_integer() && *number >= 0 && *number < core::kPriorityCount) {
      out = static_cast<int>(*number);
    } else if (word == "latency") {
      out = 0;
    } else if (word == "batch") {
      out = core::kPriorityLowest;
    } else {
      bad(*node, key, "0 (highest) to 9 (lowest), \"latency\" or \"batch\"");
    }
  }

  const toml::node* find(std::string_view key) {
    known_.push_back(key);
    return table_.get(key);
  }

  void bad(const toml::node& node, std::string_view key, const std::string& wanted) {
    problem(node.source(), name_ + "." + std::string(key) + " must be " + wanted);
  }

  void problem(const toml::source_region& where, const std::string& what) {
    if (error_.empty()) error_ = at(where) + what;
  }

  std::string at(const toml::source_region& where) const {
    return file_ + ":" + std::to_string(where.begin.line) + ": ";
  }

  std::string finish() {
    for (const auto& [key, node] : table_) {
      if (std::find(known_.begin(), known_.end(), key.str()) != known_.end()) continue;
      const std::string near = nearest(key.str(), known_);
      error_.clear();
      problem(key.source(), "unknown key " + (name_.empty() ? "" : name_ + ".") +
                                std::string(key.str()) +
                                (near.empty() ? "; share/heddle/heddled.toml has all keys"
                                              : "; did you mean \"" + near + "\"?"));
      break;
    }
    return error_;
  }

 private:
  const toml::table& table_;
  const std::string name_;
  const std::string& file_;
  std::vector<std::string_view> known_;
  std::string error_;
};

}  // namespace heddle::server
