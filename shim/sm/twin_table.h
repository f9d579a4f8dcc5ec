// The table of executables that may have twins, shared by launching threads and the helper.
#pragma once

#include <atomic>

#include "shim/link/spin.h"
#include "shim/sm/twins.h"

namespace heddle::shim {

// The TwinPlace of a twin in one word, without its span; never 0.
constexpr uint64_t key_of(TwinPlace at) {
  return uint64_t{at.page} << 41 | uint64_t{1} << 40 | uint64_t{at.set.bits()} << 8 |
         static_cast<uint8_t>(-at.priority);
}
constexpr uint32_t page_of(uint64_t key) { return static_cast<uint32_t>(key >> 41); }
constexpr ipc::SmSet set_of(uint64_t key) { return ipc::SmSet(static_cast<uint32_t>(key >> 8)); }
constexpr int priority_of(uint64_t key) { return -static_cast<int>(key & 0xff); }

// A twin and what it was made for. Written by the helper, and by the thread that ends the
// executable.
struct TwinSlot {
  std::atomic<uint64_t> key{0};  // 0: free; set last
  // nullptr: the graph has no place for gates, and is launched itself.
  std::atomic<CUgraphExec> twin{nullptr};
  std::atomic<int64_t> used_ns{0};  // when a launch last took it
  std::atomic<float> span_us{0};    // with gates: the predicted time by which they were placed
  std::atomic<uint16_t> gates{0};

  bool is(uint64_t wanted) const { return key.load(std::memory_order_acquire) == wanted; }
  // Whether a graph that is now predicted to take `span` would get more than twice as many gates.
  bool is_stale(float span) const { return span > 2 * span_us.load(std::memory_order_relaxed); }
};

struct Twinned {
  static constexpr uint32_t kTwins = 4;

  std::atomic<CUgraphExec> exec{nullptr};         // nullptr: free
  std::atomic<bool> used{false};                  // was taken before: a search goes on past it
  std::atomic<GraphFate> fate{GraphFate::kTwin};  // kTwin: it may have some
  std::atomic<uint32_t> launching{0};             // launches of twins; the helper gives none up
  // The twin that a launch wants the helper to make.
  std::atomic<bool> wanted{false};
  std::atomic<uint64_t> wanted_key{0};
  std::atomic<float> wanted_us{0};
  // After a refusal: when the next attempt may come, and how long the present pause is.
  std::atomic<int64_t> again_ns{0};
  int64_t rest_ns = 0;
  // The event behind the last launch. Made with the first twin, kept until the executable ends.
  std::atomic<CUevent> tail{nullptr};
  // For the launching thread alone: the tail is behind the last launch, in the stream with this ID.
  bool has_tail = false;
  uint64_t tail_stream = 0;
  TwinSlot twins[kTwins];
  CUgraph clone = nullptr;
  uint64_t flags = 0;
  bool own_priorities = false;  // the application gave nodes a priority
  uint32_t nodes = 0;           // kernel nodes
  int device = 0;
  CUcontext context = nullptr;  // the device's primary one
  // Clones that updates may still make, and the time up to which they were credited.
  uint32_t clones_left = 0;
  int64_t clones_ns = 0;
};

inline constexpr uint32_t kTwinned = 1024;
extern constinit Twinned twinned[kTwinned];
// Held while an entry begins, changes or ends. No driver call is made with it.
extern constinit Spin twins_lock;
// Twins of all entries and their nodes, with the twin that is being made. With the lock held.
extern constinit uint32_t twins_made, twin_nodes;
// The clone of which the helper is making a twin, and whether it has left its entry meanwhile: then
// the helper destroys it. With the lock held.
extern constinit CUgraph clone_in_use;
extern constinit bool clone_left;
extern constinit std::atomic<bool> twins_wanted;

// Objects that left the table, which this destructor has the driver destroy. It is constructed
// before the lock is taken, so that it is destroyed after the lock is given back. Destroying a twin
// that runs does not wait: the driver frees it when it is done.
class Leavings {
 public:
  Leavings() = default;
  ~Leavings();
  Leavings(const Leavings&) = delete;
  Leavings& operator=(const Leavings&) = delete;

  void add(CUgraphExec twin) { twins_[count_++] = twin; }
  void add(CUgraph clone) { clone_ = clone; }
  void add(CUevent tail) { tail_ = tail; }

 private:
  CUgraphExec twins_[Twinned::kTwins + 1] = {};
  uint32_t count_ = 0;
  CUgraph clone_ = nullptr;
  CUevent tail_ = nullptr;
};

// The executable's entry; nullptr: it has none. Any thread.
Twinned* find_twinned(CUgraphExec exec);

// A free entry for an executable without one; nullptr: there is no room. With the lock held.
Twinned* free_twinned(CUgraphExec exec);

void count(const Inside& in, GraphFate fate);
inline void count(GraphFate fate) { count(Inside(), fate); }

// With the lock held.
void end_twin(const Twinned& entry, TwinSlot& slot, Leavings& left);
void end_twin(const Twinned& entry, TwinSlot& slot, CUgraphExec taken, Leavings& left);
// Takes one twin of so many nodes out of the count.
void uncount_twin(uint32_t nodes);
// Ends all of the entry's twins, and its clone.
void end_clone(Twinned& entry, Leavings& left);
// Tries no twin of the entry for a while, after a refusal or for want of room. Counts the first
// time.
void put_off(const Inside& in, Twinned& entry, GraphFate why);

// Visits the kernel nodes of the graph and of its children, until one visit fails. Also fails at
// nodes of a type that the driver does not clone: an attempt to clone the graph would leave an
// error in the application's log.
inline constexpr int kGraphDepthMost = 8;
CUresult visit_kernels(CUgraph graph, CUresult (*visit)(CUgraphNode node, void* data), void* data,
                       int depth = 0);
template <class Visit>
CUresult for_each_kernel(CUgraph graph, Visit&& visit) {
  const auto call = [](CUgraphNode node, void* data) {
    return (*static_cast<std::remove_reference_t<Visit>*>(data))(node);
  };
  return visit_kernels(graph, call, &visit);
}

}  // namespace heddle::shim
