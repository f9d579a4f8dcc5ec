// The file of a run: what was measured, where, how, and the raw blocks. Written after every block,
// so that what was measured survives whatever comes next.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "bench/runner/figures.h"

namespace heddle::bench {

class Result {
 public:
  // A new file; it must not be there yet; an empty path: kept in memory until save_as(). Throws
  // std::runtime_error with place and remedy, here and below.
  static Result create(const std::string& path, const scenario::Scenario& scenario,
                       const std::vector<Row>& rows, bool simulated, const std::string& gpu);
  // One that an earlier run of the same scenario text, rows and GPU left. A repetition that was cut
  // short is begun again: ratios are taken within one, on one machine.
  static Result resume(const std::string& path, const scenario::Scenario& scenario,
                       const std::vector<Row>& rows, bool simulated, const std::string& gpu);

  Json& head() { return head_; }  // everything but the raw blocks
  const std::vector<Block>& blocks() const { return blocks_; }
  const std::string& path() const { return path_; }
  uint64_t seed() const { return head_.at("seed"); }
  // Of a scenario that is measured apart: of the first part, and then of the second.
  uint32_t repetitions_done() const { return head_.at("repetitions_done"); }

  void add(const Block& block);  // and saves
  void end_repetition();
  void error(const std::string& text);
  void save() const;
  void save_as(const std::string& path);  // whatever is there is replaced

 private:
  explicit Result(std::string path) : path_(std::move(path)) {}

  std::string path_;
  Json head_;
  std::vector<Block> blocks_;
  std::vector<std::string> lines_;  // the blocks as they are written
};

// Whether the outputs of bare runs agree with each other, and heddle's with them, by the digests of
// a result: {"control_equal", "heddle_equal"}, each true, false, or null if none was compared. With
// an MPS thread percentage a program sees fewer SMs and chooses other kernels: it is compared with
// its like only.
Json outputs(const Json& digests);

// JSON that a person can read and a diff can show: long objects on several lines.
std::string render(const Json& value, int depth = 0);

// A result without its blocks, and {"few": n} in the place of figures of fewer slices than
// kForInterval: two gave such as [0, 4.59].
Json shown(const Json& result);

Json read_json(const std::string& path);
// `blocks`: the raw ones, a line each. Throws as above.
void write_result(const std::string& path, const Json& head,
                  const std::vector<std::string>& blocks);

// A file that was cut, or is of another release, lacks what a table is made of.
template <class Make>
auto whole(const std::vector<std::string>& files, Make&& make) {
  try {
    return make();
  } catch (const Json::exception& error) {
    std::string names;
    for (const std::string& file : files) names += (names.empty() ? "" : ", ") + file;
    throw std::runtime_error(names + ": incomplete, or of another release (" + error.what() +
                             "); measure again, or finish it by --resume");
  }
}

}  // namespace heddle::bench
