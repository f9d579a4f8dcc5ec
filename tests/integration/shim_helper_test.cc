// The shim's own threads in a program that does not know of it: what they take, and what they leave
// to the program; and what happens where there cannot be one.
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "tests/integration/shim_setting.h"

namespace heddle::shim_test {
namespace {

namespace fs = std::filesystem;

// A field of a thread's status: its first word.
std::string field(const fs::path& thread, const std::string& name) {
  std::ifstream file(thread / "status");
  for (std::string word; file >> word;) {
    if (word == name + ":" && file >> word) return word;
  }
  return "";
}

uint64_t blocked(const fs::path& thread) {
  return std::stoull(field(thread, "SigBlk"), nullptr, 16);
}

std::vector<fs::path> threads(const Application& app) {
  const fs::directory_iterator all("/proc/" + std::to_string(app.pid()) + "/task");
  return {begin(all), end(all)};
}

constexpr uint64_t bit(int signal) { return uint64_t{1} << (signal - 1); }

// ThreadSanitizer adds a thread of its own, and memory to each.
#ifdef __SANITIZE_THREAD__
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

TEST_F(Shim, ItsThreadsTakeNoSignalOfTheProgram) {
  if (kSanitized) GTEST_SKIP() << "the process has threads that are nobody's";
  Application app(environment());
  EXPECT_EQ(app("launch"), "0");  // the driver is there
  ASSERT_EQ(threads(app).size(), 1u) << "before cuInit it has none";
  const uint64_t before = blocked(threads(app)[0]);
  start(app, kLease);
  // None can block the first two; the next two are the C library's own.
  const uint64_t all = ~(bit(SIGKILL) | bit(SIGSTOP) | bit(32) | bit(33));
  std::multiset<std::string> names;
  for (const fs::path& thread : threads(app)) {
    const std::string name = field(thread, "Name");
    if (name.starts_with("heddle")) names.insert(name);
    const uint64_t wanted = name.starts_with("heddle") ? all : before;
    // While it makes another thread, the C library blocks its own signals as well.
    for (int i = 0; i < 5'000 && blocked(thread) != wanted; ++i) usleep(1'000);
    EXPECT_EQ(blocked(thread), wanted);
  }
  EXPECT_EQ(names, (std::multiset<std::string>{"heddle", "heddle-stops"}));
  EXPECT_EQ(threads(app).size(), 3u);
}

TEST_F(Shim, ItsThreadsHaveSmallStacks) {
  if (kSanitized) GTEST_SKIP() << "it takes memory for each thread";
  Application app(environment());
  EXPECT_EQ(app("launch"), "0");
  const auto data_kib = [&] {
    return std::stol(field("/proc/" + std::to_string(app.pid()), "VmData"));
  };
  const long before = data_kib();
  start(app, kLease);
  EXPECT_GE(data_kib() - before, 2 * 1'024);
  EXPECT_LT(data_kib() - before, 2 * 2'048) << "a usual one has 8 MiB";
}

TEST_F(Shim, WhereThreadLocalStorageFillsASmallStackItsThreadHasAUsualOne) {
  Application app(environment(), HEDDLE_SHIM_CLIENT_TLS);
  start(app, kGate);
  expect_asks(app, "launch");
}

TEST_F(Shim, WhereNoThreadCanBeMadeItLaunchesUnmanagedAndSaysSo) {
  const std::string log = path_ + ".log";
  std::vector<std::string> environment = this->environment();
  environment.push_back("HEDDLE_LOG=" + log);
  std::ofstream(log).close();
  fs::permissions(log, fs::perms(0666));  // it becomes another user
  Application app(environment);
  ASSERT_EQ(app("want_threads"), "0");
  EXPECT_EQ(app("init"), "0");
  EXPECT_FALSE(daemon_.pending(50));
  EXPECT_EQ(app("launch"), "0");
  EXPECT_EQ(app("capture 64"), "0");
  EXPECT_EQ(app("launch 64"), "0");
  EXPECT_EQ(app("end_capture 64"), "0");
  EXPECT_EQ(app("sync"), "0");
  EXPECT_EQ(app("get fake_launches"), "2");
  EXPECT_EQ(threads(app).size(), 1u);
  std::ifstream stream(log);
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  EXPECT_NE(text.find("raise the limit on processes"), std::string::npos) << text;
  unlink(log.c_str());
}

}  // namespace
}  // namespace heddle::shim_test
