// The profiles that the daemon knows (profiles/profile.h): read at its start, found by task key
// when a client attaches, added to as tasks are measured. Loop thread only; it reads in its
// constructor and writes nothing: that is for whoever takes unsaved().
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/server/log.h"
#include "profiles/profile.h"

namespace heddle::server {

class ProfileStore {
 public:
  // All that it holds is bounded, so that no crowd of tasks fills memory or disk.
  static constexpr size_t kTasksMax = 4096;
  static constexpr size_t kKernelsMax = 1 << 17;

  // Reads every *.toml of the directory; "": there is none, and nothing is to be saved. A file that
  // cannot be read is logged by name and line, kept for status(), and left alone.
  ProfileStore(std::string directory, Log& log);

  // From now on profiles of another GPU or driver are refused, by name and line; before, none is
  // found. False: it is another than the first, whose profiles these are.
  bool learn_gpu(const std::string& gpu, const std::string& driver);
  const std::string& gpu() const { return gpu_; }  // "": not known yet

  // The task's own, else that of its namesake which serves everybody (Client::shared_task).
  // nullptr: it is to be measured. Valid until the next add().
  const core::TaskProfile* find(uint64_t own, uint64_t shared) const;
  // Measured kernels of a task. Those that its profile has already stay as they are; where a file
  // that was refused is in the way, nothing is to be saved: it may be somebody's work.
  void add(core::TaskProfile task, const std::string& label, const std::string& command);
  // A profile as it would be saved, of the GPU at hand.
  profiles::Profile describe(core::TaskProfile task, const std::string& label,
                             const std::string& command) const;

  // What is to be written, and where; empty if nothing is.
  std::vector<std::pair<std::string, std::string>> take_unsaved();
  bool unsaved() const { return !unsaved_.empty(); }
  // A file was written, or was not (`error`): then the log and status() say so, once, and it is
  // unsaved again from the next retry() on.
  void written(const std::string& file, const std::string& error);
  void retry();

  // {directory, gpu, driver, tasks, errors: [...]}
  nlohmann::json status() const;

 private:
  void refuse(const char* event, const std::string& error);
  void take(profiles::Profile profile);
  void want_saved(uint64_t key);

  const std::string directory_;
  Log& log_;
  std::string gpu_, driver_;
  std::vector<profiles::Profile> read_;             // until the GPU is known
  std::map<uint64_t, profiles::Profile> profiles_;  // by task key
  size_t kernels_ = 0;
  std::vector<uint64_t> unsaved_;
  std::set<uint64_t> failed_;      // not written when last tried
  std::set<std::string> others_;   // GPUs of other models, of which nothing is kept
  std::set<std::string> refused_;  // files, which are not to be replaced
  std::vector<std::string> errors_;
  bool full_ = false;
};

// The NVIDIA driver's version by /proc/driver/nvidia/version, "580.159.04"; where there is none,
// the CUDA version that the client's driver named (13000), "CUDA 13.0".
std::string driver_name(uint32_t cuda_version);

}  // namespace heddle::server
