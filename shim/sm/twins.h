// Graphs on chosen SMs, or at a launch priority (KRISP section 4, for graphs), or with gates
// inside.
//
// The kernels of an executable graph keep the SMs and the priority that they were instantiated
// with, whatever stream it is launched into. So a graph that is to run elsewhere has a twin: an
// executable of the same nodes, each kernel's in the context of an SM set and at that priority.
// The twin is launched in the executable's place, into the application's own stream. A long graph
// that may be held back has a twin with gates between its nodes, at which it stands while
// `running` of the session's gate page is 0 (graph_gates.h).
//
// twins.cc is what a launch and an update do, twin_maker.cc what the helper thread does, and
// twin_table.h what they share. The application may change or destroy its graph once it is
// instantiated: it is cloned before that call returns. A launch notes the twin that it wants and
// goes as it is. The helper makes the twin from the clone, and later launches take it. A twin ends
// with its executable, with an update of it, or when the helper gives it up for another one.
//
// The driver orders a launch behind all earlier ones of the same executable, in whatever stream. It
// does not know that twins are one. So an executable that has twins has an event, recorded behind
// each of its launches, and a launch into another stream waits for it. Streams are told apart by
// their IDs, which are never used again. A launch takes a twin only if the launch before it has the
// event behind it. Updates leave the event as it is.
//
// Only where the device has a family (contexts.h), or the process gates. CUDA wants the uses of one
// executable one at a time, so that what is said of it here is only the caller's and the helper's.
#pragma once

#include <cstdint>
#include <optional>

#include "shim/driver/calls.h"
#include "shim/evidence/streams.h"
#include "shim/link/check.h"
#include "shim/link/inside.h"

namespace heddle::shim {

// Why executables keep all SMs: bytes of ipc::ClientMemory's `graphs`, each the number of
// executables, 255 at most. The first is the number of twins.
enum class GraphFate : uint8_t {
  kTwin,
  kNoClone,      // has conditional, allocation or free nodes, or kernels of another context
  kDevice,       // the device may launch it, or update its nodes
  kCooperative,  // a kernel needs all its blocks at a time
  kUpdated,      // the application changed nodes of it, or all of it too often
  kRefused,      // the driver refused a twin, or its launch
  kFull,         // there was no room for a further one
};
static_assert(static_cast<unsigned>(GraphFate::kFull) < kBrokenChecks);

// Where the nodes of a twin run, and whose gates stand between them.
struct TwinPlace {
  ipc::SmSet set{};   // empty: all SMs
  int priority = 0;   // 0: the nodes' own
  uint32_t page = 0;  // of gate_books, + 1; 0: no gates
  float span_us = 0;  // with gates: how long a launch is predicted to take
  bool is_own() const { return set.empty() && priority == 0 && page == 0; }
};

struct Twin {
  CUgraphExec exec = nullptr;
  uint16_t gates = 0;  // inside
};

// `exec` was instantiated from `graph` with these flags.
void graph_instantiated(CUgraphExec exec, CUgraph graph, uint64_t flags);
// The driver updated it to `graph` as a whole. Its twins end, and new ones are made of that graph
// unless that happens too often.
void graph_updated(CUgraphExec exec, CUgraph graph);
// The driver changed nodes of it one by one: it goes on without twins.
void graph_changed(CUgraphExec exec);
// The application is about to destroy it.
void graph_ends(CUgraphExec exec);

// Whether there may be twins of it. A launch whose thread waits says so.
bool may_have_twin(CUgraphExec exec);
// Its twin there, to be launched next: it stays until InOrder::behind. nullptr: there is none, or
// not yet; the helper is called if there will be one.
Twin twin_of(CUgraphExec exec, int device, TwinPlace at);
// The same of a launch that is to be held on the device: its twin with gates, or nullptr if the
// graph has no place for any. nullopt: it cannot be held yet; the helper is called as above.
std::optional<Twin> twin_at_gate(CUgraphExec exec, const StreamSlot& stream, TwinPlace at);
// That twin is not launched after all.
void twin_unused(CUgraphExec exec);
// A launch may want that twin later.
void want_twin(CUgraphExec exec, int device, TwinPlace at);
// The driver refused to launch that twin: it ends, and others are put off for a while.
void twin_refused(const Inside& in, CUgraphExec exec, CUgraphExec twin);

// A launch of an executable, managed or not.
struct Twinned;
class InOrder {
 public:
  InOrder(CUgraphExec exec, StreamRef stream);

  // The stream waits for the executable's earlier launches. Just before each call to the driver.
  void before();
  // The driver said `result` of launching `chosen`, the executable or its twin. Returns it.
  CUresult behind(CUresult result, CUgraphExec chosen);

 private:
  bool follows() const;

  Twinned* const entry_;  // nullptr: there is nothing to do
  const CUgraphExec exec_;
  const StreamRef stream_;
};

// Helper thread: makes what launches want.
void make_twins();
// The device's contexts are about to end; no thread launches, and the helper makes nothing.
void end_twins(int device);
void forget_twins();  // in a forked child

}  // namespace heddle::shim
