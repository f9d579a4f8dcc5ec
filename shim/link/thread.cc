#include "shim/link/thread.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>

#include <cstddef>

namespace heddle::shim {
namespace {

constinit __thread bool is_own = false;

// `run` of the thread that begins, taken by it from its argument.
void* begin(void* run) {
  is_own = true;
  return reinterpret_cast<void* (*)(void*)>(run)(nullptr);
}

}  // namespace

bool is_shims_own_thread() { return is_own; }

int start_thread(const char* name, void* (*run)(void*)) {
  constexpr size_t kStackBytes = 1024 * 1024;  // the helper calls the driver
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  int error = pthread_create(&thread, &attributes, begin, reinterpret_cast<void*>(run));
  // The process may have more thread-local storage than this stack can hold.
  if (error == EINVAL)
    error = pthread_create(&thread, nullptr, begin, reinterpret_cast<void*>(run));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  if (error == 0) pthread_setname_np(thread, name);
  return error;
}

}  // namespace heddle::shim
