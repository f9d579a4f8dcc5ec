// IPC handles: the parent's memory and event are opened by a second process (this program again),
// which computes into the memory turn by turn with the parent.
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>

#include "program.h"

using namespace matrix;

extern char** environ;

namespace {

struct Handles {
  cudaIpcMemHandle_t memory;
  cudaIpcEventHandle_t event;
};

void exactly(ssize_t moved, size_t wanted) {
  if (moved != static_cast<ssize_t>(wanted)) {
    fprintf(stderr, "the other process is gone\n");
    exit(4);
  }
}

// Opens the handles, then answers each word on `in` with a step into the shared memory.
int child(int in, int out) {
  Handles handles;
  exactly(read(in, &handles, sizeof handles), sizeof handles);
  void* data = nullptr;
  cudaEvent_t event;
  CHECK(cudaIpcOpenMemHandle(&data, handles.memory, cudaIpcMemLazyEnablePeerAccess));
  CHECK(cudaIpcOpenEventHandle(&event, handles.event));
  for (unsigned salt; read(in, &salt, sizeof salt) == sizeof salt;) {
    CHECK(cudaStreamWaitEvent(nullptr, event));
    step<<<grid(), 256>>>(static_cast<unsigned*>(data), kCount, salt);
    CHECK(cudaDeviceSynchronize());
    exactly(write(out, &salt, sizeof salt), sizeof salt);
  }
  CHECK(cudaIpcCloseMemHandle(data));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3) return child(atoi(argv[1]), atoi(argv[2]));
  int down[2], up[2];
  if (pipe(down) != 0 || pipe(up) != 0) return 4;
  std::string in = std::to_string(down[0]), out = std::to_string(up[1]);
  char* arguments[] = {argv[0], in.data(), out.data(), nullptr};
  // The child must not hold the ends that are ours, or it never sees the end of its input.
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addclose(&actions, down[1]);
  posix_spawn_file_actions_addclose(&actions, up[0]);
  pid_t pid = 0;
  if (posix_spawn(&pid, "/proc/self/exe", &actions, nullptr, arguments, environ) != 0) return 4;
  close(down[0]);
  close(up[1]);

  Program program;
  unsigned* data = words();
  cudaEvent_t event;
  CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess));
  Handles handles;
  CHECK(cudaIpcGetMemHandle(&handles.memory, data));
  CHECK(cudaIpcGetEventHandle(&handles.event, event));
  CHECK(cudaDeviceSynchronize());
  exactly(write(down[1], &handles, sizeof handles), sizeof handles);
  for (const int round : program.rounds()) {
    unsigned salt = 100 + round;
    step<<<grid(), 256>>>(data, kCount, round);
    CHECK(cudaEventRecord(event));
    exactly(write(down[1], &salt, sizeof salt), sizeof salt);
    exactly(read(up[0], &salt, sizeof salt), sizeof salt);
    program.launched(2);  // one is the child's
  }
  program.digest("data", data, kBytes);
  // The child stays meanwhile, so that the daemon can be asked about both.
  const int result = program.finish();
  close(down[1]);
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? result : 5;
}
