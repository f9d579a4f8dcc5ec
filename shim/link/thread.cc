#include "shim/link/thread.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>

#include <cstddef>

namespace heddle::shim {

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
  int error = pthread_create(&thread, &attributes, run, nullptr);
  // The process may have more thread-local storage than this stack can hold.
  if (error == EINVAL) error = pthread_create(&thread, nullptr, run, nullptr);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  if (error == 0) pthread_setname_np(thread, name);
  return error;
}

}  // namespace heddle::shim
