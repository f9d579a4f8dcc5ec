// The small texts inside a scenario: policies, baselines, arrivals, expectations.
#include <algorithm>
#include <charconv>
#include <utility>

#include "bench/scenario/scenario.h"
#include "daemon/base/nearest.h"

namespace heddle::scenario {
namespace {

template <class T>
bool to_number(std::string_view text, T& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size();
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

std::string quoted(std::string_view text) {
  return std::string(1, '\'').append(text).append(1, '\'');
}

// "75/25": one number for each job.
Result<std::vector<uint32_t>> numbers(std::string_view text, size_t count, uint32_t most) {
  std::vector<uint32_t> out;
  for (const std::string_view part : split(text, '/')) {
    uint32_t value = 0;
    if (!to_number(part, value) || value == 0 || value > most) {
      return fail(quoted(part) + " must be a whole number from 1 to " + std::to_string(most));
    }
    out.push_back(value);
  }
  if (out.size() != count) {
    return fail(quoted(text) + " has " + std::to_string(out.size()) + " parts for " +
                std::to_string(count) + " jobs; write one for each, with '/' between");
  }
  return out;
}

Result<std::vector<uint32_t>> percentages(std::string_view text, const std::vector<Job>& jobs) {
  constexpr uint32_t kAll = 100;
  if (text.find('/') != std::string_view::npos) return numbers(text, jobs.size(), kAll);
  const auto one = numbers(text, 1, kAll);
  if (!one) return one;
  std::vector<uint32_t> out;
  for (const Job& job : jobs) out.push_back(job.role == Role::kBatch ? one->front() : kAll);
  return out;
}

Result<std::vector<SmShare>> shares(std::string_view text, const std::vector<Job>& jobs) {
  std::vector<SmShare> out;
  if (text.find('/') == std::string_view::npos) {
    const auto one = numbers(text, 1, 99);
    if (!one) return fail(one.error().message);
    for (const Job& job : jobs) {
      out.push_back(job.role == Role::kBatch ? SmShare{0, one->front()}
                                             : SmShare{one->front(), 100});
    }
    return out;
  }
  const auto each = numbers(text, jobs.size(), 100);
  if (!each) return fail(each.error().message);
  uint32_t from = 0;
  for (const uint32_t part : *each) {
    out.push_back({from, from + part});
    from += part;
  }
  if (from > 100) return fail(quoted(text) + " is more than 100 percent of the SMs");
  return out;
}

}  // namespace

Result<PolicyRow> parse_policy(std::string_view text) {
  PolicyRow row;
  row.text = text;
  if (const size_t at = text.rfind('@'); at != std::string_view::npos) {
    std::string_view where = text.substr(at + 1);
    if (const size_t slash = where.find('/'); slash != std::string_view::npos) {
      row.job = where.substr(slash + 1);
      where = where.substr(0, slash);
    }
    row.timeslice = where == "timeslice";
    row.client_priority = where == "mps+priority";
    row.mps = where == "mps" || row.client_priority;
    if (!row.timeslice && !row.mps) {
      return fail(quoted(text) + ": after '@' comes timeslice, mps or mps+priority, and /JOB");
    }
    text = text.substr(0, at);
  }
  const size_t colon = text.find(':');
  row.policy = text.substr(0, colon);
  if (row.policy.empty()) return fail("a policy has a name, such as 'gapfill:share_pct=60'");
  if (colon == std::string_view::npos) return row;
  for (const std::string_view item : split(text.substr(colon + 1), ',')) {
    const size_t equals = item.find('=');
    if (equals == 0 || equals == std::string_view::npos || equals + 1 == item.size()) {
      return fail(quoted(text) + ": " + quoted(item) + " is not NAME=VALUE, as in share_pct=60");
    }
    const std::string name(item.substr(0, equals));
    (name.find('.') == std::string::npos ? row.params : row.config)[name] = item.substr(equals + 1);
  }
  return row;
}

Result<Baseline> parse_baseline(std::string_view text, const std::vector<Job>& jobs) {
  Baseline row;
  row.text = text;
  const size_t colon = text.find(':');
  const std::string_view word = text.substr(0, colon);
  if (colon != std::string_view::npos) {
    const auto put = [&](auto&& parts, auto& out) -> Result<Baseline> {
      if (!parts) return fail(quoted(text) + ": " + parts.error().message);
      out = *parts;
      return row;
    };
    row.kind = word == "mps" ? BaselineKind::kMpsPercent : BaselineKind::kSplit;
    if (word == "mps") return put(percentages(text.substr(colon + 1), jobs), row.parts);
    if (word == "split") return put(shares(text.substr(colon + 1), jobs), row.shares);
    return fail(quoted(text) +
                ": only mps: and split: take percentages, as in mps:25, split:75/25");
  }
  static constexpr std::pair<std::string_view, BaselineKind> kKinds[] = {
      {"timeslice", BaselineKind::kTimeslice},
      {"mps", BaselineKind::kMps},
      {"mps+priority", BaselineKind::kMpsPriority},
      {"exclusive", BaselineKind::kExclusive}};
  std::vector<std::string_view> known;
  for (const auto& [name, kind] : kKinds) {
    known.push_back(name);
    if (name != word) continue;
    row.kind = kind;
    return row;
  }
  known.insert(known.end(), {"mps:25", "split:25"});
  return fail("no baseline " + quoted(text) + did_you_mean(text, known));
}

Result<Arrivals> parse_arrivals(std::string_view text) {
  Arrivals out;
  const size_t space = text.find(' ');
  const std::string_view word = text.substr(0, space);
  const std::string_view rest = space == std::string_view::npos ? "" : text.substr(space + 1);
  if (text == "closed") return out;
  if (word == "recorded" && !rest.empty()) {
    out.kind = ArrivalKind::kRecorded;
    out.file = rest;
    return out;
  }
  std::string_view rate = rest;
  bool good = word == "open" || word == "poisson" || word == "onoff";
  out.kind = word == "poisson" ? ArrivalKind::kPoisson
             : word == "onoff" ? ArrivalKind::kOnOff
                               : ArrivalKind::kOpen;
  const bool share = good && rate.ends_with('%');
  if (share) rate.remove_suffix(1);
  if (word == "burst") {
    const size_t gap = std::min(rest.find(' '), rest.size());
    good = to_number(rest.substr(0, gap), out.burst) && out.burst > 0;
    rate = rest.substr(std::min(gap + 1, rest.size()));
    out.kind = ArrivalKind::kBurst;
  }
  if (good && to_number(rate, out.per_s) && out.per_s > 0 && out.per_s <= 1e6) {
    if (share) out.load = std::exchange(out.per_s, 0) / 100;
    return out;
  }
  return fail(
      quoted(text) +
      " must be \"closed\", \"open 30\", \"poisson 30\", \"onoff 30\" (a second) or \"poisson "
      "50%\" (of what the job alone serves), \"burst 20 0.5\" (20 requests at once, 0.5 "
      "times a second) or \"recorded FILE\"");
}

Result<Expectation> parse_expectation(std::string_view text) {
  Expectation out;
  out.text = text;
  const auto wrong = [&] {
    return fail(quoted(text) +
                " must be ROW: FIGURE [/ ROW] <= NUMBER [x idle JOB] (SOURCE), as in "
                "\"gapfill@mps: service mean / mps <= 0.8 (us)\"; >= likewise");
  };
  const size_t colon = text.find(": "), open = text.find(" (");
  if (colon == std::string_view::npos || open == std::string_view::npos || open < colon ||
      text.back() != ')') {
    return wrong();
  }
  out.row = text.substr(0, colon);
  out.source = text.substr(open + 2, text.size() - open - 3);
  const std::string_view claim = text.substr(colon + 2, open - colon - 2);
  const size_t sign = std::min(claim.find(" <= "), claim.find(" >= "));
  if (sign == std::string_view::npos) return wrong();
  out.at_most = claim[sign + 1] == '<';
  const std::string_view figure = claim.substr(0, sign), bound = claim.substr(sign + 4);
  const size_t over = figure.find(" / "), idle = bound.find(" x idle ");
  out.figure = figure.substr(0, over);
  if (over != std::string_view::npos) out.over = figure.substr(over + 3);
  if (idle != std::string_view::npos) out.idle_of = bound.substr(idle + 8);
  if (out.row.empty() || out.figure.empty() || out.figure.front() == ' ' ||
      !to_number(bound.substr(0, idle), out.bound)) {
    return wrong();
  }
  return out;
}

}  // namespace heddle::scenario
