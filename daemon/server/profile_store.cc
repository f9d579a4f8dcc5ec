#include "daemon/server/profile_store.h"

#include <time.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "daemon/base/utc_text.h"

namespace heddle::server {
namespace {

namespace fs = std::filesystem;

constexpr size_t kErrorsMax = 16;  // in status(); the log has all

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

ProfileStore::ProfileStore(std::string directory, Log& log)
    : directory_(std::move(directory)), log_(log) {
  if (directory_.empty()) return;
  std::vector<fs::path> files;
  std::error_code error;
  fs::create_directories(directory_, error);
  for (const auto& entry : fs::directory_iterator(directory_, error)) {
    if (entry.path().extension() == ".toml") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) {
    if (read_.size() == kTasksMax) {
      refuse("profile_refused", file.string() + ":1: one file too many; run heddle profile prune");
      break;
    }
    Result<profiles::Profile> profile = profiles::load(file.string());
    if (profile) {
      read_.push_back(std::move(*profile));
    } else {
      refused_.insert(file.string());
      refuse("profile_refused", profile.error().message);
    }
  }
}

void ProfileStore::refuse(const char* event, const std::string& error) {
  log_.warning(event, {{"error", error}});
  if (errors_.size() < kErrorsMax) errors_.push_back(error);
}

bool ProfileStore::learn_gpu(const std::string& gpu, const std::string& driver) {
  if (!gpu_.empty() || gpu.empty()) {
    const bool same = gpu.empty() || gpu == gpu_;
    if (!same && others_.size() < kErrorsMax && others_.insert(gpu).second) {
      log_.warning("profiles_of_another_gpu", {{"gpu", gpu}, {"kept", gpu_}});
    }
    return same;
  }
  gpu_ = gpu;
  driver_ = driver;
  for (profiles::Profile& profile : read_) {
    if (Result<void> fits = profiles::fits(profile, gpu_, driver_); !fits) {
      refused_.insert(profile.file);
      refuse("profile_refused", fits.error().message);
    } else {
      take(std::move(profile));
    }
  }
  read_.clear();
  return true;
}

void ProfileStore::take(profiles::Profile profile) {
  const auto there = profiles_.find(profile.task.task);
  if (there != profiles_.end()) {
    return refuse("profile_refused", profile.file + ":1: its task is profiled by " +
                                         there->second.file + "; merge the two, or remove one");
  }
  kernels_ += profile.task.kernels.size();
  profiles_.emplace(profile.task.task, std::move(profile));
}

const core::TaskProfile* ProfileStore::find(uint64_t own, uint64_t shared) const {
  for (const uint64_t task : {own, shared}) {
    if (const auto it = profiles_.find(task); it != profiles_.end()) return &it->second.task;
  }
  return nullptr;
}

profiles::Profile ProfileStore::describe(core::TaskProfile task, const std::string& label,
                                         const std::string& command) const {
  profiles::Profile profile{gpu_, driver_, label, command, utc_text(time(nullptr)), {}, "", 0, 0};
  profile.task.task = task.task;
  profiles::add_kernels(profile.task, task);
  profile.task.runs = std::max(profile.task.runs, 1u);  // a task that never synchronized has none
  return profile;
}

void ProfileStore::add(core::TaskProfile task, const std::string& label,
                       const std::string& command) {
  if (directory_.empty() || gpu_.empty()) return;
  if (profiles_.size() >= kTasksMax || kernels_ + task.kernels.size() > kKernelsMax) {
    if (!full_) refuse("profiles_full", directory_ + ": full; run heddle profile prune");
    full_ = true;
    return;
  }
  const uint64_t key = task.task;
  const auto it = profiles_.find(key);
  if (it == profiles_.end()) {
    profiles::Profile fresh = describe(std::move(task), label, command);
    fresh.file = directory_ + "/" + profiles::file_name(fresh);
    take(std::move(fresh));
  } else {
    profiles::Profile& profile = it->second;
    const size_t before = profile.task.kernels.size();
    if (!profiles::add_kernels(profile.task, task)) return;
    profile.measured = utc_text(time(nullptr));
    kernels_ += profile.task.kernels.size() - before;
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
  for (const uint64_t key : unsaved_) {
    const profiles::Profile& profile = profiles_.at(key);
    all.emplace_back(profile.file, profiles::format(profile));
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
  for (const uint64_t key : failed_) want_saved(key);
}

void ProfileStore::want_saved(uint64_t key) {
  if (std::find(unsaved_.begin(), unsaved_.end(), key) == unsaved_.end()) unsaved_.push_back(key);
}

nlohmann::json ProfileStore::status() const {
  return {{"directory", directory_},
          {"gpu", gpu_},
          {"driver", driver_},
          {"tasks", profiles_.size()},
          {"errors", errors_}};
}

}  // namespace heddle::server
