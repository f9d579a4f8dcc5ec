// Evidence (d): the helper thread looks whether marked work is done, only while somebody less
// important waits for this client.
//
// It looks every 20 µs and rests as soon as no marker is outstanding, while anything captures, and
// for good once the process exits. Measured on an H200: a thread that spins on the query
// costs each launch 0.44 µs and is itself late by half a millisecond and more one time in twenty;
// one that looks every 20 µs costs a launch nothing.
#pragma once

#include "shim/link/inside.h"

namespace heddle::shim {

// For launching threads, while somebody less important waits and their stream has_markers: sees
// to it that the helper looks. A helper that rests costs two system calls.
void watch_soon();

// A kernel is to be told of (kernels.h). Two system calls, once until the helper has looked.
void call_helper();
void heed_calls(bool heed);  // helper thread: false while it looks by itself

// ---- for the helper thread ----

// Made anew by each helper, for its process, and when the application closed it; readable when
// there is something to look at, -1 if there is no such descriptor (any more).
void make_watch_descriptor();
int watch_descriptor();

// Makes the lanes that launches wanted, then looks. Returns when there is nothing to look at, or
// after a while: then it is to be called again, now and then in any case, for it may have found no
// slot.
void watch();

}  // namespace heddle::shim
