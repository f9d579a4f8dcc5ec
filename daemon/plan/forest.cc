#include <algorithm>
#include <istream>
#include <numeric>
#include <ostream>

#include "daemon/plan/learn.h"
#include "daemon/plan/random.h"

namespace heddle::plan {

class Grower {
 public:
  Grower(const Samples& samples, const Forest::Options& options, Random& random)
      : s_(samples), random_(random) {
    const auto all = static_cast<double>(s_.x.front().size());
    choice_.resize(s_.x.front().size());
    tried_ =
        std::clamp<size_t>(static_cast<size_t>(all * options.features + 0.5), 1, choice_.size());
  }

  Forest::Tree tree() {
    std::vector<size_t> bag(s_.y.size());
    std::iota(bag.begin(), bag.end(), 0);
    tree_.clear();
    grow(bag, 0, bag.size());
    return std::move(tree_);
  }

 private:
  struct Split {
    double gain = 0, threshold = 0;
    size_t feature = 0;
  };

  // The sum of squares falls by the gain. Ties in the feature cannot be told apart.
  void best_of(size_t feature, double total, Split& best) {
    std::sort(column_.begin(), column_.end());
    const auto n = static_cast<double>(column_.size());
    double left = 0;
    for (size_t i = 0; i + 1 < column_.size(); ++i) {
      left += column_[i].second;
      if (column_[i].first == column_[i + 1].first) continue;
      const auto k = static_cast<double>(i + 1);
      const double right = total - left;
      const double gain = left * left / k + right * right / (n - k) - total * total / n;
      if (gain > best.gain * (1 + 1e-12)) {
        best = {gain, (column_[i].first + column_[i + 1].first) / 2, feature};
      }
    }
  }

  void grow(std::vector<size_t>& bag, size_t from, size_t to) {
    const size_t node = tree_.size();
    double total = 0;
    for (size_t i = from; i < to; ++i) total += s_.y[bag[i]];
    tree_.push_back({-1, 0, total / static_cast<double>(to - from)});
    if (to - from < 2) return;
    std::iota(choice_.begin(), choice_.end(), 0);
    Split best;
    for (size_t k = 0; k < tried_; ++k) {
      std::swap(choice_[k], choice_[k + random_.below(choice_.size() - k)]);
      column_.clear();
      for (size_t i = from; i < to; ++i)
        column_.emplace_back(s_.x[bag[i]][choice_[k]], s_.y[bag[i]]);
      best_of(choice_[k], total, best);
    }
    if (best.gain <= 1e-12) return;
    const auto middle = std::partition(
        bag.begin() + static_cast<ptrdiff_t>(from), bag.begin() + static_cast<ptrdiff_t>(to),
        [&](size_t i) { return s_.x[i][best.feature] <= best.threshold; });
    const auto at = static_cast<size_t>(middle - bag.begin());
    if (at == from || at == to) return;  // two values that only rounding parts
    grow(bag, from, at);
    tree_[node] = {static_cast<int32_t>(best.feature), static_cast<uint32_t>(tree_.size()),
                   best.threshold};
    grow(bag, at, to);
  }

  const Samples& s_;
  Random& random_;
  size_t tried_ = 1;
  std::vector<size_t> choice_;
  std::vector<std::pair<double, double>> column_;
  Forest::Tree tree_;
};

std::unique_ptr<Forest> Forest::grow(const Samples& samples, const Options& options) {
  auto forest = std::make_unique<Forest>();
  Random random(options.seed);
  Grower grower(samples, options, random);
  for (uint32_t i = 0; i < options.trees; ++i) forest->trees_.push_back(grower.tree());
  return forest;
}

double Forest::predict(const Features& x) const {
  double sum = 0;
  for (const Tree& tree : trees_) {
    uint32_t at = 0;
    while (tree[at].feature >= 0) {
      const bool left = x[static_cast<size_t>(tree[at].feature)] <= tree[at].value;
      at = left ? at + 1 : tree[at].right;
    }
    sum += tree[at].value;
  }
  return sum / static_cast<double>(trees_.size());
}

// A line a tree: its nodes, each "feature right value".
void Forest::write(std::ostream& out) const {
  out.precision(17);
  for (const Tree& tree : trees_) {
    out << tree.size();
    for (const Node& node : tree)
      out << ' ' << node.feature << ' ' << node.right << ' ' << node.value;
    out << '\n';
  }
}

Result<std::unique_ptr<Forest>> Forest::read(std::istream& in, const std::string& name,
                                             size_t features) {
  constexpr size_t kNodesMost = 1'000'000;
  auto forest = std::make_unique<Forest>();
  size_t nodes = 0;
  while (in >> nodes) {
    const auto bad = [&](const char* what) {
      return fail(name + ": tree " + std::to_string(forest->trees_.size() + 1) + " " + what +
                  "; write the file again with `heddle plan train`");
    };
    if (nodes == 0 || nodes > kNodesMost) return bad("has an impossible size");
    Tree tree;
    for (size_t i = 0; i < nodes; ++i) {
      Node node{};
      if (!(in >> node.feature >> node.right >> node.value)) return bad("is cut off");
      const bool leaf = node.feature == -1;
      // Children come after their parents: so no walk is endless.
      if (!leaf && (node.feature < 0 || static_cast<size_t>(node.feature) >= features ||
                    node.right <= i + 1 || node.right >= nodes)) {
        return bad("is damaged");
      }
      tree.push_back(node);
    }
    forest->trees_.push_back(std::move(tree));
  }
  if (forest->trees_.empty())
    return fail(name + ": holds no tree; write it with `heddle plan train`");
  return forest;
}

}  // namespace heddle::plan
