// Results that the repository keeps: `heddle-bench keep` leaves of one what tables are made of, the
// raw blocks packed (pack.h), and `table` computes every figure from those again.
#pragma once

#include <string>

#include "bench/runner/figures.h"

namespace heddle::bench {

// Figures, ratios, idle fractions and what is expected, of whatever was measured so far.
Json figures_of(const scenario::Scenario& scenario, const std::vector<Row>& rows,
                const std::vector<Block>& blocks, const Json& profiles);

// The result with those of its blocks, as this release computes them; as it is if it has no blocks,
// or is of a release that did not say what its rows were. Throws std::runtime_error, which names
// the file, and the place in it.
Json figured(Json result, const std::string& file);

// Prints that as JSON, with the times of its blocks as `run` writes them: for other programs. An
// exit status.
int print_figured(const std::string& file);

// What is kept of a result.
Json kept(const Json& result);

// Writes that; an exit status.
int keep(const std::string& from, const std::string& to);

}  // namespace heddle::bench
