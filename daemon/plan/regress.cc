// The learners that the forest is compared with.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "daemon/plan/learn.h"
#include "daemon/plan/random.h"

namespace heddle::plan {
namespace {

// Features, and the target, at mean 0 and deviation 1.
class Scale {
 public:
  explicit Scale(const Samples& s) : mean_(s.x.front().size()), deviation_(mean_.size()) {
    const auto n = static_cast<double>(s.y.size());
    for (size_t f = 0; f < mean_.size(); ++f) {
      double sum = 0, squares = 0;
      for (const Features& x : s.x) sum += x[f];
      mean_[f] = sum / n;
      for (const Features& x : s.x) squares += (x[f] - mean_[f]) * (x[f] - mean_[f]);
      deviation_[f] = std::sqrt(squares / n) + 1e-9;
    }
    double sum = 0, squares = 0;
    for (double y : s.y) sum += y;
    y_mean_ = sum / n;
    for (double y : s.y) squares += (y - y_mean_) * (y - y_mean_);
    y_deviation_ = std::sqrt(squares / n) + 1e-9;
  }

  Features in(const Features& x) const {
    Features scaled(x.size());
    for (size_t f = 0; f < x.size(); ++f) scaled[f] = (x[f] - mean_[f]) / deviation_[f];
    return scaled;
  }
  double in(double y) const { return (y - y_mean_) / y_deviation_; }
  double out(double y) const { return y * y_deviation_ + y_mean_; }

  Samples in(const Samples& s) const {
    Samples scaled;
    for (const Features& x : s.x) scaled.x.push_back(in(x));
    for (double y : s.y) scaled.y.push_back(in(y));
    return scaled;
  }

 private:
  Features mean_, deviation_;
  double y_mean_ = 0, y_deviation_ = 1;
};

class Linear : public Learned {
 public:
  explicit Linear(const Samples& samples) : scale_(samples) {
    const Samples s = scale_.in(samples);
    const size_t p = s.x.front().size();
    std::vector<Features> a(p, Features(p + 1));
    for (size_t i = 0; i < s.y.size(); ++i) {
      for (size_t r = 0; r < p; ++r) {
        for (size_t c = 0; c < p; ++c) a[r][c] += s.x[i][r] * s.x[i][c];
        a[r][p] += s.x[i][r] * s.y[i];
      }
    }
    // A feature that is the same everywhere would be singular.
    for (size_t r = 0; r < p; ++r) a[r][r] += 1e-6 * static_cast<double>(s.y.size());
    for (size_t r = 0; r < p; ++r) {  // positive definite: needs no pivots
      for (size_t k = r + 1; k < p; ++k) {
        const double times = a[k][r] / a[r][r];
        for (size_t c = r; c <= p; ++c) a[k][c] -= times * a[r][c];
      }
    }
    weight_.resize(p);
    for (size_t r = p; r-- > 0;) {
      double rest = a[r][p];
      for (size_t c = r + 1; c < p; ++c) rest -= a[r][c] * weight_[c];
      weight_[r] = rest / a[r][r];
    }
  }
  double predict(const Features& x) const override {
    const Features scaled = scale_.in(x);
    return scale_.out(std::inner_product(scaled.begin(), scaled.end(), weight_.begin(), 0.0));
  }

 private:
  Scale scale_;
  Features weight_;
};

// Minimizes 1/2 b'Kb - y'b + epsilon |b| over b in [-C, C], coordinate by coordinate. The kernel
// holds the constant.
class SupportVectors : public Learned {
 public:
  explicit SupportVectors(const Samples& samples)
      : scale_(samples), s_(scale_.in(samples)), b_(s_.y.size()) {
    constexpr double kC = 10, kEpsilon = 0.1;
    constexpr int kSweeps = 40;
    const size_t n = s_.y.size();
    std::vector<float> k(n * n);
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) k[i * n + j] = static_cast<float>(kernel(s_.x[i], s_.x[j]));
    }
    Features f(n);
    for (int sweep = 0; sweep < kSweeps; ++sweep) {
      for (size_t i = 0; i < n; ++i) {
        const auto diagonal = static_cast<double>(k[i * n + i]);
        const double to = b_[i] * diagonal - f[i] + s_.y[i];
        const double soft = std::copysign(std::max(std::abs(to) - kEpsilon, 0.0), to);
        const double value = std::clamp(soft / diagonal, -kC, kC);
        const double change = value - b_[i];
        if (std::abs(change) < 1e-9) continue;
        b_[i] = value;
        for (size_t j = 0; j < n; ++j) f[j] += change * static_cast<double>(k[i * n + j]);
      }
    }
  }
  double predict(const Features& x) const override {
    const Features scaled = scale_.in(x);
    double sum = 0;
    for (size_t i = 0; i < b_.size(); ++i) {
      if (b_[i] != 0) sum += b_[i] * kernel(s_.x[i], scaled);
    }
    return scale_.out(sum);
  }

