#include "daemon/plan/predictor.h"

#include <algorithm>
#include <cmath>
#include <istream>
#include <map>
#include <ostream>
#include <set>

#include "daemon/plan/mig.h"
#include "daemon/plan/random.h"

namespace heddle::plan {
namespace {

constexpr const char* kHeader = "heddle-predictor 1";

// Training and inference of a model are one model's.
std::string base_model(const JobCurve& job) {
  return job.model.substr(0, job.model.find("-train"));
}

double sum_of(double use, double times) { return use < 0 ? kNotMeasured : use * times; }

double slice_part(size_t size) {
  return static_cast<double>(kSliceSizes[size]) / static_cast<double>(kComputeSlices);
}

template <class Predict>
Errors measure(const std::vector<Fold>& folds, Predict predict_of) {
  Errors errors;
  for (const Fold& fold : folds) {
    const auto predict = predict_of(fold);
    for (const Example& e : fold.held_out) {
      const double off = std::abs(predict(e) - e.pace);
      errors.absolute += off;
      errors.relative += off / e.pace;
      ++errors.count;
    }
  }
  if (errors.count > 0) {
    errors.absolute /= static_cast<double>(errors.count);
    errors.relative /= static_cast<double>(errors.count);
  }
  return errors;
}

// Shepard's interpolation: the mean of those known samples that `takes` accepts, each by the
// inverse fourth power of how far its shares are; another neighbour is as far as kOther of the GPU.
// NaN if there are none.
template <class Takes>
double nearest_shares(const std::vector<Example>& known, const Example& e, Takes takes) {
  constexpr double kNear = 0.01;  // SM sets of both ends differ by so much
  constexpr double kOther = 0.05;
  double sum = 0, weights = 0;
  for (const Example& k : known) {
    if (!takes(k)) continue;
    const double far = std::hypot(k.share - e.share, k.neighbour_share - e.neighbour_share) +
                       (k.neighbour == e.neighbour ? 0 : kOther);
    const double weight = std::pow(std::max(far, kNear), -4);
    sum += weight * k.pace;
    weights += weight;
  }
  return sum / weights;
}

double mean_curve(const std::vector<Example>& known, const Example& e) {
  if (e.neighbour != nullptr) {
    return nearest_shares(known, e, [](const Example&) { return true; });
  }
  double sum = 0, all = 0;
  size_t count = 0;
  for (const Example& k : known) {
    all += k.pace;
    if (k.size != e.size || k.n != e.n) continue;
    sum += k.pace;
    ++count;
  }
  return count > 0 ? sum / static_cast<double>(count) : all / static_cast<double>(known.size());
}

double interpolate(const std::vector<Example>& known, const Example& e) {
  if (e.neighbour != nullptr) {
    const double pace = nearest_shares(known, e, [&](const Example& k) { return k.job == e.job; });
    return std::isnan(pace) ? mean_curve(known, e) : pace;
  }
  std::map<double, double> shares = {{0, 0}}, times;
  for (const Example& k : known) {
    if (k.job != e.job) continue;
    if (k.n == e.n) shares[kSliceSizes[k.size]] = k.pace;
    if (k.size == e.size) times[static_cast<double>(k.n)] = 1 / k.pace;
  }
  if (shares.size() > 1) return between(shares, kSliceSizes[e.size]);
  if (!times.empty()) {  // who is one more among many takes so much more of the time
    const auto n = static_cast<double>(e.n);
    return 1 / (between(times, n) * std::max(1.0, n / times.rbegin()->first));
  }
  return mean_curve(known, e);
}

// What is learned is by how much a pace differs from this bound, as a ratio: the error that counts
// is the relative one, and a tree does not extend what it has seen.
double log_bound(const Situation& s, FeatureSet set) {
  if (set == FeatureSet::kCurves && s.alone > 0) return std::log(s.alone);
  if (s.beside_share >= 0) {  // SMs of its own, but for half of what both have
    return -std::log(std::max(1.0, s.own.sm / (s.share - s.common() / 2)));
  }
  const double wanted = std::max(s.own.sm, 0.0) + std::max(s.beside.sm, 0.0);
  return -std::log(std::max(1.0, wanted / s.share));
}

}  // namespace

Features features(const Situation& s, FeatureSet set) {
  // What others hold is counted of the slice, as Table I has it: "occupied resources in the
  // partition".
  const double times = 1 / s.slice;
  Features x = {s.online ? 1.0 : 0.0,
                s.share,
                s.own.sm,
                s.own.bandwidth,
                s.own.l2,
                sum_of(s.beside.sm, times),
                sum_of(s.beside.bandwidth, times),
                sum_of(s.beside.l2, times)};
  if (set == FeatureSet::kTableOne) return x;
  const double wanted = std::max(s.own.sm, 0.0) + std::max(s.beside.sm, 0.0);
  if (set == FeatureSet::kCurves) {
    x.insert(x.end(),
             {s.others, std::log(s.alone_ms), s.beside_share, s.common(), s.alone,
              s.alone_left / s.alone, s.beside_alone, std::log(std::max(s.beside_ms, 1e-3)), wanted,
              std::max(s.own.bandwidth, 0.0) + std::max(s.beside.bandwidth, 0.0)});
    return x;
  }
  x.insert(x.end(), {s.others, s.slice, std::log(s.alone_ms), wanted / s.share,
                     std::max(s.own.sm, 0.0) / s.share});
  return x;
}

Situation situation_beside(const JobCurve& job, double share, const JobCurve& other,
                           double other_share, double slice) {
  Situation s;
  s.share = share;
  s.slice = slice;
  s.own = job.use;
  s.alone_ms = job.alone_ms;
  s.others = 1;
  s.beside_share = other_share;
  s.beside_ms = other.alone_ms;
  s.alone = job.alone_at(share);
  // What both have is divided by how busy each keeps its own SMs.
  const double a = std::min(1.0, job.use.sm / share), b = std::min(1.0, other.use.sm / other_share);
  s.alone_left = job.alone_at(share - s.common() * b / (a + b));
  s.beside_alone = other.alone_at(other_share);
  // What the other occupies: SMs that it has, and the memory's time as it is slower.
  s.beside = {std::min(other.use.sm, other_share), sum_of(other.use.bandwidth, s.beside_alone),
              other.use.l2};
  return s;
}

FeatureSet features_for(const JobTable& table) {
  return table.beside.empty() ? FeatureSet::kWider : FeatureSet::kCurves;
}

Situation Example::situation() const {
  if (neighbour != nullptr) return situation_beside(*job, share, *neighbour, neighbour_share, 1);
  const auto others = static_cast<double>(n - 1);
  Situation s;
  s.share = s.slice = slice_part(size);
  s.own = job->use;
  s.beside = {sum_of(job->use.sm, others), sum_of(job->use.bandwidth, others),
              sum_of(job->use.l2, others)};
  s.others = others;
  s.alone_ms = job->alone_ms;
  return s;
}

std::vector<Example> examples(const JobTable& table) {
  std::vector<Example> all;
  for (const Beside& b : table.beside) {
    all.push_back({&table.curves[b.job], 0, 0, b.pace, &table.curves[b.neighbour], b.share,
                   b.neighbour_share});
  }
  if (!all.empty()) return all;
  for (const JobCurve& job : table.curves) {
    for (size_t size = 0; size < kSliceSizes.size(); ++size) {
      for (size_t n = 1; n <= kProcessesMost; ++n) {
        if (const double pace = job.pace[size][n - 1]; pace > 0)
          all.push_back({&job, size, n, pace});
      }
    }
  }
  return all;
}

Predictor train(const std::vector<Example>& examples, FeatureSet set, Learner learner,
                uint64_t seed) {
  Samples samples;
  for (const Example& e : examples) {
    samples.x.push_back(features(e.situation(), set));
    samples.y.push_back(std::log(e.pace) - log_bound(e.situation(), set));
  }
  Predictor p;
  p.set_ = set;
  switch (learner) {
    case Learner::kForest:
      p.learned_ = Forest::grow(samples, {.seed = seed});
      break;
    case Learner::kPerceptron:
      p.learned_ = perceptron(samples, seed);
      break;
    case Learner::kLinear:
      p.learned_ = linear_regression(samples);
      break;
    case Learner::kSupportVectors:
      p.learned_ = support_vectors(samples);
      break;
  }
  return p;
}

double Predictor::pace(const Situation& situation) const {
  return std::exp(learned_->predict(features(situation, set_)) + log_bound(situation, set_));
}

void Predictor::write(std::ostream& out) const {
  out << kHeader << ' ' << kFeatureSetNames[static_cast<size_t>(set_)] << '\n';
  if (const auto* forest = dynamic_cast<const Forest*>(learned_.get())) forest->write(out);
}

Result<Predictor> Predictor::read(std::istream& in, const std::string& name) {
  std::string line;
  std::getline(in, line);
  const std::string header(kHeader);
  Predictor p;
  const auto found = std::find_if(std::begin(kFeatureSetNames), std::end(kFeatureSetNames),
                                  [&](const char* set) { return line == header + ' ' + set; });
  p.set_ = static_cast<FeatureSet>(found - std::begin(kFeatureSetNames));
  if (found == std::end(kFeatureSetNames)) {
    return fail(name + ":1: is no predictor of this heddle; write it with `heddle plan train`");
  }
  auto forest = Forest::read(in, name, features({}, p.set_).size());
  if (!forest) return fail(forest.error().message);
  p.learned_ = std::move(*forest);
  return p;
}

std::vector<Fold> folds(const std::vector<Example>& examples, Split split, uint64_t seed) {
  const auto group_of = [&](const Example& e) {
    std::string group = split == Split::kModels ? base_model(*e.job) : e.job->model;
    if (split != Split::kModels) group += "/" + std::to_string(e.job->batch);
    if (split <= Split::kNeighbours) {
      group += "/" + (e.neighbour != nullptr ? e.neighbour->name() : std::to_string(e.n));
    }
    if (split == Split::kSamples) {
      group +=
          "/" + std::to_string(e.neighbour != nullptr ? static_cast<size_t>(&e - examples.data())
                                                      : e.size);
    }
    return group;
  };
  // As whom it would be held out as a job of its own.
  const auto group_of_neighbour = [&](const Example& e) {
    if (e.neighbour == nullptr || split < Split::kJobs) return std::string();
    return split == Split::kModels ? base_model(*e.neighbour) : e.neighbour->name();
  };
  std::set<std::string> distinct;
  for (const Example& e : examples) distinct.insert(group_of(e));
  std::vector<std::string> groups(distinct.begin(), distinct.end());
  Random random(seed);
  for (size_t i = groups.size(); i > 1; --i) std::swap(groups[i - 1], groups[random.below(i)]);
  // A fifth is held out once, and each model once.
  const size_t count = split == Split::kModels ? groups.size() : 1;
  const size_t of_each = split == Split::kModels ? 1 : std::max<size_t>(groups.size() / 5, 1);
  std::vector<Fold> all(count);
  for (size_t i = 0; i < count; ++i) {
    const auto from = groups.begin() + static_cast<ptrdiff_t>(i * of_each);
    const std::set<std::string> out(from, from + static_cast<ptrdiff_t>(of_each));
    for (const Example& e : examples) {
      if (out.contains(group_of(e))) {
        all[i].held_out.push_back(e);
      } else if (!out.contains(group_of_neighbour(e))) {
        all[i].known.push_back(e);
      }
    }
  }
  std::erase_if(all, [](const Fold& f) { return f.known.empty() || f.held_out.empty(); });
  return all;
}

Errors errors_of(const std::vector<Fold>& folds, FeatureSet set, Learner learner, uint64_t seed) {
  return measure(folds, [&](const Fold& fold) {
    auto predictor = std::make_shared<Predictor>(train(fold.known, set, learner, seed));
    return [predictor](const Example& e) { return predictor->pace(e.situation()); };
  });
}

Errors errors_of_interpolation(const std::vector<Fold>& folds) {
  return measure(folds, [](const Fold& fold) {
    return [&fold](const Example& e) { return interpolate(fold.known, e); };
  });
}

Errors errors_of_mean_curve(const std::vector<Fold>& folds) {
  return measure(folds, [](const Fold& fold) {
    return [&fold](const Example& e) { return mean_curve(fold.known, e); };
  });
}

}  // namespace heddle::plan
