// Files of others: whatever lies there, and however deep it nests, is read or refused by its name.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "daemon/base/files.h"
#include "daemon/base/json.h"
#include "daemon/plan/jobs.h"
#include "daemon/profile/gpu_model.h"
#include "daemon/profile/profile.h"
#include "daemon/server/config.h"
#include "daemon/trace/reader.h"
#include "tests/folder.h"

namespace heddle {
namespace {

std::string times(size_t count, const std::string& part) {
  std::string all;
  for (size_t i = 0; i < count; ++i) all += part;
  return all;
}

// The recursion of 100 000 levels ends any stack.
TEST(Nesting, OfTomlIsRefusedByFileAndLine) {
  const auto error_of = [](const auto& result) {
    return result ? std::string("none") : result.error().message;
  };
  for (const std::string& deep :
       {times(100'000, "a.") + "a = 1", "[" + times(100'000, "a.") + "a]",
        times(100'000, "\"a\" . ") + "a = 1", "a = " + times(100'000, "["), times(100'000, "a = {"),
        times(100'000, "a.b = [{"),
        R"(a = ["\"", '\', """x""""", '''y''''', b.)" + times(100'000, "a."),
        "a = { b.c = 1, " + times(100'000, "a.") + "a = 1 }"}) {
    const std::string text = "# a comment\n" + deep;
    EXPECT_EQ(nests_too_deep(text), 2u) << deep.substr(0, 40);
    for (const std::string& error :
         {error_of(server::parse_config(text, "f")), error_of(profiles::parse(text, "f")),
          error_of(profiles::parse_gpu_model(text, "f")),
          error_of(plan::parse_job_set(text, "f", nullptr))}) {
      EXPECT_EQ(error.find("f:2: nests too deep"), 0u) << error;
    }
  }
}

TEST(Nesting, CountsNeitherStringsNorNumbersNorWhatIsClosed) {
  for (const std::string& text :
       {times(1'000, "a.b.c = [[1.5, 2.5], {d.e = 1}]\n"),
        "a = \"" + times(1'000, "x.[{") + "\"\nb = '" + times(1'000, "x.[{") + "'",
        "a = \"\"\"" + times(1'000, "x.[{\n") + "\"\"\"", "# " + times(1'000, "x.[{"),
        "[" + times(1'000, "1.5, ") + "2]", std::string("\"")}) {
    EXPECT_EQ(nests_too_deep(text), 0u) << text.substr(0, 40);
  }
}

TEST(Nesting, OfJsonIsBoundedToo) {
  EXPECT_TRUE(parse_json(times(80'000, "[") + times(80'000, "]")).is_discarded());
  EXPECT_TRUE(parse_json(times(80'000, R"({"a":)") + "1" + times(80'000, "}")).is_discarded());
  EXPECT_TRUE(parse_json("{\"a\": [").is_discarded());
  EXPECT_EQ(parse_json(R"({"a": ["[[", {"b": 1.5}]})")["a"][1]["b"], 1.5);
}

TEST(Nesting, OfATracesHeaderIsBoundedToo) {
  const std::string header = R"({"heddle": "1", "gpu": "g", "driver": "d", "mode": "mps",
    "started": "now", "clients": )" +
                             times(80'000, "[") + times(80'000, "]") + "}";
  std::string bytes(trace::kMagic, sizeof trace::kMagic);
  const auto append = [&bytes](const auto& value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  append(uint16_t{trace::kVersion});
  append(uint16_t{0});
  append(static_cast<uint32_t>(header.size()));
  const auto reader = trace::Reader::from_bytes(bytes + header, "t.trace");
  ASSERT_FALSE(reader);
  EXPECT_NE(reader.error().message.find("t.trace: byte 16: a header"), std::string::npos)
      << reader.error().message;
}

class ReadFile : public ::testing::Test {
 protected:
  static void expect_refused(const std::string& path, const std::string& why) {
    const auto text = read_file(path, "do so", 1 << 20);
    ASSERT_FALSE(text) << path;
    EXPECT_EQ(text.error().message, path + ": cannot be read: " + why + "; do so");
  }

  const TestFolder made_;
  const std::string folder_ = made_.path();
};

TEST_F(ReadFile, RefusesWhatIsNoFileOfText) {
  const std::string pipe = folder_ + "/pipe", large = folder_ + "/large";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  close(open(large.c_str(), O_CREAT | O_WRONLY, 0600));
  std::filesystem::resize_file(large, uintmax_t{3} << 30);
  expect_refused(pipe, "no regular file");
  expect_refused("/dev/urandom", "no regular file");
  expect_refused(folder_, "no regular file");
  expect_refused(large, "over 1024 KiB");
  expect_refused(folder_ + "/none", "No such file or directory");
}

TEST_F(ReadFile, ReadsToTheEndOfWhatSaysNoSize) {
  const auto text = read_file("/proc/self/maps", "do so");
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_NE(text->find("[stack]"), std::string::npos);
}

}  // namespace
}  // namespace heddle
