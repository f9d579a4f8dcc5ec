// The threads of the shim's own.
#pragma once

namespace heddle::shim {

// Starts a detached thread that takes no signal. 0, or what pthread_create said.
int start_thread(const char* name, void* (*run)(void*));

}  // namespace heddle::shim
