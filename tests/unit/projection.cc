#include "tests/unit/projection.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <sstream>

namespace heddle::core {
namespace {

// What a line says.
struct Parsed {
  std::vector<double> let_go, held;
  double longest_us = 0;
  std::map<std::string, double> places;
};

Parsed parse(const std::string& line) {
  Parsed all;
  std::string word;
  std::istringstream text(line);
  text >> word;
  for (std::vector<double>* series : {&all.let_go, &all.held}) {
    for (double pct = 0; text >> pct;) series->push_back(pct);
    text.clear();
    text.ignore(1);  // the semicolon
  }
  text >> all.longest_us;
  text.ignore(1);
  while (text >> word) {
    const size_t equals = word.find('=');
    all.places[word.substr(0, equals)] = std::stod(word.substr(equals + 1));
  }
  return all;
}

std::string say(const char* what, double was, double is) {
  std::ostringstream text;
  text << what << " was " << was << " and is " << is;
  return text.str();
}

// `was` may have come a bucket sooner or later.
std::string difference_of(const char* what, std::vector<double> was, std::vector<double> is) {
  if (was.size() != is.size()) return "another length";
  for (auto* series : {&was, &is})
    std::partial_sum(series->begin(), series->end(), series->begin());
  for (size_t i = 0; i < was.size(); ++i) {
    const double slack = Projection::kSlackPct + Projection::kSlackOfSum * std::max(was[i], is[i]);
    const double least = i == 0 ? 0 : was[i - 1], most = was[std::min(i + 1, was.size() - 1)];
    if (is[i] >= least - slack && is[i] <= most + slack) continue;
    return say(what, was[i], is[i]) + " % of 10 ms, after " + std::to_string(i + 1) + "0 ms";
  }
  return "";
}

}  // namespace

double& Projection::at_bucket(std::vector<double>& buckets, TimeNs at) {
  const auto bucket = static_cast<size_t>(at / kBucketNs);
  if (buckets.size() <= bucket) buckets.resize(bucket + 1);
  return buckets[bucket];
}

void Projection::let_go(TimeNs at, double us, SmSet set, int priority) {
  at_bucket(let_go_us_, at) += us;
  char place[32];
  std::snprintf(place, sizeof place, "%x/%d", static_cast<unsigned>(set.bits()), priority);
  places_us_[set.empty() ? "all" + std::string(place + 1) : place] += us;
}

void Projection::sample(TimeNs at, bool held) {
  const double us = to_us(kSampleNs);
  at_bucket(let_go_us_, at - 1) += 0;
  at_bucket(held_us_, at - 1) += held ? us : 0;
  holding_us_ = held ? holding_us_ + us : 0;
  longest_us_ = std::max(longest_us_, holding_us_);
}

std::string Projection::line(const std::string& name) const {
  std::ostringstream text;
  text << name;
  for (const auto* series : {&let_go_us_, &held_us_}) {
    for (const double us : *series) text << ' ' << std::llround(100 * us / to_us(kBucketNs));
    text << ';';
  }
  text << ' ' << longest_us_ << ';';
  double all_us = 0;
  for (const auto& [place, us] : places_us_) all_us += us;
  for (const auto& [place, us] : places_us_) {
    if (us >= 0.01 * all_us) text << ' ' << place << '=' << std::llround(100 * us / all_us);
  }
  return text.str();
}

std::string Projection::difference(const std::string& was_line, const std::string& is_line) {
  const Parsed was = parse(was_line), is = parse(is_line);
  std::string differs = difference_of("let go:", was.let_go, is.let_go);
  if (differs.empty()) differs = difference_of("held:", was.held, is.held);
  if (!differs.empty()) return differs;
  const double longest_us = std::max(was.longest_us, is.longest_us);
  if (std::abs(was.longest_us - is.longest_us) > kLongestUs + longest_us / 2) {
    return say("held at most, in us,", was.longest_us, is.longest_us);
  }
  std::map<std::string, std::pair<double, double>> places;  // before, now
  for (const auto& [place, pct] : was.places) places[place].first = pct;
  for (const auto& [place, pct] : is.places) places[place].second = pct;
  for (const auto& [place, pct] : places) {
    if (std::abs(pct.first - pct.second) > kPlacePct) {
      return say(("share of " + place).c_str(), pct.first, pct.second);
    }
  }
  return "";
}

}  // namespace heddle::core
