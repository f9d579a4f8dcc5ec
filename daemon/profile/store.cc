#include "daemon/profile/store.h"

#include <sys/stat.h>
#include <time.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "daemon/base/owners.h"
#include "daemon/base/utc_text.h"

namespace heddle::profiles {
namespace {

namespace fs = std::filesystem;

constexpr size_t kErrorsMax = 16;  // in status(); the log has all
constexpr off_t kFileMost = 64 << 20;

}  // namespace

std::string driver_name(uint32_t cuda_version) {
  // "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  ..."
  std::ifstream file("/proc/driver/nvidia/version");
  for (std::string word; file >> word;) {
    if (!word.empty() && isdigit(static_cast<unsigned char>(word[0])) != 0 &&
        word.find('.') != std::string::npos) {
      return word;
    }
  }
  return "CUDA " + std::to_string(cuda_version / 1000) + "." +
         std::to_string(cuda_version % 1000 / 10);
}

ProfileStore::ProfileStore(std::string directory, Warn warn)
    : directory_(std::move(directory)), warn_(std::move(warn)) {
  if (directory_.empty()) return;
  std::error_code error;
  const mode_t before = umask(077);
  fs::create_directories(directory_, error);
  umask(before);
  if (const std::string problem = ownership_problem(directory_); !problem.empty()) {
    refuse("profiles_refused", problem + ", then restart heddled: until then it keeps no profiles");
    directory_.clear();
    return;
  }
  read_all();
}

void ProfileStore::read_all() {
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory_, error)) {
    if (entry.path().extension() == ".toml") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) {
    if (read_.size() == kTasksMax) {
      refuse("profile_refused", file.string() + ":1: one file too many; run heddle profile prune");
      break;
    }
    const std::string problem = file_problem(file.string(), kFileMost);
    Result<Profile> profile = problem.empty() ? load(file.string()) : fail(problem);
    if (profile) {
      read_.push_back(std::move(*profile));
    } else {
      refused_.insert(file.string());
      refuse("profile_refused", profile.error().message);
    }
  }
}

void ProfileStore::refuse(const char* event, const std::string& error) {
  warn_(event, error);
  if (errors_.size() < kErrorsMax) errors_.push_back(error);
}

void ProfileStore::learn_gpu(const std::string& gpu, const std::string& driver, bool trusted) {
  if (gpu.empty()) return;
  const bool same = gpu == gpu_;
  if (!gpu_.empty() && (same || trusted_ || !trusted)) {
    trusted_ |= trusted && same;
    if (!same && others_.size() < kErrorsMax && others_.insert(gpu).second) {
      warn_("profiles_of_another_gpu", gpu + "; profiles are kept of " + gpu_);
    }
    return;
  }
  if (!gpu_.empty()) warn_("gpu_corrected", gpu + "; what was said first: " + gpu_);
  gpu_ = gpu;
  driver_ = driver;
  trusted_ = trusted;
  std::vector<Profile> all = std::exchange(read_, {});
  for (auto& [key, profile] : std::exchange(profiles_, {})) all.push_back(std::move(profile));
  held_ = {};
  held_by_.clear();
  unsaved_.clear();
  failed_.clear();
  for (Profile& profile : all) {
    if (Result<void> fit = fits(profile, gpu_, driver_); !fit) {
      refused_.insert(profile.file);
      refuse("profile_refused", fit.error().message);
      read_.push_back(std::move(profile));
    } else {
      refused_.erase(profile.file);
      take(std::move(profile));
    }
  }
}

void ProfileStore::take(Profile profile) {
  const Key key{profile.uid, profile.task.task};
  const auto there = profiles_.find(key);
  if (there != profiles_.end()) {
    return refuse("profile_refused", profile.file + ":1: its task is profiled by " +
                                         there->second.file + "; merge the two, or remove one");
  }
  for (Held* held : {&held_, profile.uid ? &held_by_[*profile.uid] : nullptr}) {
    if (held == nullptr) continue;
    ++held->tasks;
    held->kernels += profile.task.kernels.size();
  }
  profiles_.emplace(key, std::move(profile));
}

