// Kernel identity: (handle, launch shape) -> the client's kernel index.
//
// A look-up takes no lock. First sight is the slow path: name and attributes from the driver, the
// kernel ID, one message to the daemon. Handles are reused after a module is unloaded, so its
// entries are purged there; indices are never reused, and a kernel that comes back gets its own.
#pragma once

#include "ipc/kernel_id.h"
#include "shim/calls.h"
#include "shim/inside.h"

namespace heddle::shim {

struct KernelRef {
  uint32_t index = ipc::kNoKernel;
  bool exempt = false;  // must never be held back: a rank of a collective
};

// `handle` is a CUfunction, a CUkernel or, with `graph`, a CUgraphExec.
KernelRef kernel_of(const Inside& in, void* handle, const ipc::LaunchShape& shape, bool graph);

// The same question without a session: by what was seen before, or by the kernel's name.
bool is_collective(void* handle, const ipc::LaunchShape& shape, bool graph);

// Gives an instantiated graph its identity: its nodes' types, kernels and shapes, hashed.
void name_graph(CUgraphExec exec, CUgraph graph);

void purge_module(CUmodule module);
void purge_handle(void* handle);
void purge_kernels();   // a library or a context is gone
void forget_kernels();  // in a forked child

// Sends every registration to a new session, then calls `publish` with none left out. Helper
// thread; gives up, returning false, when the socket does.
bool register_all(int socket, Session* session, void (*publish)(Session*));

}  // namespace heddle::shim
