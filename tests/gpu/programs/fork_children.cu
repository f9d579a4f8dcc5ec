// A program that forks after it has used CUDA, as servers and data loaders do: children that only
// compute and exit, and children that become another program, while the parent keeps launching.
#include <sys/wait.h>

#include "program.h"

using namespace matrix;

int main() {
  Program program;
  unsigned* data = words();
  unsigned failures = 0;
  for (const int round : program.rounds()) {
    for (unsigned i = 0; i < 5; ++i) step<<<grid(), 256>>>(data, kCount, round * 5 + i);
    const pid_t pid = fork();
    if (pid == 0) {
      if (round % 2 == 0) {
        execlp("true", "true", nullptr);
        _exit(127);
      }
      volatile unsigned sum = 0;
      for (unsigned i = 0; i < 1'000'000; ++i) sum += i;
      _exit(0);
    }
    for (unsigned i = 5; i < 10; ++i) step<<<grid(), 256>>>(data, kCount, round * 5 + i);
    CHECK(cudaDeviceSynchronize());
    int status = 1;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) ++failures;
    program.launched(10);
  }
  if (failures != 0) {
    fprintf(stderr, "%u children failed\n", failures);
    return 4;
  }
  program.digest("data", data, kBytes);
  return program.finish();
}