// What an administrator says comes first.
std::optional<core::TaskProfile> ProfileStore::find(uint32_t uid, uint64_t task) const {
  const auto for_all = profiles_.find({std::nullopt, task}), own = profiles_.find({uid, task});
  if (for_all == profiles_.end() && own == profiles_.end()) return std::nullopt;
  if (for_all == profiles_.end()) return told(own->second);
  core::TaskProfile all = told(for_all->second);
  if (own != profiles_.end()) add_kernels(all, told(own->second));
  return all;
}

Profile ProfileStore::describe(core::TaskProfile task, uint32_t uid, const std::string& label,
                               const std::string& command) const {
  Profile profile;
  profile.gpu = gpu_;
  profile.driver = driver_;
  profile.label = label;
  profile.command = command;
  profile.measured = utc_text(time(nullptr));
  profile.uid = uid;
  profile.task.task = task.task;
  add_kernels(profile.task, task);
  profile.task.runs = std::max(profile.task.runs, 1u);  // a task that never synchronized has none
  for (const Key& key : {Key{uid, task.task}, Key{std::nullopt, task.task}}) {
    const auto known = profiles_.find(key);
    if (known == profiles_.end() || !known->second.probe) continue;
    take_probe(profile, *known->second.probe);
    break;
  }
  return profile;
}

bool ProfileStore::has_room(uint32_t uid, size_t kernels) {
  const Held& own = held_by_[uid];
  if (own.tasks < kTasksMax / kShareOfUser && held_.tasks < kTasksMax &&
      own.kernels + kernels <= kKernelsMax / kShareOfUser &&
      held_.kernels + kernels <= kKernelsMax) {
    return true;
  }
  if (full_.insert(uid).second) {
    refuse("profiles_full", directory_ + ": no room for more of user " + std::to_string(uid) +
                                "; run heddle profile prune");
  }
  return false;
}

void ProfileStore::add(core::TaskProfile task, uint32_t uid, const std::string& label,
                       const std::string& command) {
  if (directory_.empty() || gpu_.empty() || !has_room(uid, task.kernels.size())) return;
  const Key key{uid, task.task};
  const auto it = profiles_.find(key);
  if (it == profiles_.end()) {
    Profile fresh = describe(std::move(task), uid, label, command);
    fresh.file = directory_ + "/" + file_name(fresh);
    take(std::move(fresh));
  } else {
    Profile& profile = it->second;
    const size_t before = profile.task.kernels.size();
    if (!add_kernels(profile.task, task)) return;
    if (profile.probe) take_probe(profile, Probe(*profile.probe));
    profile.measured = utc_text(time(nullptr));
    held_.kernels += profile.task.kernels.size() - before;
    held_by_[uid].kernels += profile.task.kernels.size() - before;
  }
  const std::string& file = profiles_.at(key).file;
  if (refused_.count(file) != 0) {
    return refuse("profile_not_saved", file +
                                           ": was refused, and so is not replaced; mend it, or "
                                           "remove it and restart the daemon");
  }
  want_saved(key);
}

std::vector<std::pair<std::string, std::string>> ProfileStore::take_unsaved() {
  std::vector<std::pair<std::string, std::string>> all;
  for (const Key& key : unsaved_) {
    const Profile& profile = profiles_.at(key);
    all.emplace_back(profile.file, format(profile));
  }
  unsaved_.clear();
  return all;
}

void ProfileStore::written(const std::string& file, const std::string& error) {
  for (const auto& [key, profile] : profiles_) {
    if (profile.file != file) continue;
    if (error.empty()) {
      failed_.erase(key);
    } else if (failed_.insert(key).second) {
      refuse("profile_not_saved", error +
                                      "; the old file stays, and it is tried again every minute;"
                                      " make room or check permissions");
    }
  }
}

void ProfileStore::retry() {
  for (const Key& key : failed_) want_saved(key);
}

void ProfileStore::want_saved(const Key& key) {
  if (std::find(unsaved_.begin(), unsaved_.end(), key) == unsaved_.end()) unsaved_.push_back(key);
}

}  // namespace heddle::profiles
