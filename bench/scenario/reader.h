// Reads the tables of a scenario, key by key, and keeps the first complaint, as FILE:LINE: what,
// and the remedy. finish() refuses what nobody asked for, so that the list of known keys cannot
// drift from the code that reads them. For scenario.cc alone.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bench/scenario/scenario.h"
#include "daemon/base/toml.h"

namespace heddle::scenario {

class Reader {
 public:
  // `prefix` names the table in messages, such as "job."; `error` is shared by all of a file.
  Reader(const toml::table& table, std::string prefix, const std::string& file, std::string& error)
      : table_(table), prefix_(std::move(prefix)), file_(file), error_(error) {}

  bool ok() const { return error_.empty(); }
  const toml::table& table() const { return table_; }
  bool has(std::string_view key) const { return table_.get(key) != nullptr; }
  const toml::node* find(std::string_view key);

  // Each leaves `out` alone if the key is absent. True: it was there and right.
  bool text(std::string_view key, std::string& out);
  bool flag(std::string_view key, bool& out);
  bool number(std::string_view key, double least, double most, double& out);
  template <class T>
  bool integer(std::string_view key, double least, double most, T& out) {
    double value = 0;
    if (!number(key, least, most, value)) return false;
    if (!table_.get(key)->is_integer()) return bad(key, "a whole number"), false;
    out = static_cast<T>(value);
    return true;
  }
  // A list of strings, each with its place: `use(text, where)`.
  template <class Use>
  void list(std::string_view key, Use&& use) {
    const toml::node* node = find(key);
    if (node == nullptr) return;
    if (!node->is_array()) return bad(key, "a list of strings");
    for (const toml::node& item : *node->as_array()) {
      if (!item.is_string()) return bad(key, "a list of strings");
      use(*item.value<std::string>(), item);
    }
  }
  // A number (constant) or { median = 60, sigma = 0.6 }.
  void distribution(std::string_view key, Distribution& out);

  void bad(std::string_view key, const std::string& wanted);
  void problem(const toml::node& where, const std::string& what) { problem(where.source(), what); }
  void problem(const toml::source_region& where, const std::string& what);

  // Keys that nobody asked for: refused, or handed to `use(key, node)`.
  void finish();
  template <class Use>
  void others(Use&& use) const {
    for (const auto& [key, node] : table_) {
      if (!known(key.str())) use(key, node);
    }
  }
  const std::vector<std::string_view>& known_keys() const { return known_; }

 private:
  bool known(std::string_view key) const;

  const toml::table& table_;
  const std::string prefix_;
  const std::string& file_;
  std::string& error_;
  std::vector<std::string_view> known_;
};

}  // namespace heddle::scenario
