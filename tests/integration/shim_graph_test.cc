// What the built shim tells of graphs.
#include <gtest/gtest.h>

#include "tests/integration/shim_setting.h"

namespace heddle::shim_test {
namespace {

class ShimOfGraphs : public Shim {
 protected:
  std::vector<Registration> registrations(size_t count) {
    std::vector<Registration> all;
    for (int i = 0; i < 2'000 && all.size() < count; ++i) {
      for (Registration& one : daemon_.registrations()) all.push_back(std::move(one));
      if (all.size() < count) usleep(1'000);
    }
    return all;
  }
};

TEST_F(ShimOfGraphs, RegistersAGraphWithItsKernelsBeforeIt) {
  Attached app(*this, kLease);
  EXPECT_EQ(app("graph_plain"), "0");
  const std::vector<Registration> kernels = registrations(3);
  ASSERT_EQ(kernels.size(), 3u);
  EXPECT_EQ(kernels[0].name, "one_of_many");
  EXPECT_EQ(kernels[1].name, "second_kernel");
  const auto& nodes = kernels[2].nodes;
  ASSERT_EQ(nodes.size(), 2u) << kernels[2].name;
  EXPECT_GT(nodes.at(0), 1u);
  EXPECT_EQ(nodes.at(1), 1u);
  EXPECT_EQ(app("graph_plain"), "0");
  EXPECT_TRUE(daemon_.registrations().empty()) << "the same graph";
}

// The body of a conditional node, and a library's kernel in another context, into which it must not
// be loaded from here.
TEST_F(ShimOfGraphs, CountsWhatItCannotLookAtAmongAGraphsOthers) {
  for (const char* graph : {"graph_while", "graph_far"}) {
    Attached app(*this, kLease);
    EXPECT_EQ(app(graph), "0");
    const std::vector<Registration> kernels = registrations(2);
    ASSERT_EQ(kernels.size(), 2u) << graph;
    EXPECT_EQ(kernels[0].name, "one_of_many");
    EXPECT_EQ(kernels[1].nodes.size(), 1u) << graph;
    EXPECT_EQ(kernels[1].other_nodes, 1u) << graph;
  }
}

}  // namespace
}  // namespace heddle::shim_test
