// Pieces of the shim that need no driver: its messages, and finding a library in ld.so.cache.
// The rest is tested in a real process: tests/integration/shim_integration_test.cc.
#include <capnp/message.h>
#include <capnp/serialize.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "ipc/heddle.capnp.h"
#include "shim/admission/gate.h"
#include "shim/driver/cache.h"
#include "shim/link/check.h"
#include "shim/link/messages.h"
#include "shim/link/part.h"

namespace heddle::shim {
namespace {

TEST(Check, ShimCountsAFailedOneAndGoesOn) {
  EXPECT_TRUE(holds(true));
  EXPECT_EQ(broken_checks, 0u);
  EXPECT_FALSE(holds(false));
  EXPECT_EQ(broken_checks.exchange(0), 1u);
}

TEST(Part, IsReadByDigitsAndNothingElse) {
  for (const auto& [text, part] :
       {std::pair("0.3", 0.3f), {"0.300000", 0.3f}, {".25", 0.25f}, {"1", 1.f}, {"1.0", 1.f}}) {
    EXPECT_FLOAT_EQ(part_of(text), part) << text;
  }
  for (const char* text : {"", "30%", "0,3", "30", "0", "0.001", "-0.3", "1.2.3", "nan", "0.3 "}) {
    EXPECT_EQ(part_of(text), 0) << text;
  }
}

template <class Check>
void decode(const Packet& packet, Check&& check) {
  ASSERT_EQ(packet.size % sizeof(capnp::word), 0u);
  capnp::FlatArrayMessageReader reader(kj::arrayPtr(
      reinterpret_cast<const capnp::word*>(packet.bytes), packet.size / sizeof(capnp::word)));
  check(reader.getRoot<wire::Message>());
}

TEST(ShimMessages, AttachCarriesItsFacts) {
  Packet packet;
  AttachFacts facts;
  facts.label = "label";
  facts.command = "python train.py";
  facts.priority = 9;
  facts.driver_version = 13000;
  facts.device_count = 2;
  facts.sm_count = 132;
  facts.mps = true;
  facts.gpu_name = "NVIDIA H200";
  facts.gpu_id_count = 2;
  facts.gpu_ids[1].bytes[15] = 7;
  build_attach(packet, facts);
  decode(packet, [](wire::Message::Reader message) {
    ASSERT_TRUE(message.isAttach());
    const auto attach = message.getAttach();
    EXPECT_EQ(attach.getProtocolVersion(), ipc::kProtocolVersion);
    EXPECT_STREQ(attach.getLabel().cStr(), "label");
    EXPECT_STREQ(attach.getCommand().cStr(), "python train.py");
    EXPECT_EQ(attach.getPriority(), 9);
    EXPECT_EQ(attach.getDriverVersion(), 13000u);
    EXPECT_EQ(attach.getDeviceCount(), 2u);
    ASSERT_EQ(attach.getGpuIds().size(), 32u);
    EXPECT_EQ(attach.getGpuIds()[31], 7);
    EXPECT_EQ(attach.getSmCount(), 132u);
    EXPECT_TRUE(attach.getMps());
    const auto seconds = [](uint64_t ns) { return static_cast<double>(ns) / 1e9; };
    EXPECT_NEAR(seconds(attach.getMonotonicNs()), static_cast<double>(now_ns()) / 1e9, 10);
    EXPECT_NEAR(seconds(attach.getWallNs()), static_cast<double>(time(nullptr)), 10);
    EXPECT_STREQ(attach.getGpuName().cStr(), "NVIDIA H200");
  });
}

TEST(ShimMessages, CutsWhatIsTooLong) {
  const std::string longest(100'000, 'x');
  Packet packet;
  AttachFacts facts;
  facts.label = facts.command = facts.gpu_name = longest;
  build_attach(packet, facts);
  decode(packet, [](wire::Message::Reader message) {
    EXPECT_EQ(message.getAttach().getLabel().size(), ipc::kLabelBytes);
    EXPECT_EQ(message.getAttach().getGpuName().size(), ipc::kLabelBytes);
    EXPECT_GE(message.getAttach().getCommand().size(), 1024u);
  });
  KernelFacts kernel;
  kernel.name = longest;
  build_kernel(packet, kernel);
  decode(packet, [](wire::Message::Reader message) {
    EXPECT_EQ(message.getRegisterKernel().getName().size(), ipc::kKernelNameBytes);
  });
}

TEST(ShimMessages, KernelCarriesItsShape) {
  KernelFacts kernel{77, "gemm", {{1, 2, 3}, {4, 5, 6}, 7, 8}, 9, 10, 11, 12, 0};
  Packet packet;
  build_kernel(packet, kernel);
  decode(packet, [](wire::Message::Reader message) {
    ASSERT_TRUE(message.isRegisterKernel());
    const auto out = message.getRegisterKernel();
    EXPECT_EQ(out.getId(), 77u);
    EXPECT_STREQ(out.getName().cStr(), "gemm");
    EXPECT_EQ(out.getGridZ(), 3u);
    EXPECT_EQ(out.getBlockX(), 4u);
    EXPECT_EQ(out.getDynamicSmemBytes(), 7u);
    EXPECT_EQ(out.getClusterBlocks(), 8u);
    EXPECT_EQ(out.getIndex(), 9u);
    EXPECT_EQ(out.getRegistersPerThread(), 10u);
    EXPECT_EQ(out.getStaticSmemBytes(), 11u);
    EXPECT_EQ(out.getMaxBlocksPerSm(), 12u);
    EXPECT_FALSE(out.getIsGraph());
  });
}

TEST(ShimMessages, AGraphsGridIsItsNodesAndItCarriesItsKernels) {
  KernelFacts graph{77, "graph:4d", {}, 9};
  graph.graph_nodes = 300;
  const std::vector<GraphNode> nodes(ipc::kGraphNodes, {8191, 65535});
  const std::string longest(ipc::kKernelNameBytes, 'x');
  graph.name = longest;
  graph.nodes = nodes;
  graph.other_nodes = 44;
  Packet packet;
  build_kernel(packet, graph);
  decode(packet, [](wire::Message::Reader message) {
    const auto out = message.getRegisterKernel();
    EXPECT_TRUE(out.getIsGraph());
    EXPECT_EQ(out.getGridX(), 300u);
    EXPECT_EQ(out.getGridY() * out.getGridZ(), 1u);
    EXPECT_EQ(out.getBlockX(), 0u);
    ASSERT_EQ(out.getNodes().size(), ipc::kGraphNodes);
    EXPECT_EQ(out.getNodes()[63].getKernel(), 8191u);
    EXPECT_EQ(out.getNodes()[63].getCount(), 65535u);
    EXPECT_EQ(out.getOtherNodes(), 44u);
  });
}

// ---- ld.so.cache: header of 48 bytes, entries of 24, strings -----------------------------------

struct Listed {
  uint32_t flags;
  std::string library, path;
};

constexpr uint32_t kX86_64 = 0x0303;

std::string cache_of(const std::vector<Listed>& entries) {
  std::string head = "glibc-ld.so.cache1.1";
  const auto put = [](std::string& out, uint32_t value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  put(head, static_cast<uint32_t>(entries.size()));
  head.resize(48);
  std::string table, strings;
  const size_t base = 48 + 24 * entries.size();
  for (const Listed& entry : entries) {
    put(table, entry.flags);
    put(table, static_cast<uint32_t>(base + strings.size()));
    strings += entry.library + '\0';
    put(table, static_cast<uint32_t>(base + strings.size()));
    strings += entry.path + '\0';
    table.resize(table.size() + 12);
  }
  return head + table + strings;
}

std::string found(const std::string& image, unsigned skip = 0) {
  const char* path = nullptr;
  return find_in_cache(image.data(), image.size(), "libcuda.so.1", skip, path) ? path : "";
}

TEST(ShimDriver, FindsTheLibraryInTheLoadersCache) {
  const std::string image = cache_of({{kX86_64, "libc.so.6", "/lib/libc.so.6"},
                                      {0x0003, "libcuda.so.1", "/usr/lib32/libcuda.so.1"},
                                      {kX86_64, "libcuda.so.1", "/compat/libcuda.so.1"},
                                      {kX86_64, "libcuda.so.1", "/usr/lib/libcuda.so.1"}});
  EXPECT_EQ(found(image), "/compat/libcuda.so.1");
  EXPECT_EQ(found(image, 1), "/usr/lib/libcuda.so.1");
  EXPECT_EQ(found(image, 2), "");
}

TEST(ShimDriver, FindsTheNewCacheBehindAnOldOne) {
  const std::string old = "ld.so-1.7.0\0\0\0\0\0 something from before 2.2";
  EXPECT_EQ(found(old + cache_of({{kX86_64, "libcuda.so.1", "/x/libcuda.so.1"}})),
            "/x/libcuda.so.1");
}

// Since glibc 2.33 an extension follows the strings, and no zero ends it.
TEST(ShimDriver, FindsTheLibraryBeforeAnExtension) {
  EXPECT_EQ(
      found(cache_of({{kX86_64, "libcuda.so.1", "/x/libcuda.so.1"}}) + "release version 2.36"),
      "/x/libcuda.so.1");
}

TEST(ShimDriver, ReadsThisSystemsCache) {
  std::ifstream file("/etc/ld.so.cache", std::ios::binary);
  const std::string image(std::istreambuf_iterator<char>(file), {});
  if (image.empty()) GTEST_SKIP() << "it has none";
  const char* path = nullptr;
  ASSERT_TRUE(find_in_cache(image.data(), image.size(), "libc.so.6", 0, path));
  EXPECT_EQ(std::string(path).substr(0, 1), "/");
  EXPECT_EQ(access(path, R_OK), 0) << path;
}

TEST(ShimDriver, SurvivesACutOrMeaninglessCache) {
  const std::string image = cache_of({{kX86_64, "libcuda.so.1", "/x/libcuda.so.1"}});
  for (size_t size = 0; size < image.size(); ++size) EXPECT_EQ(found(image.substr(0, size)), "");
  std::string wild = image;
  memset(wild.data() + 48 + 4, 0xff, 8);  // offsets far outside
  EXPECT_EQ(found(wild), "");
  wild = image;
  memset(wild.data() + 20, 0xff, 4);  // more entries than there is room for
  EXPECT_EQ(found(wild), "/x/libcuda.so.1");
}

// Of any number of launches an iteration may have: a place of it that had no turn would never be
// timed.
TEST(ShimTiming, EachLaunchOfAnIterationHasItsTurn) {
  constexpr uint32_t kEvery = 5, kIterations = 400;
  for (uint32_t launches = 1; launches < 3000; ++launches) {
    uint32_t drawn = 0, last = 0, longest = 0;
    for (uint32_t i = 0; i < kIterations; ++i) {
      if (!is_drawn(i * launches + 7, kEvery)) continue;
      longest = std::max(longest, i - last);
      last = i;
      ++drawn;
    }
    EXPECT_LT(longest, 60u) << launches;
    EXPECT_NEAR(drawn, kIterations / kEvery, 40) << launches;
  }
  EXPECT_TRUE(is_drawn(3, 1));
  EXPECT_FALSE(is_drawn(3, 0));
}

}  // namespace
}  // namespace heddle::shim
