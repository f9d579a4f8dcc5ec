// Stands in for libcuda.so.1 under `heddle park`: a process that is locked is stopped by a signal.
// FAKE_CHECKPOINT is a folder with the state of each process; FAKE_CHECKPOINT_FAILS=save:2 has a
// call fail with that error.
#include <signal.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#define FAKE extern "C" __attribute__((visibility("default")))

namespace {

std::string file_of(int pid) {
  return std::string(getenv("FAKE_CHECKPOINT")) + "/" + std::to_string(pid);
}

int state_of(int pid) {
  int state = 0;
  std::ifstream(file_of(pid)) >> state;
  return state;
}

int failure(const char* call) {
  const char* text = getenv("FAKE_CHECKPOINT_FAILS");
  const size_t length = strlen(call);
  const bool mine = text != nullptr && strncmp(text, call, length) == 0 && text[length] == ':';
  return mine ? atoi(text + length + 1) : 0;
}

int step(const char* call, int pid, int from, int to, int number) {
  if (const int error = failure(call)) return error;
  if (state_of(pid) != from) return 401;  // CUDA_ERROR_ILLEGAL_STATE
  std::ofstream(file_of(pid)) << to;
  if (number != 0) kill(pid, number);
  return 0;
}

}  // namespace

FAKE int cuInit(unsigned) { return failure("init"); }
FAKE int cuGetErrorName(int, const char** out) { return *out = "CUDA_ERROR_FAKE", 0; }
FAKE int cuCheckpointProcessGetState(int pid, int* out) {
  return *out = state_of(pid), failure("state");
}
FAKE int cuCheckpointProcessLock(int pid, void*) { return step("lock", pid, 0, 1, SIGSTOP); }
FAKE int cuCheckpointProcessCheckpoint(int pid, void*) { return step("save", pid, 1, 2, 0); }
FAKE int cuCheckpointProcessRestore(int pid, void*) { return step("restore", pid, 2, 1, 0); }
FAKE int cuCheckpointProcessUnlock(int pid, void*) { return step("unlock", pid, 1, 0, SIGCONT); }
