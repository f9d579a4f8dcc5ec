// How much device memory this process holds, and how much it may hold.
//
// An allocation is claimed before the driver is called, and counted until it is freed. Under a
// limit, a claim beyond what the daemon has granted asks for more: one round trip a chunk
// (ipc/memory.h). Of all launches only those of graphs that allocate come here, without a lock
// (fits_beside_graphs). A short lock guards the account; it is never held over a driver call or a
// round trip.
//
// Without a daemon a process keeps to the last limit that it was told, by its own count alone. A
// fail-closed process waits for a daemon, kClosedWaitNs at most, and is then refused.
#pragma once

#include <cstdint>

#include "shim/driver/driver_api.h"
#include "shim/link/messages.h"
#include "shim/link/session.h"
#include "shim/memory/table.h"

namespace heddle::shim {

// Claims bytes that are about to be allocated. False: the limit has no room for them. After true
// the caller calls hold_memory() or unclaim_memory(). Devices beyond ipc::kDevices have no account.
bool claim_memory(int device, uint64_t bytes);
void unclaim_memory(int device, uint64_t bytes);
// Counts an allocation that the limit refused.
void count_refused_memory(int device);

// Notes the allocation that was claimed. If the table has no room for it, it counts no more.
void hold_memory(Holds kind, uint64_t key, CUcontext context, int device, uint64_t bytes);
// The allocation came from a pool, whose reserved size counts instead.
void hold_pooled(uint64_t at, CUmemoryPool pool, int device, uint64_t bytes);
// The pool was destroyed: its allocations that are left count themselves from now on.
void count_pooled(CUmemoryPool pool);
// The allocation is about to be freed: takes it out of the table, still counted. False: unknown.
bool take_memory(Holds kind, uint64_t key, Holding& out);
// The driver did not free it after all.
void put_memory_back(const Holding& holding);

// VMM: memory of cuMemCreate counts as long as a handle names it or an address maps it.
void hold_physical(uint64_t handle, int device, uint64_t bytes);
void retain_handle(uint64_t handle, uint64_t at);  // the driver gave it for a mapped address
void export_handle(uint64_t handle, int file);
// A handle from a file that this process exported names the same memory. A handle from another
// process's file is not counted.
void import_handle(uint64_t handle, int file);
void release_handle(uint64_t handle);
void map_handle(uint64_t handle, uint64_t at, uint64_t bytes);
void unmap_range(uint64_t at, uint64_t bytes);

// Sets how much a pool, or the graphs of a device, reserve now. `ended`: the pool is gone.
void settle_reserved(Holds kind, uint64_t key, int device, uint64_t bytes, bool ended = false);
// False: the limit has no room for so much graph memory beside all other memory. Takes no lock, and
// goes by the account as the last allocation left it, and by the daemon's last word.
bool fits_beside_graphs(int device, uint64_t bytes);
// Writes up to `most` pools of the device into `keys`, and returns how many.
size_t pools_of(int device, uint64_t* keys, size_t most);

// The context ended, and with it its allocations.
void forget_context_memory(CUcontext context);

// The limit on the device, 0: none; and how much of it this process and others hold.
struct MemoryView {
  uint64_t limit = 0;
  uint64_t used = 0;
};
MemoryView view_memory(int device);

// A call waits for the process's parked memory. False: no daemon hears of it.
bool tell_memory_wanted();

// ---- for the helper thread ----

void gather_memory(AttachFacts& facts);     // at the first cuInit
void tell_memory_held(AttachFacts& facts);  // for the attach message
// Called as soon as the session's memory is mapped: the daemon does not believe the attach message
// for long unless it sees the same use there.
void tell_memory_used(ipc::ClientMemory& client);
void memory_attached(Session& session);  // the session is about to become current
void memory_detached();                  // it is about to end
void give_back_memory();                 // the daemon wants the memory that is granted, not used
void forget_memory();                    // in a forked child

}  // namespace heddle::shim
