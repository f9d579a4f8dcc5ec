// What is read of ELF files that users name: any bytes.
#include "daemon/cli/run/elf.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/unit/made_elf.h"

namespace heddle::cli {
namespace {

TEST(Elf, ReadsTheVersionsOfThisSystemsCLibrary) {
  const auto libc = parse_elf(MappedFile(std::string("/lib/x86_64-linux-gnu/libc.so.6")).bytes());
  if (!libc) GTEST_SKIP() << "it lies elsewhere";
  EXPECT_TRUE(libc->is_x86_64);
  EXPECT_NE(std::find(libc->defines.begin(), libc->defines.end(), "GLIBC_2.17"),
            libc->defines.end());
  EXPECT_NE(std::find(libc->needs.begin(), libc->needs.end(), "GLIBC_2.3"), libc->needs.end());
}

TEST(Elf, HugeNamesAreCut) {
  const std::string name(1'000'000, 'x');
  const auto elf = parse_elf(make_elf({"/" + name, {name}, {name}}));
  ASSERT_TRUE(elf);
  EXPECT_EQ(elf->interpreter.size(), 256u);
  EXPECT_EQ(elf->needs.at(0).size(), 256u);
  EXPECT_EQ(elf->defines.at(0).size(), 256u);
}

// Names that stand in the file, cut to their length, and no more of them than the reader follows.
void expect_within(std::string_view file, const std::vector<std::string>& names) {
  EXPECT_LE(names.size(), 4096u);
  for (const std::string& name : names) {
    EXPECT_LE(name.size(), 256u);
    EXPECT_NE(file.find(name), file.npos) << "no such text in the file: " << name;
  }
}

// No string, which has a byte behind its last: the sanitizers see each byte read beyond the file.
TEST(Elf, OfAnyBytesIsReadWhatStandsInThem) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const std::string sound =
      make_elf({.needs = {"A", "B"}, .defines = {"C", "D"}, .exports = {"e"}});
  size_t read = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::vector<char> bytes(sound.begin(), sound.end());
    for (uint32_t i = 0; i < 1 + random() % 8; ++i) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    bytes.resize(random() % 4 == 0 ? random() % bytes.size() : bytes.size());
    const std::string_view file(bytes.data(), bytes.size());
    if (const std::optional<Elf> elf = parse_elf(file)) {
      expect_within(file, {elf->interpreter});
      expect_within(file, elf->needs);
      expect_within(file, elf->defines);
      expect_within(file, elf->from);
      read += elf->needs.size() + elf->defines.size();
    }
    const std::vector<Symbol> symbols = exported_symbols(file);
    EXPECT_LE(symbols.size(), file.size() / sizeof(Elf64_Sym));
    for (const Symbol& symbol : symbols) expect_within(file, {symbol.name});
    read += symbols.size();
  }
  EXPECT_GT(read, 20'000u) << "few of the files were read";
}

}  // namespace
}  // namespace heddle::cli
