// The shim's own threads.
#pragma once

namespace heddle::shim {

// Starts a detached thread that takes no signal. 0, or the error of pthread_create.
int start_thread(const char* name, void* (*run)(void*));
bool is_shims_own_thread();  // the calling thread is one of those

}  // namespace heddle::shim
