// The profiles that the daemon knows (daemon/profile/profile.h): read at its start, found by user
// and task key when a client attaches, added to as tasks are measured. What one user's programs say
// is nobody else's; files without a user are an administrator's, are for all, and are left as they
// are. Loop thread only; it reads in its constructor and writes nothing: that is for whoever takes
// unsaved().
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/profile/profile.h"

namespace heddle::profiles {

class ProfileStore {
 public:
  // All that it holds is bounded, so that no crowd of tasks fills memory or disk.
  static constexpr size_t kTasksMax = 4096;
  static constexpr size_t kKernelsMax = 1 << 17;
  static constexpr size_t kShareOfUser = 4;  // of both, one user has such a part at most

  // What an administrator should know: an event's name, and what is wrong, with the remedy.
  using Warn = std::function<void(const char* event, const std::string& error)>;

  // Reads every *.toml of the directory; "": there is none, and nothing is to be saved. A file that
  // cannot be read is warned of by name and line, kept for status(), and left alone.
  ProfileStore(std::string directory, Warn warn);

  // From now on profiles of another GPU or driver are refused, by name and line; before, none is
  // found. Who is `trusted` corrects what somebody else said first, once.
  void learn_gpu(const std::string& gpu, const std::string& driver, bool trusted);
  const std::string& gpu() const { return gpu_; }  // "": not known yet
  // Profiles are of that model; "": a client that does not say is taken for one of it.
  bool is_of(const std::string& gpu) const { return gpu.empty() || gpu == gpu_; }

  // None: the task is to be measured.
  std::optional<core::TaskProfile> find(uint32_t uid, uint64_t task) const;
  // Measured kernels of a task. Those that its profile has already stay as they are; where a file
  // that was refused is in the way, nothing is to be saved: it may be somebody's work.
  void add(core::TaskProfile task, uint32_t uid, const std::string& label,
           const std::string& command);
  // A profile as it would be saved, of the GPU at hand.
  Profile describe(core::TaskProfile task, uint32_t uid, const std::string& label,
                   const std::string& command) const;

  // What is to be written, and where; empty if nothing is.
  std::vector<std::pair<std::string, std::string>> take_unsaved();
  bool unsaved() const { return !unsaved_.empty(); }
  // A file was written, or was not (`error`): then a warning and status() say so, once, and it is
  // unsaved again from the next retry() on.
  void written(const std::string& file, const std::string& error);
  void retry();

  struct Status {
    std::string directory, gpu, driver;
    size_t tasks = 0;
    std::vector<std::string> errors;  // the first of them
  };
  Status status() const { return {directory_, gpu_, driver_, profiles_.size(), errors_}; }

 private:
  using Key = std::pair<std::optional<uint32_t>, uint64_t>;  // user, none: all; task
  struct Held {
    size_t tasks = 0, kernels = 0;
  };

  void read_all();
  void refuse(const char* event, const std::string& error);
  void take(Profile profile);
  void want_saved(const Key& key);
  bool has_room(uint32_t uid, size_t kernels);

  std::string directory_;  // "": none, or one that somebody else could write
  const Warn warn_;
  std::string gpu_, driver_;
  bool trusted_ = false;       // who said so
  std::vector<Profile> read_;  // of another GPU or driver, as far as is known
  std::map<Key, Profile> profiles_;
  Held held_;
  std::map<uint32_t, Held> held_by_;  // user
  std::vector<Key> unsaved_;
  std::set<Key> failed_;           // not written when last tried
  std::set<std::string> others_;   // GPUs of other models, of which nothing is kept
  std::set<std::string> refused_;  // files, which are not to be replaced
  std::vector<std::string> errors_;
  std::set<uint32_t> full_;  // users who were told
};

// The NVIDIA driver's version by /proc/driver/nvidia/version, "580.159.04"; where there is none,
// the CUDA version that the client's driver named (13000), "CUDA 13.0".
std::string driver_name(uint32_t cuda_version);

}  // namespace heddle::profiles