 private:
  static double kernel(const Features& a, const Features& b) {
    double squares = 0;
    for (size_t f = 0; f < a.size(); ++f) squares += (a[f] - b[f]) * (a[f] - b[f]);
    return 1 + std::exp(-squares / static_cast<double>(a.size()));
  }
  Scale scale_;
  Samples s_;
  Features b_;
};

class Perceptron : public Learned {
 public:
  Perceptron(const Samples& samples, uint64_t seed)
      : scale_(samples), inputs_(samples.x.front().size()), w_(kHidden * (inputs_ + 2) + 1) {
    const Samples s = scale_.in(samples);
    Random random(seed);
    const double width = 1 / std::sqrt(static_cast<double>(inputs_));
    for (double& w : w_) w = random.normal() * width;
    Features gradient(w_.size()), mean(w_.size()), square(w_.size());
    constexpr size_t kEpochs = 200, kBatch = 32;
    double step = 0;
    for (size_t epoch = 0; epoch < kEpochs; ++epoch) {
      const double rate = 0.01 * (1 - static_cast<double>(epoch) / kEpochs);
      for (size_t batch = 0; batch < s.y.size(); batch += kBatch) {
        std::fill(gradient.begin(), gradient.end(), 0.0);
        for (size_t i = 0; i < kBatch; ++i) {
          const size_t k = random.below(s.y.size());
          add_gradient(s.x[k], s.y[k], gradient);
        }
        ++step;
        for (size_t i = 0; i < w_.size(); ++i) {  // Adam
          const double g = gradient[i] / kBatch;
          mean[i] = 0.9 * mean[i] + 0.1 * g;
          square[i] = 0.999 * square[i] + 0.001 * g * g;
          const double m = mean[i] / (1 - std::pow(0.9, step));
          const double v = square[i] / (1 - std::pow(0.999, step));
          w_[i] -= rate * m / (std::sqrt(v) + 1e-8);
        }
      }
    }
  }
  double predict(const Features& x) const override {
    std::array<double, kHidden> hidden{};
    return scale_.out(run(scale_.in(x), hidden));
  }

 private:
  static constexpr size_t kHidden = 32;

  // Weights of unit h: its inputs, its constant, and that to the output; last the output's
  // constant.
  double run(const Features& x, std::array<double, kHidden>& hidden) const {
    double sum = w_.back();
    for (size_t h = 0; h < kHidden; ++h) {
      const double* w = &w_[h * (inputs_ + 2)];
      hidden[h] = std::tanh(std::inner_product(x.begin(), x.end(), w, w[inputs_]));
      sum += hidden[h] * w[inputs_ + 1];
    }
    return sum;
  }
  void add_gradient(const Features& x, double y, Features& gradient) const {
    std::array<double, kHidden> hidden{};
    const double error = run(x, hidden) - y;
    gradient.back() += error;
    for (size_t h = 0; h < kHidden; ++h) {
      const size_t at = h * (inputs_ + 2);
      gradient[at + inputs_ + 1] += error * hidden[h];
      const double back = error * w_[at + inputs_ + 1] * (1 - hidden[h] * hidden[h]);
      for (size_t f = 0; f < inputs_; ++f) gradient[at + f] += back * x[f];
      gradient[at + inputs_] += back;
    }
  }
  Scale scale_;
  size_t inputs_;
  Features w_;
};

}  // namespace

std::unique_ptr<Learned> linear_regression(const Samples& samples) {
  return std::make_unique<Linear>(samples);
}
std::unique_ptr<Learned> support_vectors(const Samples& samples) {
  return std::make_unique<SupportVectors>(samples);
}
std::unique_ptr<Learned> perceptron(const Samples& samples, uint64_t seed) {
  return std::make_unique<Perceptron>(samples, seed);
}

}  // namespace heddle::plan
