// What the parts of the fake driver share.
#pragma once

#include "shim/driver/driver_api.h"

#define FAKE extern "C" __attribute__((visibility("default")))

// What the stream was told, while a test wants to know.
void note(const char* what, CUstream stream);
// A call that ends captures of other threads, unless this one's mode is relaxed.
void unsafe();
