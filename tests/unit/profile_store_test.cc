// The daemon's store of profiles: whose they are, what it reads and writes, and how much.
#include "daemon/profile/store.h"

#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "daemon/base/files.h"
#include "tests/unit/profile_made.h"

namespace heddle::profiles {
namespace {

TEST_F(ProfileFiles, TheStoreFindsWhatFitsAndNamesWhatDoesNot) {
  write("a.toml", format(profile()));
  Profile foreign = profile();
  foreign.gpu = "NVIDIA A100";
  foreign.task.task = 8;
  write("b.toml", format(foreign));
  write("c.toml", "version = 1\nwhat");
  write("d.toml", format(profile()));
  write("e.txt", "not ours");
  ProfileStore store = open_store();
  EXPECT_FALSE(store.find(kUser, 0xfedcba9876543210)) << "the GPU is not known yet";
  store.learn_gpu("NVIDIA H200", "580.159.04", false);
  ASSERT_TRUE(store.find(kUser, 0xfedcba9876543210));
  EXPECT_EQ(store.find(kUser, 0xfedcba9876543210)->kernels.size(), 2u);
  EXPECT_FALSE(store.find(kUser, 8));
  const ProfileStore::Status status = store.status();
  EXPECT_EQ(status.tasks, 1u);
  ASSERT_EQ(status.errors.size(), 3u);
  const auto error = [&](size_t i) { return status.errors[i]; };
  EXPECT_NE(error(0).find("c.toml:2: "), std::string::npos) << error(0);
  EXPECT_NE(error(1).find("b.toml:3: measured on NVIDIA A100"), std::string::npos) << error(1);
  EXPECT_NE(error(2).find("d.toml:1: its task is profiled by"), std::string::npos) << error(2);
  EXPECT_FALSE(store.unsaved()) << "what was read is not written again";
  ASSERT_EQ(warnings_.size(), 3u);
  EXPECT_EQ(warnings_[2], "profile_refused: " + error(2));
}

TEST_F(ProfileFiles, TheStoreWarnsOfAnotherGpuOnceEach) {
  ProfileStore store = open_store();
  for (const char* gpu : {"NVIDIA H200", "NVIDIA A100", "NVIDIA A100"}) {
    store.learn_gpu(gpu, "580.159.04", false);
  }
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_EQ(warnings_[0], "profiles_of_another_gpu: NVIDIA A100; profiles are kept of NVIDIA H200");
}

TEST_F(ProfileFiles, TheStoreKeepsWhatWasMeasuredOverARestart) {
  ProfileStore store = open_store();
  store.learn_gpu("NVIDIA H200", "580.159.04", false);
  store.add(task(7, 1, 2), kUser, "api", "serve --x");
  ASSERT_TRUE(store.unsaved());
  for (const auto& [path, text] : store.take_unsaved()) ASSERT_TRUE(replace_file(path, text, 0600));
  EXPECT_FALSE(store.unsaved());
  store.add(task(7, 2, 2), kUser, "api", "serve --x");  // one that it has, one that it lacks
  for (const auto& [path, text] : store.take_unsaved()) ASSERT_TRUE(replace_file(path, text, 0600));
  store.add(task(7, 2, 2), kUser, "api", "serve --x");
  EXPECT_FALSE(store.unsaved()) << "nothing new";
  EXPECT_EQ(files(), 1u);

  ProfileStore again = open_store();
  again.learn_gpu("NVIDIA H200", "580.159.04", false);
  ASSERT_TRUE(again.find(kUser, 7));
  EXPECT_EQ(again.find(kUser, 7)->kernels.size(), 3u);
  EXPECT_EQ(again.find(kUser, 7)->runs, 100u);
}

TEST_F(ProfileFiles, TheStoreTriesAgainWhatWasNotWritten) {
  ProfileStore store = open_store();
  store.learn_gpu("NVIDIA H200", "580.159.04", false);
  store.add(task(7, 1, 2), kUser, "api", "serve --x");
  const std::string path = store.take_unsaved().at(0).first;
  for (int i = 0; i < 2; ++i) {
    store.written(path, path + ": no space left");
    EXPECT_FALSE(store.unsaved()) << "not at once";
    store.retry();
    EXPECT_EQ(store.take_unsaved().size(), 1u);
  }
  EXPECT_EQ(store.status().errors.size(), 1u) << "it is said once";
  store.written(path, "");
  store.retry();
  EXPECT_FALSE(store.unsaved());
}

TEST_F(ProfileFiles, TheStoreDoesNotReplaceWhatItRefused) {
  const auto measure = [this] {
    ProfileStore store = open_store();
    store.learn_gpu("NVIDIA H200", "580.159.04", false);
    store.add(task(7, 1, 2), kUser, "api", "serve --x");
    return std::pair(store.take_unsaved(), store.status());
  };
  const std::string path = measure().first.at(0).first;
  std::ofstream(path) << "version = 1\nmended by hand, not quite";
  const auto [unsaved, status] = measure();
  EXPECT_TRUE(unsaved.empty());
  EXPECT_EQ(status.tasks, 1u) << "the task is profiled all the same";
  const std::string error = status.errors.back();
  EXPECT_EQ(error.rfind(path + ": was refused", 0), 0u) << error;
}

TEST_F(ProfileFiles, TheStoreIsBounded) {
  ProfileStore store = open_store();
  store.learn_gpu("NVIDIA H200", "580.159.04", false);
  constexpr size_t kShare = ProfileStore::kTasksMax / ProfileStore::kShareOfUser;
  const auto user = [](uint64_t t) { return static_cast<uint32_t>((t - 1) / kShare); };
  for (uint64_t t = 1; t <= ProfileStore::kTasksMax + 2; ++t) {
    store.add(task(t, 1, 1), user(t), "", "x");
  }
  EXPECT_EQ(store.status().tasks, ProfileStore::kTasksMax);
  EXPECT_EQ(store.status().errors.size(), 1u) << "said once";
}

TEST_F(ProfileFiles, OneUserHasAShareOfTheStore) {
  ProfileStore store = open_store();
  store.learn_gpu("NVIDIA H200", "580.159.04", false);
  constexpr size_t kShare = ProfileStore::kTasksMax / ProfileStore::kShareOfUser;
  for (uint64_t t = 1; t <= kShare + 2; ++t) store.add(task(t, 1, 1), kUser, "", "x");
  EXPECT_EQ(store.status().tasks, kShare);
  store.add(task(1, 1, 1), kUser + 1, "", "x");
  EXPECT_TRUE(store.find(kUser + 1, 1)) << "another has room";
}

TEST_F(ProfileFiles, OneUsersProfileIsNeitherUsedNorWrittenToByAnother) {
  ProfileStore store = open_store();
  store.learn_gpu("NVIDIA H200", "580.159.04", false);
  store.add(task(7, 1, 2), kUser, "api", "serve --x");
  EXPECT_FALSE(store.find(kUser + 1, 7));
  store.add(task(7, 5, 1), kUser + 1, "api", "serve --x");
  EXPECT_EQ(store.find(kUser, 7)->kernels.size(), 2u);
  EXPECT_EQ(store.find(kUser + 1, 7)->kernels.size(), 1u);
  for (const auto& [path, text] : store.take_unsaved()) ASSERT_TRUE(replace_file(path, text, 0600));
  EXPECT_EQ(files(), 2u) << "a file each";

  ProfileStore again = open_store();
  again.learn_gpu("NVIDIA H200", "580.159.04", false);
  EXPECT_EQ(again.find(kUser, 7)->kernels.size(), 2u);
  EXPECT_FALSE(again.find(kUser + 2, 7));
}

TEST_F(ProfileFiles, AnAdministratorsProfileIsForAllAndIsNotWrittenTo) {
  const std::string path = write("all.toml", format(profile()));
  constexpr uint64_t kTask = 0xfedcba9876543210;
  ProfileStore store = open_store();
  store.learn_gpu("NVIDIA H200", "580.159.04", false);
  core::TaskProfile claimed = task(kTask, 2, 2);  // one that the file has, one that it lacks
  claimed.kernels[0].duration.mean_us = 59e6F;
  store.add(claimed, kUser, "api", "serve --x");
  for (const auto& [file, text] : store.take_unsaved()) EXPECT_NE(file, path);
  EXPECT_EQ(store.find(kUser + 1, kTask)->kernels.size(), 2u);
  const std::optional<core::TaskProfile> found = store.find(kUser, kTask);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->kernels.size(), 3u);
  for (const core::KernelProfile& k : found->kernels) {
    EXPECT_LT(k.duration.mean_us, 100) << "what the administrator says comes first";
  }
}

// The core was told them of a kernel that nobody had timed: a later probe would not replace them.
TEST_F(ProfileFiles, TheStoreKeepsAProbesMetricsOutOfAKernelThatIsTimedLater) {
  Profile probed = profile();
  probed.uid = kUser;
  probed.task.kernels[1].duration = {};
  probed.probe = Probe{1, {}, {}};
  probed.probe->metrics.set(ipc::metric_of("dram_pct"), 40);
  write("probed.toml", format(probed));
  ProfileStore store = open_store();
  store.learn_gpu("NVIDIA H200", "580.159.04", false);
  core::TaskProfile timed = *store.find(kUser, probed.task.task);
  ASSERT_EQ(timed.kernels[1].facts.metrics.get("dram_pct"), 40);
  timed.kernels[1].duration = {3, 3, 3, 32};
  store.add(timed, kUser, "api", "serve --x");
  const auto unsaved = store.take_unsaved();
  ASSERT_EQ(unsaved.size(), 1u);
  const Result<Profile> saved = parse(unsaved[0].second, "saved.toml");
  ASSERT_TRUE(saved) << saved.error().message;
  EXPECT_EQ(saved->task.kernels[1].duration.count, 32u);
  EXPECT_EQ(saved->task.kernels[1].facts.metrics.there, 0u);
}

TEST_F(ProfileFiles, NothingIsReadOrWrittenThatOthersCouldHaveLaid) {
  const std::string elsewhere = directory_ + "/elsewhere";
  std::ofstream(elsewhere) << "precious";
  const std::string real = write("a.toml", format(profile()));
  fs::rename(real, directory_ + "/real");
  fs::create_symlink(directory_ + "/real", real);
  ASSERT_EQ(mkfifo((directory_ + "/b.toml").c_str(), 0600), 0);
  chmod(write("c.toml", format(profile())).c_str(), 0666);
  ProfileStore store = open_store();
  store.learn_gpu("NVIDIA H200", "580.159.04", false);
  EXPECT_EQ(store.status().tasks, 0u);
  EXPECT_EQ(store.status().errors.size(), 3u);
  store.add(task(7, 1, 2), kUser, "api", "serve --x");
  const auto unsaved = store.take_unsaved();
  ASSERT_EQ(unsaved.size(), 1u);
  fs::create_symlink(elsewhere, unsaved[0].first + ".new");
  EXPECT_TRUE(replace_file(unsaved[0].first, unsaved[0].second, 0600));
  std::string text;
  std::ifstream(elsewhere) >> text;
  EXPECT_EQ(text, "precious");
}

TEST_F(ProfileFiles, ADirectoryThatAnybodyCanWriteIsNotUsed) {
  write("a.toml", format(profile()));
  chmod(directory_.c_str(), 0777);
  ProfileStore store = open_store();
  store.learn_gpu("NVIDIA H200", "580.159.04", false);
  store.add(task(7, 1, 2), kUser, "api", "serve --x");
  EXPECT_FALSE(store.find(kUser, 0xfedcba9876543210));
  EXPECT_FALSE(store.unsaved());
  EXPECT_NE(store.status().errors[0].find("chmod o-w"), std::string::npos);
}

TEST_F(ProfileFiles, ATrustedClientCorrectsTheGpusNameOnce) {
  write("a.toml", format(profile()));
  ProfileStore store = open_store();
  store.learn_gpu("NVIDIA GOLD", "580.159.04", false);
  EXPECT_FALSE(store.find(kUser, 0xfedcba9876543210));
  store.learn_gpu("NVIDIA H200", "580.159.04", false);
  EXPECT_FALSE(store.is_of("NVIDIA H200")) << "no better source than the first";
  store.learn_gpu("NVIDIA H200", "580.159.04", true);
  EXPECT_TRUE(store.is_of("NVIDIA H200"));
  EXPECT_TRUE(store.find(kUser, 0xfedcba9876543210));
  store.learn_gpu("NVIDIA GOLD", "580.159.04", true);
  EXPECT_TRUE(store.is_of("NVIDIA H200"));
}

}  // namespace
}  // namespace heddle::profiles
