#include "bench/scenario/reader.h"

#include <algorithm>
#include <sstream>

#include "daemon/base/nearest.h"

namespace heddle::scenario {

const toml::node* Reader::find(std::string_view key) {
  if (!known(key)) known_.push_back(key);
  return table_.get(key);
}

bool Reader::known(std::string_view key) const {
  return std::find(known_.begin(), known_.end(), key) != known_.end();
}

bool Reader::text(std::string_view key, std::string& out) {
  const toml::node* node = find(key);
  if (node == nullptr) return false;
  if (!node->is_string()) return bad(key, "a string in quotes"), false;
  out = *node->value<std::string>();
  return true;
}

bool Reader::flag(std::string_view key, bool& out) {
  const toml::node* node = find(key);
  if (node == nullptr) return false;
  if (!node->is_boolean()) return bad(key, "true or false"), false;
  out = *node->value<bool>();
  return true;
}

bool Reader::number(std::string_view key, double least, double most, double& out) {
  const toml::node* node = find(key);
  if (node == nullptr) return false;
  const auto value = node->value<double>();
  if (!node->is_number() || !value || !(*value >= least && *value <= most)) {
    std::ostringstream range;
    range << "a number from " << least << " to " << most;
    return bad(key, range.str()), false;
  }
  out = *value;
  return true;
}

void Reader::distribution(std::string_view key, Distribution& out) {
  constexpr double kMostUs = 1e8;
  const toml::node* node = find(key);
  if (node == nullptr) return;
  if (node->is_number()) {
    number(key, 0, kMostUs, out.median_us);
  } else if (node->is_table()) {
    Reader inner(*node->as_table(), prefix_ + std::string(key) + ".", file_, error_);
    inner.number("median", 0, kMostUs, out.median_us);
    inner.number("sigma", 0, 5, out.sigma);
    inner.finish();
  } else {
    bad(key, "a number of microseconds or { median = 60, sigma = 0.6 }");
  }
}

void Reader::bad(std::string_view key, const std::string& wanted) {
  problem(table_.get(key)->source(), prefix_ + std::string(key) + " must be " + wanted);
}

void Reader::problem(const toml::source_region& where, const std::string& what) {
  if (!error_.empty()) return;
  error_ = file_ + ":" + std::to_string(where.begin.line) + ": " + what;
}

void Reader::finish() {
  others([this](const toml::key& key, const toml::node&) {
    problem(key.source(),
            "unknown key " + prefix_ + std::string(key.str()) + did_you_mean(key.str(), known_));
  });
}

}  // namespace heddle::scenario
