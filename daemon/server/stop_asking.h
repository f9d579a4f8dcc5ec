// Finds out which GPUs of this host can stop running kernels. heddle-stop-probe asks those without
// an answer under this driver, one after the other. The answers are kept in a file, which is read
// again when it changes. Loop thread only.
#pragma once

#include <sys/types.h>
#include <uv.h>
#include <nlohmann/json_fwd.hpp>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/server/config.h"
#include "daemon/server/gpus.h"
#include "daemon/server/handles.h"
#include "daemon/server/jobs.h"
#include "daemon/server/log.h"

namespace heddle::server {

// Whether a GPU can stop running kernels (ipc/stop.h): an answer of heddle-stop-probe, as it is
// kept in the state directory. heddled and `heddle doctor` read that file, and the one that asked a
// GPU writes it.
struct StopAnswer {
  std::string gpu;     // GpuNumbers::text()
  std::string name;    // "NVIDIA H200"
  std::string driver;  // kernel_driver() at that time
  std::string at;      // utc_text()
  bool yes = false;
  std::string why;  // the reason if not `yes`
  double stop_us = 0, go_us = 0, slice_ratio = 0;

  bool operator==(const StopAnswer&) const = default;
};

// The version of NVIDIA's kernel module, "" if there is none.
std::string kernel_driver(const std::string& file = "/proc/driver/nvidia/version");

inline constexpr const char* kStopsFile = "stops.json";  // in the state directory
// heddle-stop-probe beside this program's bin/.
std::string stop_probe_path();
// Parses the probe's output. Failed: the probe did not ask, and the error says why.
Result<StopAnswer> parse_probe(const std::string& printed);

// All kept answers; none if there is no file. An error names the file and the remedy.
Result<std::vector<StopAnswer>> read_stops(const std::string& file);
// Keeps the answer, in place of an older one for that GPU.
Result<void> keep_stop(const std::string& file, const StopAnswer& answer);
nlohmann::json stops_json(const std::vector<StopAnswer>& answers);

// The UUID of the simulated GPU, which can stop kernels without having been asked. A client that
// claims to be on it is scheduled only with other clients there.
inline constexpr GpuId kSimulatedGpu = {'h', 'e', 'd', 'd', 'l', 'e', '-', 's',
                                        'i', 'm', '-', 'g', 'p', 'u', '-', '0'};

// The GPUs on which kernels may be stopped. Loop thread only.
class StopAnswers {
 public:
  // `state`: the state directory; "": nothing is kept.
  StopAnswers(StopsSetting setting, const std::string& state);

  bool allows(const GpuId& gpu) const {
    if (setting_ != StopsSetting::kAsked) return setting_ == StopsSetting::kOn;
    return std::find(able_.begin(), able_.end(), gpu) != able_.end();
  }
  // Takes the kept answers. Those of another driver do not count. True: something has changed.
  bool take(Result<std::vector<StopAnswer>> answers);
  // Why GPUs were not asked; "": they were.
  void set_not_asked(const std::string& why) { not_asked_ = why; }
  // The answer that counts, or nullptr.
  const StopAnswer* of(const GpuId& gpu) const;

  StopsSetting setting() const { return setting_; }
  const std::string& file() const { return file_; }  // "": nothing is kept
  const std::string& error() const { return error_; }
  const std::string& not_asked() const { return not_asked_; }
  const std::vector<StopAnswer>& all() const { return answers_; }

 private:
  const StopsSetting setting_;
  const std::string file_, driver_;
  std::string error_, not_asked_;
  std::vector<StopAnswer> answers_;  // of this driver
  std::vector<GpuId> able_;
};

class StopAsking {
 public:
  // `gpus`: the GPUs' numbers.
  StopAsking(uv_loop_t* loop, const Config& config, const GpuNumbers& gpus, StopAnswers& answers,
             Jobs& jobs, Log& log);
  ~StopAsking();
  StopAsking(const StopAsking&) = delete;
  StopAsking& operator=(const StopAsking&) = delete;

  // Logs the kept answers, and has the other GPUs asked: the first `count` of `gpus` are the
  // host's. A GPU with clients or MPS on it is not asked.
  void begin(size_t count);
  void reread();

 private:
  using Process = Handle<uv_process_t, int64_t>;

  void take(Result<std::vector<StopAnswer>> answers);
  void tell() const;
  void not_asked(const std::string& why);
  void ask_next();
  void ended();

  uv_loop_t* const loop_;
  const Config& config_;
  const GpuNumbers& gpus_;
  StopAnswers& answers_;
  Jobs& jobs_;
  Log& log_;
  std::unique_ptr<DirectoryWatch> watch_;
  std::unique_ptr<Process> process_;  // the running probe
  Descriptor printed_;                // its output
  size_t next_ = 0, count_ = 0;       // the next GPU to ask, and their number
};

}  // namespace heddle::server
