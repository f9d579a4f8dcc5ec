// Gates between the nodes of a graph: each waits for `running` of a gate page (ipc/gate.h). They
// stand about every 200 µs of the graph's predicted time, each behind a cut (cuts.h) and before all
// nodes that follow it.
#pragma once

#include "shim/driver/calls.h"
#include "shim/gate/opener.h"

namespace heddle::shim {

// The device address of the word that the gates wait for; 0: the page cannot be registered.
CUdeviceptr gate_of(GateBook& book, int device);

// Adds the gates and writes their number to `gates`; 0: the graph has no place for one. Helper
// thread, with `context` current. After an error the graph is half changed, and of no use.
CUresult add_gates(CUgraph graph, CUcontext context, CUdeviceptr word, float span_us,
                   uint16_t& gates);

}  // namespace heddle::shim
