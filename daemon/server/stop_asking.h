// Has GPUs asked whether they can stop kernels that run (stop_answers.h): those of this host that
// have not answered under this driver, one after the other, by a program of its own. Reads what is
// kept again when the file changes. Loop thread only.
#pragma once

#include <sys/types.h>
#include <uv.h>

#include <memory>
#include <string>

#include "daemon/server/gpus.h"
#include "daemon/server/handles.h"
#include "daemon/server/jobs.h"
#include "daemon/server/log.h"
#include "daemon/server/stop_answers.h"

namespace heddle::server {

class StopAsking {
 public:
  // `gpus`: the first `count` are the host's.
  StopAsking(uv_loop_t* loop, const Config& config, const GpuNumbers& gpus, StopAnswers& answers,
             Jobs& jobs, Log& log);
  ~StopAsking();
  StopAsking(const StopAsking&) = delete;
  StopAsking& operator=(const StopAsking&) = delete;

  // Tells what is kept, and asks what is not. Nobody may be on such a GPU, nor MPS.
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
  std::unique_ptr<Process> process_;  // that asks now
  Descriptor printed_;                // by it
  size_t next_ = 0, count_ = 0;       // the GPU to ask; of so many
};

}  // namespace heddle::server
