// The kernels of libraries, by handle.
//
// A launch takes a CUkernel in the place of a CUfunction, and nothing in the handle says which it
// is. The driver refuses each kind's calls to the other, and what it refuses stands in the error
// log that it keeps for the application. So the shim notes each CUkernel that the driver hands out.
// Any thread, without a lock.
#pragma once

#include "shim/driver/driver_api.h"

namespace heddle::shim {

void note_library_kernel(CUkernel kernel, CUlibrary library);
// False also for those that found no room.
bool is_library_kernel(const void* handle);
// Before the driver unloads it: its handles may be those of functions next.
void forget_library(CUlibrary library);

}  // namespace heddle::shim
