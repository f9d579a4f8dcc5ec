// What the parts of the fake driver share.
#pragma once

#include "shim/driver/driver_api.h"

#define FAKE extern "C" __attribute__((visibility("default")))

// What the stream was told, while a test wants to know.
void note(const char* what, CUstream stream);
// Does not return while that kind of call is held.
enum class Held { kFirstSight = 1, kEventEnd, kInstantiate };
void hold(Held call);
// Counts a call that the real driver would put into its log of errors. Returns why.
CUresult refused(CUresult why);
// The same of a call that needs a current context, if there is none.
CUresult refused_without_context();
// Of a launch with blocks that no kernel can have.
CUresult refused_blocks(unsigned threads, unsigned shared);
// The library's kernel whose function that is.
CUkernel kernel_of(const void* function);
// A call that ends captures of other threads, unless this one's mode is relaxed.
void unsafe();
// The context's objects are freed (shim_fake_objects.cc).
void end_objects();
