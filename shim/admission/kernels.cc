#include "shim/admission/kernels.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>

#include "ipc/socket.h"
#include "shim/admission/graph_sight.h"
#include "shim/admission/library_kernels.h"
#include "shim/admission/unobserved.h"
#include "shim/driver/driver.h"
#include "shim/evidence/streams.h"
#include "shim/evidence/watch.h"
#include "shim/link/messages.h"
#include "shim/link/spin.h"

namespace heddle::shim {
namespace {

constexpr int kEntryBits = 14;
constexpr size_t kEntries = size_t{1} << kEntryBits;
static_assert(kEntries == 2 * ipc::kKernels);
constexpr size_t kProbes = 64;
// Kernels inside graphs take at most a quarter of the indices, and leave the others to kernels that
// are launched by themselves. The daemon has 2 * kKernels places for each user: enough for eight
// programs with this many kernels in graphs.
constexpr uint32_t kInGraphsMax = ipc::kKernels / 4;
constexpr size_t kNodeArena = size_t{1} << 15;  // graphs beyond it are told without their kernels
// Names are kept for the next daemon. A kernel whose name has no room is told by its ID alone.
constexpr size_t kNameArenaBytes = 1 << 20;
constexpr uint64_t kFreeTag = 0;
constexpr uint64_t kDeadTag = 1;  // purged, or being written: never matches
// The module of a graph's entry: no module's end purges it, as a graph's handle ends by itself.
const CUmodule kGraph = reinterpret_cast<CUmodule>(1);

// A shape of zeros: tables start as zeros, so that untouched pages cost nothing.
constexpr ipc::LaunchShape kZero{{0, 0, 0}, {0, 0, 0}, 0, 0};

// A seqlock entry: written under the registry's lock, read without. A reader believes what it read
// if the tag is the same before and after. If another entry of the same tag replaced it meanwhile,
// the kernel is still the old or the new one as a whole, because it is one word.
struct alignas(64) Known {
  std::atomic<uint64_t> tag{kFreeTag};
  std::atomic<void*> handle{nullptr};
  std::atomic<CUmodule> module{nullptr};  // nullptr: unknown
  std::atomic<uint64_t> shape[4] = {};
  std::atomic<uint64_t> kernel{0};  // index << 1 | exempt
};
static_assert(sizeof(Known) == 64);

constexpr uint64_t pack(KernelRef kernel) { return uint64_t{kernel.index} << 1 | kernel.exempt; }
constexpr KernelRef unpack(uint64_t kernel) {
  return {static_cast<uint32_t>(kernel >> 1), (kernel & 1) != 0};
}

struct Registered {
  uint64_t id = 0;
  uint32_t name = 0;  // offset in the arena
  uint32_t name_length = 0;
  ipc::LaunchShape shape = kZero;
  uint32_t registers = 0;
  uint32_t static_smem_bytes = 0;
  uint32_t blocks_per_sm = 0;
  uint32_t graph_nodes = 0;
  uint32_t first_node = 0;  // in the arena of nodes
  uint32_t node_count = 0;
  uint32_t other_nodes = 0;
};

constinit Known entries[kEntries];
constinit Registered registry[ipc::kKernels];
constinit std::atomic<uint32_t> registered{0};
constinit uint16_t by_id[kEntries] = {};  // index + 1, open addressing by kernel ID
constinit char names[kNameArenaBytes] = {};
constinit size_t names_used = 0;
constinit GraphNode graph_nodes[kNodeArena] = {};
constinit uint32_t graph_nodes_used = 0;
constinit Spin registry_lock;
constinit Spin telling_lock;  // held while the daemon is told of a kernel

// A shape in words of two fields, as it lies.
struct Words {
  uint64_t w[4];
  explicit Words(const ipc::LaunchShape& shape) { memcpy(w, &shape, sizeof w); }
  Words(uint64_t a, uint64_t b, uint64_t c, uint64_t d) : w{a, b, c, d} {}
  bool operator==(const Words& o) const {
    return ((w[0] ^ o.w[0]) | (w[1] ^ o.w[1]) | (w[2] ^ o.w[2]) | (w[3] ^ o.w[3])) == 0;
  }
};

// A sum of independent products, so that the processor computes them in parallel.
[[gnu::always_inline]] inline uint64_t tag_of(void* handle, const Words& shape) {
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15u;
  const uint64_t sum = reinterpret_cast<uint64_t>(handle) * kOdd +
                       shape.w[0] * 0xff51afd7ed558ccdu + shape.w[1] * 0xc4ceb9fe1a85ec53u +
                       shape.w[2] * 0xbf58476d1ce4e5b9u + shape.w[3] * 0x94d049bb133111ebu;
  return (sum ^ sum >> 32) * kOdd | 2;  // neither kFreeTag nor kDeadTag
}

size_t home_of(uint64_t tag) { return tag >> (64 - kEntryBits); }

[[gnu::always_inline]] inline bool find(uint64_t tag, void* handle, const Words& shape,
                                        KernelRef& kernel) {
  size_t place = home_of(tag);
  for (size_t probe = 0; probe < kProbes; ++probe) {
    const Known& entry = entries[place];
    const uint64_t seen = entry.tag.load(std::memory_order_acquire);
    // Acquire loads, so that the second look at the tag comes after them.
    const auto get = [](const auto& word) { return word.load(std::memory_order_acquire); };
    if (seen == tag && get(entry.handle) == handle &&
        Words(get(entry.shape[0]), get(entry.shape[1]), get(entry.shape[2]), get(entry.shape[3])) ==
            shape) [[likely]] {
      kernel = unpack(get(entry.kernel));
      if (entry.tag.load(std::memory_order_relaxed) == tag) [[likely]]
        return true;
    }
    if (seen == kFreeTag) return false;
    place = (place + 1) % kEntries;
  }
  return false;
}

// What the shim learns from the driver when it first sees a kernel.
struct Sight {
  char name[ipc::kKernelNameBytes] = {};
  KernelFacts facts;
  CUmodule module = nullptr;
  bool exempt = false;
};

const char* name_of(void* handle, bool is_kernel) {
  const char* name = nullptr;
  const CUresult result = is_kernel
                              ? HEDDLE_REAL(cuKernelGetName)(&name, static_cast<CUkernel>(handle))
                              : HEDDLE_REAL(cuFuncGetName)(&name, static_cast<CUfunction>(handle));
  return result == CUDA_SUCCESS ? name : nullptr;
}

// Returns a CUfunction, or the function of a CUkernel, and its name. Getting the function also
// loads it into the current context. The driver refuses a question for the wrong kind of handle:
// this happens only for a CUkernel that the shim did not see handed out.
CUfunction resolve(void* handle, const char*& name) {
  bool is_kernel = is_library_kernel(handle);
  name = name_of(handle, is_kernel);
  if (name == nullptr) name = name_of(handle, is_kernel = !is_kernel);
  if (name == nullptr) return nullptr;
  if (!is_kernel) return static_cast<CUfunction>(handle);
  CUfunction function = nullptr;
  const bool can_load = !anything_captures() && current_context() != nullptr;
  if (can_load) HEDDLE_REAL(cuKernelGetFunction)(&function, static_cast<CUkernel>(handle));
  return function;
}

uint32_t attribute_of(CUfunction function, CUfunction_attribute which) {
  int value = 0;
  const CUresult result = HEDDLE_REAL(cuFuncGetAttribute)(&value, which, function);
  return result == CUDA_SUCCESS ? static_cast<uint32_t>(value) : 0;
}

// Whether blocks of this shape can be launched: for larger ones the driver refuses to tell the
// occupancy.
bool is_possible_of(CUfunction function, const ipc::LaunchShape& shape) {
  const uint64_t threads = uint64_t{shape.block[0]} * shape.block[1] * shape.block[2];
  const CUdevice device = current_device();
  const auto ask = HEDDLE_REAL(cuDeviceGetAttribute);
  int smem_most = INT_MAX;
  if (device >= 0) ask(&smem_most, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, device);
  return threads > 0 &&
         threads <= attribute_of(function, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK) &&
         shape.dynamic_smem_bytes <= static_cast<uint32_t>(smem_most);
}

// False: the driver told no more than the kernel's name.
bool look_at_kernel(void* handle, const ipc::LaunchShape& shape, Sight& sight) {
  const RelaxedCapture relaxed;
  const char* name = nullptr;
  const CUfunction function = resolve(handle, name);
  const size_t length = name != nullptr ? strlen(name) : 0;
  const size_t kept = std::min(length, sizeof sight.name - 1);
  if (kept > 0) memcpy(sight.name, name, kept);
  sight.facts.name = {sight.name, kept};
  sight.facts.shape = shape;
  // The ID hashes the whole name, also where `sight.name` is cut.
  sight.facts.id = ipc::kernel_id({name != nullptr ? name : "", length}, shape);
  sight.exempt = name != nullptr && is_exempt(name);
  if (function == nullptr) return false;
  // A lazy load may synchronize the context. It happens now, not in the launch, for which others
  // may wait.
  if (!anything_captures() && driver_has(kEntry_cuFuncLoad)) HEDDLE_REAL(cuFuncLoad)(function);
  HEDDLE_REAL(cuFuncGetModule)(&sight.module, function);
  sight.facts.registers = attribute_of(function, CU_FUNC_ATTRIBUTE_NUM_REGS);
  sight.facts.static_smem_bytes = attribute_of(function, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
  const uint32_t threads = shape.block[0] * shape.block[1] * shape.block[2];
  int value = 0;
  if (is_possible_of(function, shape) &&
      HEDDLE_REAL(cuOccupancyMaxActiveBlocksPerMultiprocessor)(
          &value, function, static_cast<int>(threads), shape.dynamic_smem_bytes) == CUDA_SUCCESS) {
    sight.facts.blocks_per_sm = static_cast<uint32_t>(value);
  }
  return true;
}

void name_sight(Sight& sight, const char* format, uint64_t hash) {
  const int length =
      snprintf(sight.name, sizeof sight.name, format, static_cast<unsigned long long>(hash));
  sight.facts.name = {sight.name, static_cast<size_t>(length)};
  sight.facts.graph_nodes = 1;  // not 0, which means a kernel; name_graph() sets the real number
  sight.module = kGraph;
  sight.facts.id = ipc::kernel_id(sight.facts.name, sight.facts.shape);
}

int send_registration(int socket, const KernelFacts& facts) {
  Packet packet;
  build_kernel(packet, facts);
  return ipc::send_packet(socket, packet.span());
}

KernelFacts facts_of(uint32_t index) {
  const Registered& r = registry[index];
  return {r.id,
          {names + r.name, r.name_length},
          r.shape,
          index,
          r.registers,
          r.static_smem_bytes,
          r.blocks_per_sm,
          r.graph_nodes,
          {graph_nodes + r.first_node, r.node_count},
          r.other_nodes};
}

// The index of a kernel ID: a new one if the ID is new, kNoKernel if there are too many. The
// registry's lock is held.
uint32_t index_of(const KernelFacts& facts, bool& is_new) {
  is_new = false;
  size_t place = static_cast<size_t>(facts.id) % kEntries;
  for (; by_id[place] != 0; place = (place + 1) % kEntries) {
    if (registry[by_id[place] - 1].id == facts.id) return by_id[place] - 1u;
  }
  const uint32_t index = registered.load(std::memory_order_relaxed);
  if (index == ipc::kKernels) return ipc::kNoKernel;
  const bool fits = facts.name.size() < kNameArenaBytes - names_used;
  const size_t length = fits ? facts.name.size() : 0;
  memcpy(names + names_used, facts.name.data(), length);
  const bool nodes_fit = facts.nodes.size() <= kNodeArena - graph_nodes_used;
  const size_t nodes = nodes_fit ? facts.nodes.size() : 0;
  std::copy_n(facts.nodes.begin(), nodes, graph_nodes + graph_nodes_used);
  registry[index] = {facts.id,
                     static_cast<uint32_t>(names_used),
                     static_cast<uint32_t>(length),
                     facts.shape,
                     facts.registers,
                     facts.static_smem_bytes,
                     facts.blocks_per_sm,
                     facts.graph_nodes,
                     graph_nodes_used,
                     static_cast<uint32_t>(nodes),
                     facts.other_nodes};
  names_used += length;
  graph_nodes_used += static_cast<uint32_t>(nodes);
  by_id[place] = static_cast<uint16_t>(index + 1);
  registered.store(index + 1, std::memory_order_release);
  is_new = true;
  return index;
}

// If no place is free, the new entry replaces an older one, so that kernels in use are found.
void insert(uint64_t tag, void* handle, const Sight& sight, KernelRef kernel) {
  static constinit size_t evicted = 0;
  size_t place = home_of(tag);
  for (size_t probe = 0; entries[place].tag.load(std::memory_order_relaxed) > kDeadTag; ++probe) {
    if (probe + 1 == kProbes) {
      place = (home_of(tag) + evicted++ % kProbes) % kEntries;
      break;
    }
    place = (place + 1) % kEntries;
  }
  Known& entry = entries[place];
  entry.tag.store(kDeadTag, std::memory_order_relaxed);
  // Release stores: a thread that reads one of these words also sees that the tag is dead.
  const auto set = [](auto& word, auto value) { word.store(value, std::memory_order_release); };
  const Words shape(sight.facts.shape);
  set(entry.handle, handle);
  set(entry.module, sight.module);
  for (size_t i = 0; i < 4; ++i) set(entry.shape[i], shape.w[i]);
  set(entry.kernel, pack(kernel));
  set(entry.tag, tag);
}

// Tells the daemon of a new kernel. The launch waits neither for a slow or stopped daemon nor for
// another thread that is telling: the helper thread tells what is left.
void tell(Session& session, const KernelFacts& facts) {
  if (telling_lock.try_lock()) {
    const bool next = session.kernels_told.load(std::memory_order_relaxed) == facts.index;
    const bool told = next && send_registration(session.socket, facts) == 0;
    if (told) session.kernels_told.store(facts.index + 1, std::memory_order_relaxed);
    telling_lock.unlock();
    if (told) return;
  }
  call_helper();
}

KernelRef add(Session* session, uint64_t tag, void* handle, Sight& sight) {
  KernelRef kernel;
  bool is_new;
  {
    const Held held(registry_lock);
    if (find(tag, handle, Words(sight.facts.shape), kernel)) return kernel;
    kernel = {index_of(sight.facts, is_new), sight.exempt};
    insert(tag, handle, sight, kernel);
  }
  sight.facts.index = kernel.index;
  if (is_new && session != nullptr) tell(*session, sight.facts);
  return kernel;
}

template <class Match>
void purge(Match&& match) {
  const Held held(registry_lock);
  for (Known& entry : entries) {
    if (entry.tag.load(std::memory_order_relaxed) > kDeadTag && match(entry)) {
      entry.tag.store(kDeadTag, std::memory_order_release);
    }
  }
}

}  // namespace

bool is_collective(void* handle, const ipc::LaunchShape& shape, bool graph) {
  const Words words(shape);
  KernelRef kernel;
  if (find(tag_of(handle, words), handle, words, kernel)) return kernel.exempt;
  if (graph) return false;
  const char* name = nullptr;
  resolve(handle, name);
  return name != nullptr && is_exempt(name);
}

bool is_possible(void* handle, const ipc::LaunchShape& shape) {
  const RelaxedCapture relaxed;
  const char* name = nullptr;
  const CUfunction function = resolve(handle, name);
  return function == nullptr || is_possible_of(function, shape);
}

namespace {

// Not inlined into kernel_of(), so that the stack frame of that one stays small.
[[gnu::noinline]] KernelRef first_sight(const Inside& in, uint64_t tag, void* handle,
                                        const ipc::LaunchShape& shape, bool graph) {
  Sight sight;
  sight.facts.shape = shape;
  if (graph) {
    // The shim did not see the graph being instantiated: its handle alone identifies it.
    name_sight(sight, "graph@%llx", reinterpret_cast<uint64_t>(handle));
  } else {
    look_at_kernel(handle, shape, sight);
  }
  return add(&in.session(), tag, handle, sight);
}

}  // namespace

[[gnu::hot]] KernelRef known_kernel(void* handle, uint64_t grid_xy, uint64_t grid_z_block_x,
                                    uint64_t block_yz, uint64_t smem_cluster) {
  const Words words(grid_xy, grid_z_block_x, block_yz, smem_cluster);
  KernelRef kernel;
  return find(tag_of(handle, words), handle, words, kernel) ? kernel : KernelRef{};
}

[[gnu::hot]] KernelRef kernel_of(const Inside& in, void* handle, const ipc::LaunchShape& shape,
                                 bool graph) {
  const Words words(shape);
  const uint64_t tag = tag_of(handle, words);
  KernelRef kernel;
  if (find(tag, handle, words, kernel)) [[likely]]
    return kernel;
  return first_sight(in, tag, handle, shape, graph);
}

namespace {

// Looking at a CUkernel loads it into the current context, which must be the node's. While a stream
// captures, the shim loads nothing, and would keep incomplete facts of the kernel for good.
bool may_look_at(const NodeCount& node) {
  const CUcontext current = current_context();
  const bool here = node.context == nullptr || node.context == current;
  return current != nullptr && here && !anything_captures();
}

// The index of a kernel in a graph, registered as if it were launched. kNoKernel: it cannot be, and
// counts among the graph's other nodes.
uint32_t index_in_graph(Session* session, const NodeCount& node) {
  const uint64_t tag = tag_of(node.handle, Words(node.shape));
  KernelRef kernel;
  if (find(tag, node.handle, Words(node.shape), kernel)) return kernel.index;
  if (registered.load(std::memory_order_relaxed) >= kInGraphsMax) return ipc::kNoKernel;
  Sight sight;
  if (!may_look_at(node) || !look_at_kernel(node.handle, node.shape, sight)) return ipc::kNoKernel;
  return add(session, tag, node.handle, sight).index;
}

// Fills `nodes` with the kernels that the graph launches most often.
void meet_nodes(Session* session, NodeCounts& counts, std::span<GraphNode> nodes,
                KernelFacts& graph) {
  size_t met = 0;
  uint64_t others = counts.total();
  for (const NodeCount& node : counts.most_frequent(nodes.size())) {
    const uint32_t kernel = index_in_graph(session, node);
    if (kernel == ipc::kNoKernel) continue;
    nodes[met++] = {kernel, node.count};
    others -= node.count;
  }
  graph.nodes = nodes.first(met);
  graph.other_nodes = static_cast<uint32_t>(std::min<uint64_t>(others, UINT32_MAX));
}

}  // namespace

void name_graph(CUgraphExec exec, CUgraph graph) {
  GraphSight look;
  if (!look.look_at(graph)) return;
  Sight sight;
  sight.exempt = look.exempt();
  name_sight(sight, "graph:%016llx", look.hash());
  sight.facts.graph_nodes =
      static_cast<uint32_t>(std::clamp<uint64_t>(look.nodes(), 1, UINT32_MAX));
  purge_handle(exec);
  // The session's socket may be used only inside the session. Without one, the helper tells later.
  const Inside in;
  Session* const session = in ? &in.session() : nullptr;
  GraphNode nodes[ipc::kGraphNodes];
  meet_nodes(session, look.kernels(), nodes, sight.facts);
  add(session, tag_of(exec, Words(sight.facts.shape)), exec, sight);
}

void purge_module(CUmodule module) {
  forget_all_harmless();
  purge([&](const Known& entry) { return entry.module == module || entry.module == nullptr; });
}

void purge_handle(void* handle) {
  forget_harmless(handle);
  purge([&](const Known& entry) { return entry.handle == handle; });
}

void purge_kernels() {
  forget_all_harmless();
  purge([](const Known& entry) { return entry.module != kGraph; });
}

void forget_kernels() {
  registry_lock.forget();
  telling_lock.forget();
  forget_all_harmless();
  purge([](const Known&) { return true; });
}

bool kernels_untold(const Session& session) {
  return session.kernels_told.load(std::memory_order_relaxed) <
         registered.load(std::memory_order_acquire);
}

int tell_kernel(Session& session) {
  const Held held(telling_lock);
  const uint32_t index = session.kernels_told.load(std::memory_order_relaxed);
  if (index == registered.load(std::memory_order_acquire)) return 0;
  const int error = send_registration(session.socket, facts_of(index));
  if (error == 0) session.kernels_told.store(index + 1, std::memory_order_relaxed);
  return error;
}

}  // namespace heddle::shim
