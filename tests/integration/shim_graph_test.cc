// What the built shim tells of graphs.
#include <gtest/gtest.h>

#include "tests/integration/shim_setting.h"

namespace heddle::shim_test {
namespace {

TEST_F(Shim, RegistersAGraphWithItsKernelsBeforeIt) {
  Application app(environment());
  start(app, kLease);
  EXPECT_EQ(app("graph_plain"), "0");
  std::vector<Registration> kernels;
  for (int i = 0; i < 2'000 && kernels.size() < 3; ++i) {
    for (Registration& one : daemon_.registrations()) kernels.push_back(std::move(one));
    if (kernels.size() < 3) usleep(1'000);
  }
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

}  // namespace
}  // namespace heddle::shim_test
