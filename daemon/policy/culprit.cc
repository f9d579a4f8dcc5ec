#include "daemon/policy/culprit.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

namespace heddle::policy {
namespace {

char culprit_file[4096];
char signal_stack[16384];  // the policy may have used up the other one

void on_fatal_signal(int signal) {
  const char* hash = running_hash.load(std::memory_order_relaxed);
  const int fd = hash == nullptr ? -1 : open(culprit_file, O_WRONLY | O_APPEND | O_CREAT, 0644);
  if (fd >= 0) {
    constexpr char kWhy[] = " heddled died while it ran\n";
    (void)!write(fd, hash, strlen(hash));
    (void)!write(fd, kWhy, sizeof kWhy - 1);
  }
  raise(signal);  // it ends the process once this handler has returned
}

}  // namespace

void name_culprit_in(const std::string& path) {
  if (path.size() >= sizeof culprit_file) return;
  memcpy(culprit_file, path.c_str(), path.size() + 1);
  stack_t stack{};
  stack.ss_sp = signal_stack;
  stack.ss_size = sizeof signal_stack;
  sigaltstack(&stack, nullptr);
  struct sigaction action {};
  action.sa_handler = on_fatal_signal;
  action.sa_flags = static_cast<int>(SA_ONSTACK | SA_RESETHAND);
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
    sigaction(signal, &action, nullptr);
  }
}

}  // namespace heddle::policy
