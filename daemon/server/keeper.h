// Who parks one program: a process of its own, `heddle keeper PID BYTES` (daemon/cli/park), because
// the driver's calls take seconds. It ends once the program's memory is back on the GPU, and brings
// it back as soon as heddled ends. Loop thread only.
#pragma once

#include <sys/types.h>
#include <uv.h>

#include <functional>
#include <memory>
#include <string>

#include "daemon/base/result.h"
#include "daemon/server/handles.h"

namespace heddle::server {

class Keeper {
 public:
  // `said(word, rest)`: "parked" and "back" with seconds, "failed" with the reason, and at last
  // "ended"; then it may be destroyed. `bytes`: what the program holds on GPUs; 0: it is to be
  // brought back from where an earlier keeper ended.
  using Said = std::function<void(const std::string& word, const std::string& rest)>;
  static Result<std::unique_ptr<Keeper>> begin(uv_loop_t* loop, pid_t pid, uint64_t bytes,
                                               Said said);
  void bring_back();  // also what the end of this object's descriptor means

 private:
  explicit Keeper(Said said);
  void hear();

  const Said said_;
  Descriptor line_;
  Handle<uv_process_t> process_;
  std::unique_ptr<FdWatch> watch_;
};

}  // namespace heddle::server
