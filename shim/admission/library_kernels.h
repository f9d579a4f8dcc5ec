// Which handles are CUkernels, the kernels of libraries.
//
// A launch may name a CUkernel in place of a CUfunction, and the handle does not say which it is.
// The driver refuses the calls of one kind for the other, and writes each refusal to the error log
// that it keeps for the application. So the shim notes each CUkernel that the driver hands out.
// Any thread, without a lock.
#pragma once

#include "shim/driver/driver_api.h"

namespace heddle::shim {

void note_library_kernel(CUkernel kernel, CUlibrary library);
// False also for a CUkernel that found no room in the table.
bool is_library_kernel(const void* handle);
// Called before the driver unloads the library: its handles may name functions afterwards.
void forget_library(CUlibrary library);

}  // namespace heddle::shim
