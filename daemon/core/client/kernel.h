// A kernel ID at a client, and all kernels of a client.
#pragma once

#include <memory>
#include <vector>

#include "daemon/core/estimator.h"
#include "daemon/core/policy.h"
#include "daemon/model/graph_use.h"

namespace heddle::core {

// A kernel ID at a client.
struct Kernel {
  ipc::KernelFacts facts{};  // without the metrics, which are in its task's `stats`
  uint32_t waves = 1;        // of its blocks on the SMs that its client has
  KernelStats* stats = nullptr;
  // Of a graph: its kernels, and its use by those, computed at Promises::uses() `uses`. Without
  // by_nodes the graph's own measurements count.
  std::unique_ptr<const NodesBody> nodes;
  std::unique_ptr<const GraphUse> by_nodes;
  uint64_t uses = 0;
  bool in_graph = false;  // a graph of its client launches it
  GroupCount size{};      // of the sets that the policy wants for its launches; 0: all
  bool timed = false;     // the policy wants the time of each launch
  int launch_priority = kBuiltinPriority;
  uint32_t policy = 0;  // the Seat::number() whose policy chose that; another one is asked anew
  // The last hint that the client was sent:
  float hinted_us = 0;
  uint8_t hinted_measure = 0;
  GroupCount hinted_size{};
  int hinted_priority = kBuiltinPriority;

  bool is_graph() const { return facts.block_threads == 0; }
  uint32_t waves_on(SmCount sms) const;  // never 0; of a graph 1
  const ipc::KernelMetrics& metrics() const {
    return by_nodes ? by_nodes->metrics : stats->metrics;
  }
  // Of a graph with by_nodes: the part of its time by kernels that were never measured.
  double unknown() const { return by_nodes ? by_nodes->unknown : 0; }
  // The policy chose a size or a priority for its launches.
  bool sized() const { return size.get() != 0 || launch_priority != kBuiltinPriority; }
};

// A client's kernels, and its task's measurement stage.
struct Known {
  std::vector<Kernel> kernels;    // by index
  TaskStats* measured = nullptr;  // its task's measurement stage
  Quantile timed_us{0.5};         // median of its timed launches
  double typical_us = 0;          // the same; the default estimate while there are none
  // For kernels and tasks for which the user has no place left in the table: they share an entry of
  // this client alone, and go into no profile; such a task has no measurement stage.
  KernelStats unplaced;
  TaskStats unstaged{0, 0, true};
  bool full = false;           // some kernel found no place
  bool profile_grown = false;  // kernels were profiled since take_profile()

  // nullptr: the kernel is unknown.
  const Kernel* kernel(uint32_t index) const {
    return index < kernels.size() && kernels[index].stats != nullptr ? &kernels[index] : nullptr;
  }
  // The kernel's duration on all SMs, in the context of the launches before it.
  double predict_us(uint32_t kernel, Context before) const;
  void timed(double us) {
    timed_us.add(us);
    typical_us = timed_us.value();
  }
};

}  // namespace heddle::core
