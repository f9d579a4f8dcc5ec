// The helper thread polls markers, only while a less important client waits for this one.
//
// It polls every 20 µs. It rests as soon as no event is outstanding, while a stream captures, and
// for good once the process exits. Measured on an H200: a thread that spins on cuEventQuery costs
// each launch 0.44 µs, and is late by 0.5 ms or more one time in twenty. A thread that polls every
// 20 µs costs a launch nothing.
#pragma once

#include "shim/link/inside.h"

namespace heddle::shim {

// For launching threads, while a less important client waits and their stream has_markers: makes
// sure that the helper polls. Two system calls if the helper rests, else none.
void watch_soon();

// The helper has a kernel to tell of (kernels.h) or a twin to make (twins.h). Two system calls for
// the first such call until the helper has looked.
void call_helper();
void heed_calls(bool heed);  // helper thread: false while it will look without a call

// ---- for the helper thread ----

// The eventfd that is readable when the helper has work. Each process's helper makes its own, and a
// new one if the application closed it. -1: there is none (any more).
void make_watch_descriptor();
int watch_descriptor();

// Polls markers until there are none, or for 2 ms: then the descriptor is readable again. The
// helper also calls it once a second, because launching threads may have held all thread slots.
void watch();

}  // namespace heddle::shim
