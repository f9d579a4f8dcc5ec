#include "daemon/server/recording.h"

#include <string.h>
#include <sys/mman.h>

#include <new>

#include "ipc/socket.h"

namespace heddle::server {

Result<std::unique_ptr<Recording>> Recording::make() {
  Descriptor memory(ipc::make_memory("heddle-trace", sizeof(trace::Ring)));
  // Sealed, so that no reader can shrink the memory under the daemon.
  int error = memory.get() < 0 ? memory.get() : ipc::seal_client_memory(memory.get());
  void* bytes = MAP_FAILED;
  if (error == 0) {
    bytes = mmap(nullptr, sizeof(trace::Ring), PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
    if (bytes == MAP_FAILED) error = -errno;
  }
  if (error != 0) {
    return fail(std::string("record: no memory for the ring: ") + strerror(-error) +
                "; raise the daemon's limits");
  }
  auto* ring = new (bytes) trace::Ring;
  return std::unique_ptr<Recording>(new Recording(std::move(memory), ring));
}

Recording::~Recording() { munmap(ring_, sizeof(trace::Ring)); }

}  // namespace heddle::server
