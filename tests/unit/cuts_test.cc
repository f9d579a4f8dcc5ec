// Where graphs may stand still, from their nodes and edges alone.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "shim/sm/cuts.h"

namespace heddle::shim {
namespace {

using Edges = std::vector<GraphEdge>;
using Nodes = std::vector<uint32_t>;

// Behind which of `count` nodes, of one kernel each.
Nodes cuts(uint32_t count, const Edges& edges, double piece = 1) {
  const Nodes kernels(count, 1);
  Nodes found(count);
  found.resize(find_cuts(kernels, edges, piece, found));
  return found;
}

Edges chain(uint32_t count) {
  Edges edges;
  for (uint32_t i = 0; i + 1 < count; ++i) edges.push_back({i, i + 1});
  return edges;
}

TEST(Cuts, AChainIsCutBehindEachNodeButTheLast) { EXPECT_EQ(cuts(4, chain(4)), (Nodes{0, 1, 2})); }

TEST(Cuts, PiecesHaveSoManyKernels) {
  EXPECT_EQ(cuts(10, chain(10), 3), (Nodes{2, 5}));
  EXPECT_EQ(cuts(10, chain(10), 2.5), (Nodes{2, 5})) << "one that is left is less than half";
  EXPECT_EQ(cuts(10, chain(10), 10), (Nodes{}));
}

TEST(Cuts, ADiamondIsCutWhereItsBranchesMeet) {
  // 0 -> (1, 2) -> 3 -> 4
  EXPECT_EQ(cuts(5, {{0, 1}, {0, 2}, {1, 3}, {2, 3}, {3, 4}}), (Nodes{0, 3}));
}

TEST(Cuts, ABranchThatNeverJoinsLeavesNoCutBehindItsBeginning) {
  // 0 -> 1 -> 2 -> 3, and 1 -> 4
  EXPECT_EQ(cuts(5, {{0, 1}, {1, 2}, {2, 3}, {1, 4}}), (Nodes{0, 1}));
}

TEST(Cuts, AnEdgePastANodeLeavesItACut) {
  EXPECT_EQ(cuts(4, {{0, 1}, {1, 2}, {2, 3}, {0, 3}}), (Nodes{0, 1, 2}));
}

TEST(Cuts, ComponentsHaveNone) {
  EXPECT_EQ(cuts(4, {{0, 1}, {2, 3}}), (Nodes{}));
  EXPECT_EQ(cuts(3, {{0, 1}}), (Nodes{}));
}

TEST(Cuts, TwoRootsAreCutWhereTheyMeet) {
  EXPECT_EQ(cuts(4, {{0, 2}, {1, 2}, {2, 3}}), (Nodes{2}));
}

TEST(Cuts, NothingHasNone) {
  EXPECT_EQ(cuts(0, {}), (Nodes{}));
  EXPECT_EQ(cuts(1, {}), (Nodes{}));
}

TEST(Cuts, AProgrammaticEdgeIsNotCutAcross) {
  EXPECT_EQ(cuts(4, {{0, 1}, {1, 2, true}, {2, 3}}), (Nodes{0, 2}));
  EXPECT_EQ(cuts(5, {{0, 1}, {1, 2}, {2, 3}, {3, 4}, {0, 3, true}}), (Nodes{3}));
}

TEST(Cuts, NodesInNoOrderAreCutAlike) {
  EXPECT_EQ(cuts(4, {{3, 1}, {1, 0}, {0, 2}}), (Nodes{3, 1, 0}));
}

TEST(Cuts, NodesWithoutKernelsAreCutsAndCountForNothing) {
  const Nodes kernels{0, 1, 0, 1, 5};
  Nodes found(5);
  found.resize(find_cuts(kernels, chain(5), 2, found));
  EXPECT_EQ(found, (Nodes{3}));
}

TEST(Cuts, ThereAreNoMoreThanThereIsRoomFor) {
  const Nodes kernels(10, 1);
  Nodes found(2);
  EXPECT_EQ(find_cuts(kernels, chain(10), 1, found), 2u);
}

TEST(Cuts, WhatIsNoGraphHasNone) {
  EXPECT_EQ(cuts(3, {{0, 1}, {1, 2}, {2, 0}}), (Nodes{}));
  EXPECT_EQ(cuts(2, {{0, 7}}), (Nodes{}));
}

// By what the words say: each other node has a path to it, or from it.
Nodes cuts_by_paths(uint32_t count, const Edges& edges) {
  std::vector<std::vector<bool>> reaches(count, std::vector<bool>(count));
  for (uint32_t from = count; from-- > 0;) {  // edges lead to higher numbers
    for (const GraphEdge& edge : edges) {
      if (edge.from != from) continue;
      reaches[from][edge.to] = true;
      for (uint32_t to = 0; to < count; ++to) {
        if (reaches[edge.to][to]) reaches[from][to] = true;
      }
    }
  }
  Nodes found;
  for (uint32_t node = 0; node < count; ++node) {
    bool cut = false;  // unless something is behind it
    for (uint32_t other = node + 1; other < count; ++other) cut = true;
    for (uint32_t other = 0; other < count; ++other) {
      if (other != node && !reaches[node][other] && !reaches[other][node]) cut = false;
    }
    for (const GraphEdge& edge : edges) {
      if (edge.programmatic && edge.from <= node && edge.to > node) cut = false;
    }
    if (cut) found.push_back(node);
  }
  return found;
}

TEST(Cuts, RandomGraphsAreCutWhereAllOthersPrecedeOrFollow) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  size_t seen = 0;
  for (int round = 0; round < 2'000; ++round) {
    const auto count = static_cast<uint32_t>(1 + random() % 12);
    Edges edges;
    for (uint32_t to = 1; to < count; ++to) {
      for (uint32_t n = random() % 4; n-- > 0;) {
        const auto back = static_cast<uint32_t>(1 + random() % std::min(to, 4u));
        edges.push_back({to - back, to, random() % 16 == 0});
      }
    }
    const Nodes found = cuts(count, edges);
    ASSERT_EQ(found, cuts_by_paths(count, edges)) << count << " nodes";
    seen += found.size();
  }
  EXPECT_GT(seen, 500u);
}

TEST(Cuts, AHundredThousandNodesTakeNoTime) {
  EXPECT_EQ(cuts(100'000, chain(100'000)).size(), 99'999u);
}

}  // namespace
}  // namespace heddle::shim
