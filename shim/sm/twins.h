// Graphs on chosen SMs, or at a launch priority (KRISP section 4, for graphs).
//
// The kernels of an executable graph keep the SMs and the priority that they were instantiated
// with, whatever stream it is launched into. So a graph that is to run elsewhere has a twin: an
// executable of the same nodes, each kernel's in the context of a partition and at that priority.
// All nodes have the same partition, or each run of them its own (ipc::size_inside).
// The twin is launched in the executable's place, into the application's own stream.
//
// The application may change or destroy its graph once it is instantiated: it is cloned before that
// call returns. A launch notes the twin that it wants and goes as it is; the helper thread makes
// the twin from the clone, and later launches take it. A twin ends with its executable, or where
// all places are taken and other sizes are wanted inside the graph: the launch that wants them
// gives up one that was not launched last. So no launch meets one that is being destroyed. An
// executable that the application updates goes on without twins.
//
// The driver orders a launch behind all earlier ones of the same executable, in whatever stream. It
// does not know that twins are one: the first launch in another stream takes what was launched
// last, and only the next one in that stream may be another. (Not so after an update: who updates
// an executable while it runs, and then launches it into another stream, must order that himself.)
//
// Only where the device has a family (contexts.h). CUDA wants the uses of one executable one at a
// time, so that what is said of it here is only the caller's and the helper's.
#pragma once

#include <cstdint>

#include "shim/driver/calls.h"
#include "shim/evidence/streams.h"
#include "shim/link/inside.h"

namespace heddle::shim {

// Why executables keep all SMs: bytes of ipc::ClientMemory's `graphs`, each the number of
// executables, 255 at most. The first is the number of twins.
enum class GraphFate : uint8_t {
  kTwin,
  kNoClone,      // the driver clones no graph with conditional, allocation or free nodes
  kDevice,       // the device may launch it, or update its nodes
  kCooperative,  // a kernel needs all its blocks at a time
  kUpdated,      // the application changed nodes of it, or all of it too often
  kRefused,      // the driver refused the twin, or its launch
  kFull,         // there is no room for further ones
};

// `exec` was instantiated from `graph` with these flags, or updated to it so often, on this thread.
void clone_graph(CUgraphExec exec, CUgraph graph, uint64_t flags, uint32_t updates = 0);

// Where the nodes of a twin run.
struct TwinPlace {
  uint32_t groups = 0;  // the partition, 0: all SMs
  int priority = 0;     // 0: the nodes' own
  uint64_t inside = 0;  // sizes within the partition (ipc::size_inside), 0: all of it
  bool operator==(const TwinPlace&) const = default;
};

// The twin of `exec` there. nullptr: there is none, or not yet; the helper is called if there will
// be one.
CUgraphExec twin_of(CUgraphExec exec, int device, TwinPlace at);
// What is launched for `exec` into that stream: `wanted` (nullptr: `exec` itself), or what was
// launched last. To be asked before every launch of an executable, managed or not.
CUgraphExec in_order(CUgraphExec exec, StreamRef stream, CUgraphExec wanted);
// Whether there may be one. A launch that asks says so.
bool may_have_twin(CUgraphExec exec);

// The driver refused to launch a twin of it.
void twin_refused(const Inside& in, CUgraphExec exec);
// The application is about to change the executable node by node: it goes on without twins.
void graph_updated(CUgraphExec exec);
// It is about to update it as a whole. Its twins end, and new ones are made of the other graph:
// then clone_graph is called with what is told here, unless that happened too often.
struct Update {
  bool again = false;
  uint64_t flags = 0;
  uint32_t updates = 0;  // with this one
};
Update graph_updates(CUgraphExec exec);
void graph_ends(CUgraphExec exec);

// Helper thread: makes what launches want.
void make_twins();
// The device's contexts are about to end; no thread launches, and the helper makes nothing.
void end_twins(int device);
void forget_twins();  // in a forked child

}  // namespace heddle::shim
