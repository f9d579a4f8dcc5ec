// How much device memory this process holds, and how much it may hold.
//
// Each allocation is claimed before the driver is asked for it and counted until it is freed. Under
// a limit a claim beyond what the daemon has granted asks for more: one round trip a chunk
// (ipc/memory.h). Nothing here is on the way of a launch. A short lock guards the account; it is
// never held across a call of the driver or a round trip.
//
// Without a daemon a process keeps to the limit that it was told last, by its own count alone; one
// that fails closed waits for a daemon, kClosedWaitNs at most, and is then refused.
#pragma once

#include <cstdint>

#include "shim/driver/driver_api.h"
#include "shim/link/messages.h"
#include "shim/link/session.h"
#include "shim/memory/table.h"

namespace heddle::shim {

// Bytes that are about to be allocated. False: the limit has no room for them. True is to be
// followed by hold() or unclaim(). Devices beyond ipc::kDevices have no account.
bool claim_memory(int device, uint64_t bytes);
void unclaim_memory(int device, uint64_t bytes);
// An allocation failed for want of room, as the application sees it.
void count_refused_memory(int device);

// What was claimed is this now. Where there is no room to note it, it is counted no more.
void hold_memory(Holds kind, uint64_t key, CUcontext context, int device, uint64_t bytes);
// It came from a pool, whose reserved size counts.
void hold_pooled(uint64_t at, CUmemoryPool pool, int device, uint64_t bytes);
// The pool is no more: what is left of it counts for itself.
void count_pooled(CUmemoryPool pool);
// It is about to be freed: taken out, and still counted. False: it is not known.
bool take_memory(Holds kind, uint64_t key, Holding& out);
// The driver did not free it after all.
void put_memory_back(const Holding& holding);

// VMM: what cuMemCreate made stays as long as a handle names it or an address maps it.
void hold_physical(uint64_t handle, int device, uint64_t bytes);
void retain_handle(uint64_t handle, uint64_t at);  // the driver gave it for a mapped address
void export_handle(uint64_t handle, int file);
// Of a file that this process exported, it names the same memory; of others' it is not counted.
void import_handle(uint64_t handle, int file);
void release_handle(uint64_t handle);
void map_handle(uint64_t handle, uint64_t at, uint64_t bytes);
void unmap_range(uint64_t at, uint64_t bytes);

// A pool, or the graphs of a device, reserve so much now. `ended`: they are no more.
void settle_reserved(Holds kind, uint64_t key, int device, uint64_t bytes, bool ended = false);
// False: beside all but the graphs' memory the limit has no room for so much. Without a lock, by
// what an earlier allocation left and the daemon told.
bool fits_beside_graphs(int device, uint64_t bytes);
// Up to `most` pools of the device, into `keys`.
size_t pools_of(int device, uint64_t* keys, size_t most);

// What was allocated in the context is gone with it.
void forget_context_memory(CUcontext context);

// The limit of the device, 0: none; and what is held of it, by this process and others.
struct MemoryView {
  uint64_t limit = 0;
  uint64_t used = 0;
};
MemoryView view_memory(int device);

// ---- for the helper thread ----

void gather_memory(AttachFacts& facts);     // at the first cuInit
void tell_memory_held(AttachFacts& facts);  // in what it sends to attach
// As soon as its memory is mapped: what is only said and not seen in use is not believed for long.
void tell_memory_used(ipc::ClientMemory& client);
void memory_attached(Session& session);  // it is current from now on,
void memory_detached();                  // and not any more
void give_back_memory();                 // the daemon wants what is granted and not used
void forget_memory();                    // in a forked child

}  // namespace heddle::shim
