// What a driver has that the shim does not know, by made files and by this system's C library.
#include "daemon/cli/doctor/probe.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "daemon/cli/run/elf.h"
#include "tests/unit/made_elf.h"

namespace heddle::cli {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

class EntryPoints : public ::testing::Test {
 protected:
  EntryPoints()
      : folder_(fs::path(testing::TempDir()) / ("entry-points-" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
    write("shim", {"?cuInit", "cuLaunchKernel", "cuLaunchKernel_ptsz", "?cuMemAlloc_v2",
                   "cuStreamSynchronize", "heddle_shim_protocol"});
  }
  ~EntryPoints() override { fs::remove_all(folder_); }

  void write(const char* name, std::vector<std::string> exports) {
    std::ofstream(folder_ / name) << make_elf({.exports = std::move(exports)});
  }
  json probe(std::vector<std::string> driver) {
    write("driver", std::move(driver));
    return probe_entry_points(folder_ / "shim", folder_ / "driver");
  }

  const fs::path folder_;
};

TEST_F(EntryPoints, AnOlderDriverHasNoneThatAreUnknown) {
  const json found = probe({"cuInit", "cuLaunchKernel"});
  EXPECT_EQ(found["known"], 2);
  EXPECT_EQ(found["unknown"], json::array());
  EXPECT_EQ(found["past"], json::array());
  EXPECT_GE(found["table"], 13'000);
}

TEST_F(EntryPoints, NamesOnlyTheDriverApis) {
  const json found = probe({"cuInit", "cudbgApiInit", "_init", "!cuForeign", "cuDeviceGetColour"});
  EXPECT_EQ(found["unknown"], json({"cuDeviceGetColour"}));
  EXPECT_EQ(found["past"], json::array());
}

TEST_F(EntryPoints, AnUnknownEntryPointThatLaunchesOrIsNewerIsNamed) {
  const json found = probe({"cuInit", "cuStreamSynchronize_v2_ptsz", "cuLaunchKernel_v12",
                            "cuGraphLaunchSoon", "cuMemAlloc_v3", "cuLaunchKernel_ptsz"});
  EXPECT_EQ(found["past"],
            json({"cuGraphLaunchSoon", "cuLaunchKernel_v12", "cuStreamSynchronize_v2_ptsz"}));
  EXPECT_EQ(found["unknown"].size(), 4u) << found;
}

TEST_F(EntryPoints, AFileWithoutSymbolsIsNoDriverWithoutThem) {
  EXPECT_TRUE(probe({}).contains("error"));
  EXPECT_TRUE(probe_entry_points(folder_ / "nowhere", folder_ / "driver").contains("error"));
}

// Its hash table is GNU's, where a made file has the older one.
TEST(Exports, OfThisSystemsCLibraryAreWhatTheLoaderFinds) {
  const auto symbols = exported_symbols(MappedFile("/lib/x86_64-linux-gnu/libc.so.6").bytes());
  EXPECT_GT(symbols.size(), 2000u);
  size_t found = 0;
  for (const Symbol& symbol : symbols) {
    found += dlsym(RTLD_DEFAULT, symbol.name.c_str()) != nullptr ? 1 : 0;
  }
  EXPECT_GT(found, symbols.size() * 8 / 10) << "the rest are of old versions";
  for (const char* name : {"puts", "malloc", "getaddrinfo"}) {
    const auto named = [name](const Symbol& symbol) { return symbol.name == name; };
    EXPECT_EQ(std::count_if(symbols.begin(), symbols.end(), named), 1) << name;
  }
}

}  // namespace
}  // namespace heddle::cli
