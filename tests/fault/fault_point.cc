// What a fault point does in the test builds of shim and daemon (ipc/fault.h).
//
// HEDDLE_FAULTS="NAME|NTH|ACTION[|MS];..." names what happens when a point is reached the NTH time:
//   kill   SIGKILL to this process
//   stop   SIGSTOP to this process; whoever watches it continues it
//   end    the calling thread ends, as by pthread_exit
//   delay  the calling thread sleeps MS
//   fork   another thread of this process forks (SIGUSR1, see fault_client.cc) while this one
//   sleeps
// The C library alone: it is part of the shim.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "ipc/fault.h"

namespace {

constexpr int kFaults = 8;

struct Fault {
  char name[64];
  unsigned nth;
  char action;  // its first letter, 0: none
  long ms;
  unsigned reached;
};

Fault faults[kFaults];
pthread_once_t read_once = PTHREAD_ONCE_INIT;

void read_plan() {
  const char* at = getenv("HEDDLE_FAULTS");
  for (Fault& fault : faults) {
    if (at == nullptr || *at == '\0') return;
    const size_t length = strcspn(at, "|");
    memcpy(fault.name, at, length < sizeof fault.name ? length : sizeof fault.name - 1);
    char* end;
    fault.nth = static_cast<unsigned>(strtoul(at + length + 1, &end, 10));
    fault.action = end[1];
    at = end + 1 + strcspn(end + 1, "|;");
    if (*at == '|') {
      fault.ms = strtol(at + 1, &end, 10);
      at = end;
    }
    if (*at == ';') ++at;
  }
}

void sleep_ms(long ms) {
  const timespec time{ms / 1000, ms % 1000 * 1'000'000};
  nanosleep(&time, nullptr);
}

// As a cancellation does it: not while it is held off, and never the main thread, which would take
// the judgement with it.
void end_thread() {
  int before;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
  if (before == PTHREAD_CANCEL_ENABLE && syscall(SYS_gettid) != getpid()) pthread_exit(nullptr);
  pthread_setcancelstate(before, &before);
}

void happen(const Fault& fault) {
  dprintf(STDERR_FILENO, "fault: %s\n", fault.name);
  switch (fault.action) {
    case 'k':
      kill(getpid(), SIGKILL);
      break;
    case 's':
      kill(getpid(), SIGSTOP);
      break;
    case 'e':
      end_thread();
      break;
    case 'f':
      kill(getpid(), SIGUSR1);
      sleep_ms(fault.ms);
      break;
    default:
      sleep_ms(fault.ms);
  }
}

}  // namespace

extern "C" void heddle_fault_point(const char* name) {
  pthread_once(&read_once, read_plan);
  for (Fault& fault : faults) {
    if (fault.action == 0) return;
    if (strcmp(fault.name, name) != 0) continue;
    if (__atomic_add_fetch(&fault.reached, 1, __ATOMIC_RELAXED) == fault.nth) happen(fault);
  }
}
