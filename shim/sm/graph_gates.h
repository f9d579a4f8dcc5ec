// Gates between the nodes of a graph: waits for `running` of a gate page (ipc/gate.h), about every
// 200 µs of what its launch is predicted to take, where the graph has width one (cuts.h).
//
// A gate comes behind its cut and before all that follows.
#pragma once

#include "shim/driver/calls.h"
#include "shim/gate/opener.h"

namespace heddle::shim {

// The word of the device that the gates wait for; 0: the page cannot be registered.
CUdeviceptr gate_of(GateBook& book, int device);

// Helper thread, with `context` current. `gates`: how many there are now; 0: it has no place for
// any. After an error the graph is of no use.
CUresult add_gates(CUgraph graph, CUcontext context, CUdeviceptr word, float span_us,
                   uint16_t& gates);

}  // namespace heddle::shim
