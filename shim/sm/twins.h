// Twins: graphs on chosen SMs or at a launch priority (KRISP section 4, for graphs), or with gates
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
// does not know that an executable and its twins are one. So an executable with twins has an event,
// the tail, recorded behind each of its launches, and a launch into another stream waits for it.
// Streams are told apart by their IDs, which are never used again. A launch takes a twin only if
// the launch before it has the tail behind it. Updates leave the tail as it is.
//
// Only if the device has a family (contexts.h), or the process has gates. CUDA requires that one
// thread at a time uses an executable, so only that thread and the helper share an entry.
#pragma once

#include <cstdint>
#include <optional>

#include "shim/driver/calls.h"
#include "shim/evidence/streams.h"
#include "shim/link/check.h"
#include "shim/link/inside.h"

namespace heddle::shim {

// Bytes of ipc::ClientMemory's `graphs`, 255 at most each. The first counts twins, the others count
// executables that keep all SMs, by reason.
enum class GraphFate : uint8_t {
  kTwin,
  kNoClone,      // has conditional, allocation or free nodes, or kernels of another context
  kDevice,       // the device may launch it, or update its nodes
  kCooperative,  // a kernel needs all its blocks at a time
  kUpdated,      // the application changed nodes of it, or all of it too often
  kRefused,      // the driver refused a twin, or its launch
  kFull,         // there was no room for one more twin or entry
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
  uint16_t gates = 0;  // between its nodes
};

// `exec` was instantiated from `graph` with these flags.
void graph_instantiated(CUgraphExec exec, CUgraph graph, uint64_t flags);
// The driver updated `exec` to `graph` as a whole. Its twins end, and new ones are made of `graph`,
// unless updates come too often.
void graph_updated(CUgraphExec exec, CUgraph graph);
// The driver changed single nodes of `exec`: it goes on without twins.
void graph_changed(CUgraphExec exec);
// The application is about to destroy `exec`.
void graph_ends(CUgraphExec exec);

// Whether `exec` can have twins. The record of a launch that waits for its ticket tells this.
bool may_have_twin(CUgraphExec exec);
// The twin of `exec` there, to be launched next; it stays until InOrder::behind. An empty Twin:
// there is none, or not yet; the helper is called if it is to make one.
Twin twin_of(CUgraphExec exec, int device, TwinPlace at);
// The same for a launch that is to stand at gates: its twin with gates inside, or an empty Twin if
// the graph has no place for a gate. nullopt: not known yet; the helper is called as above.
std::optional<Twin> twin_at_gate(CUgraphExec exec, const StreamSlot& stream, TwinPlace at);
// The twin that twin_at_gate() returned is not launched after all.
void twin_unused(CUgraphExec exec);
// A launch may want that twin later: has the helper make it ahead of need.
void want_twin(CUgraphExec exec, int device, TwinPlace at);
// The driver refused to launch that twin: it ends, and no other is made for a while.
void twin_refused(const Inside& in, CUgraphExec exec, CUgraphExec twin);

// Keeps the order of an executable's launches. Around each of them, managed or not.
struct Twinned;
class InOrder {
 public:
  InOrder(CUgraphExec exec, StreamRef stream);

  // Has the stream wait for the executable's earlier launches. Just before each call to the driver.
  void before();
  // `result` is the driver's, for the launch of `chosen`, the executable or its twin. Returns it.
  CUresult behind(CUresult result, CUgraphExec chosen);

 private:
  bool follows() const;

  Twinned* const entry_;  // nullptr: the executable has no twins, and needs no order from here
  const CUgraphExec exec_;
  const StreamRef stream_;
};

// Helper thread: makes the twins that launches want.
void make_twins();
// The device's contexts are about to end; no thread launches, and the helper makes nothing.
void end_twins(int device);
void forget_twins();  // in a forked child

}  // namespace heddle::shim
