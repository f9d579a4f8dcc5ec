// How the shim sees the requests that libcuda makes of NVIDIA's kernel module: it puts a function
// of its own where libcuda keeps the address of ioctl(). Other libraries keep theirs, and the shim
// exports none.
#pragma once

#include <atomic>

#include "shim/stop/objects.h"

namespace heddle::shim {

using Ioctl = int (*)(int fd, unsigned long request, void* argument);
// The function that libcuda called before. The shim's own requests go through it, and are not
// observed. nullptr: libcuda's requests are not seen.
extern constinit std::atomic<Ioctl> driver_ioctl;

// Called right after the driver's library was loaded, by any thread; `inside` is an address in it.
// HEDDLE_DISABLE=1 and HEDDLE_STOPS=0 make it do nothing. Objects of earlier requests stay unknown,
// and a channel of an unknown object is never stopped.
void watch_requests(const void* inside);

// This process's objects; a forked child begins with none.
Objects& objects();

}  // namespace heddle::shim
