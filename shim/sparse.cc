#include "shim/sparse.h"

namespace heddle::shim {

constinit KernelSet quiet;
constinit __thread ipc::Telling telling;
constinit __thread uint32_t untold_kernel = ipc::kNoKernel;

}  // namespace heddle::shim
