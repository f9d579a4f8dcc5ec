// State of the simulated driver in one process: contexts, streams, events, modules, captures.
//
// One lock guards it all; it is held while a launch is written into the ring (a few hundred
// nanoseconds) and never while waiting. Objects are never freed to the allocator: a destroyed
// handle is recognized by its cleared `tag` and refused, as a strict driver should.
#pragma once

#include <atomic>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "bench/sim/link.h"
#include "bench/sim/mem_ops.h"
#include "bench/sim/rm.h"
#include "shim/driver/driver_api.h"

#define HEDDLE_SIM_API extern "C" __attribute__((visibility("default")))

namespace heddle::sim {

// Codes that the shim has no use for.
inline constexpr CUresult kIllegalAddress = static_cast<CUresult>(700);
inline constexpr CUresult kCaptureMerge = static_cast<CUresult>(902);
inline constexpr CUresult kCaptureUnmatched = static_cast<CUresult>(903);
inline constexpr CUresult kCaptureUnjoined = static_cast<CUresult>(904);
inline constexpr CUresult kCapturedEvent = static_cast<CUresult>(907);
inline constexpr CUresult kCaptureWrongThread = static_cast<CUresult>(908);
inline constexpr CUresult kUpdateRefused = static_cast<CUresult>(910);

// Of cuMemCreate, and of what a pool reserves.
inline constexpr uint64_t kGranularity = uint64_t{2} << 20;

// A device address = kDeviceBase + heap offset: no host mapping, so that following one crashes.
inline constexpr CUdeviceptr kDeviceBase = 0x700000000000;

struct Stream;
struct Capture;
struct Green;

struct Context {
  static constexpr uint32_t kTag = 0x43747831;
  uint32_t tag = kTag;
  bool primary = false;
  unsigned flags = 0;
  Stream* legacy = nullptr;
  std::vector<Stream*> streams;  // all, the legacy one too
  std::vector<rm::Handle> groups;
};

struct Stream {
  static constexpr uint32_t kTag = 0x53747231;
  uint32_t tag = kTag;
  Context* context = nullptr;
  uint16_t slot = 0;
  uint64_t issued = 0;
  int priority = 0;
  unsigned flags = 0;
  bool legacy = false;
  bool blocking = true;  // ordered against the legacy stream
  uint64_t id = 0;
  Capture* capture = nullptr;
  std::vector<uint64_t> captured;  // nodes that the next one comes behind
  const Green* green = nullptr;    // its kernels run on that one's SMs
  Lane* lane = nullptr;            // if it ever waited for a word
};

struct Pool {
  static constexpr uint32_t kTag = 0x506f6f31;
  uint32_t tag = kTag;
  bool destroyed = false;  // goes with its last allocation
  uint64_t used = 0, reserved = 0;
};

struct Green {
  static constexpr uint32_t kTag = 0x47726e31;
  uint32_t tag = kTag;
  Context* context = nullptr;  // the primary one
  uint32_t groups = 0;         // Command::groups
};

struct Event {
  static constexpr uint32_t kTag = 0x45767431;
  uint32_t tag = kTag;
  Context* context = nullptr;
  unsigned flags = 0;
  uint32_t timing = kNoTiming;
  bool recorded = false;
  uint16_t slot = 0;
  uint64_t seq = 0;
  uint64_t capture_id = 0;  // recorded in a capture: no query, no wait outside
  Stream* captured_on = nullptr;
  std::vector<uint64_t> captured;  // as the stream's was
};

struct Function {
  static constexpr uint32_t kTag = 0x46756e31;
  uint32_t tag = kTag;
  Context* context = nullptr;  // nullptr: a kernel of a library, usable in every context
  CUmodule module = nullptr;
  std::string name;
  uint16_t wire_name = 0;
};

struct Module {  // and library
  static constexpr uint32_t kTag = 0x4d6f6431;
  uint32_t tag = kTag;
  Context* context = nullptr;  // nullptr: a library
  std::deque<Function> functions;
};

struct Node {
  static constexpr uint32_t kTag = 0x4e6f6431;
  uint32_t tag = kTag;
  uint64_t id = 0;              // the same in every copy of its graph
  std::vector<uint64_t> after;  // nodes of the graph that it has an edge from
  Command command;
  int priority = 0;  // of a kernel: its launch's, else that of its stream
  // Of a kernel only: what cuGraphKernelNodeGetParams_v2 answers.
  const Function* function = nullptr;
  CUcontext context = nullptr;  // a Context or a Green
  unsigned grid[3] = {};
  unsigned block[3] = {};
  uint64_t values[3] = {};
  void* parameters[3] = {};
  // Of a node that allocates or frees only: no command of its own.
  CUdeviceptr memory = 0;
  uint64_t bytes = 0;
  bool frees = false;
  std::vector<MemOp> mem_ops;  // of a node of these only
};

struct Graph {
  static constexpr uint32_t kTag = 0x47726131;
  uint32_t tag = kTag;
  bool executable = false;
  bool node_priorities = false;
  // Of an executable: the end of its last launch, which the next one follows in whatever stream.
  uint16_t last_slot = 0;
  uint64_t last_seq = 0;
  // In the order of capture, which is a topological one: a launch runs them one after the other.
  std::list<Node> nodes;  // a node stays where it is: its address is its handle
};

struct Capture {
  uint64_t id = 0;
  Stream* origin = nullptr;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  int thread = 0;  // gettid
  bool invalidated = false;
  std::vector<Stream*> streams;
  std::vector<Stream*> unjoined;
  std::list<Node> nodes;
};

struct Thread {
  std::vector<Context*> contexts;  // the stack; the last is current
  CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::map<Context*, Stream*> default_streams;
  int id = 0;
  Context* current() const;  // nullptr if none or destroyed
  ~Thread();
};

// A handle is live if it points to an object with its tag. NULL is never live.
template <class T, class Handle>
T* live(Handle handle) {
  T* object = reinterpret_cast<T*>(handle);
  return object != nullptr && object->tag == T::kTag ? object : nullptr;
}

struct Driver {
  std::mutex mutex;
  std::atomic<bool> initialized{false};
  Link link;
  std::deque<Context*> contexts;
  std::vector<Green*> greens;
  Context* primary = nullptr;
  int primary_references = 0;
  unsigned primary_flags = 0;
  std::vector<Capture*> captures;
  uint64_t next_id = 1;
  // Slots of the wire. A freed stream slot is used again when its work is done.
  uint32_t stream_slots = 0;
  std::vector<std::pair<uint16_t, uint64_t>> free_streams;
  uint32_t timing_slots = 0;
  std::vector<uint32_t> free_timings;
  // Heap: allocations by offset, and of those that end with work, copies' staging, that work.
  std::map<uint64_t, uint64_t> allocations;
  // Device memory, counted for itself: by address or number. What has a context goes with it.
  struct DeviceMemory {
    uint64_t bytes = 0;
    Context* context = nullptr;
    uint32_t handles = 0;   // of cuMemCreate: references to handles that name it,
    uint32_t mappings = 0;  // and that map it
  };
  std::map<uint64_t, DeviceMemory> device_memory;
  struct PhysicalHandle {
    uint64_t memory = 0;  // in device_memory
    uint32_t references = 0;
  };
  std::map<CUmemGenericAllocationHandle, PhysicalHandle> handles;
  std::map<CUdeviceptr, std::pair<uint64_t, uint64_t>> mappings;  // address: bytes, memory
  std::vector<Pool*> pools;                                       // the first is the device's own
  Pool* current_pool = nullptr;
  std::map<CUdeviceptr, Pool*> pooled;  // what was allocated from one
  uint64_t graphs_reserved = 0;         // for nodes that allocate; all graphs use it in turn
  struct Staged {
    uint16_t slot;
    uint64_t seq;
    uint64_t offset;
  };
  std::deque<Staged> staged;
  // Words in memory: what the program registered, waits, and calls that stand at one.
  struct Registered {
    uint64_t bytes = 0;
    Context* context = nullptr;
  };
  std::map<uint64_t, Registered> registered;  // by host address
  MemOps mem_ops{link};
  Lane* stop = nullptr;
  uint32_t calls_standing = 0;     // in a call that waits for all: launches and allocations wait
  uint32_t launches_standing = 0;  // at a full stream: allocations wait
};

Driver& driver();  // lives for ever
Thread& this_thread();

// Held by every entry point that touches the state. `error` says why the call must be refused.
class Call {
 public:
  Call();
  ~Call();
  CUresult error() const { return error_; }
  Context* context() const { return this_thread().current(); }
  void unlock() { lock_.unlock(); }
  void lock() { lock_.lock(); }

 private:
  static bool enter();  // driver_checkpoint.cc: once the process is not locked

  const bool entered_;
  std::unique_lock<std::mutex> lock_;
  CUresult error_;
};

#define HEDDLE_SIM_CALL(call) \
  ::heddle::sim::Call call;   \
  if (call.error() != CUDA_SUCCESS) return call.error()

enum class NullStream { kLegacy, kPerThread };

// --- driver.cc: all with the lock held ---
Context* make_context(bool primary, unsigned flags);
void destroy_context(Context* context);  // drained
Stream* make_stream(Context* context, unsigned flags, int priority, bool legacy);
void destroy_stream(Stream* stream);
// NULL and the two special handles need a current context; `error` says what is wrong.
Stream* find_stream(Call& call, CUstream handle, NullStream null, CUresult& error);
bool outstanding(const Stream* stream);
// Before work is put into a stream: waits (unlocked) while others stand in a call that holds up
// launches, and while the stream is too deep.
CUresult make_room(Call& call, Stream* stream);
// The same for what only others' calls hold up; `allocates`: launches at a full stream, too.
void stand_back(Call& call, bool allocates);
// A slot of the wire for a stream; false: there is none.
bool open_slot(int priority, uint16_t& slot, uint64_t& issued);
// What must be before the next command of the stream: the legacy stream's rules, and a process that
// is stopped. Then the command.
void order(Stream* stream);
void push(Stream* stream, Command& command);
// Puts a command into a stream, with what the legacy stream's rules require before it; into the
// capture, if the stream is capturing. Waits (unlocked) while the stream is too deep.
CUresult issue(Call& call, Stream* stream, Command& command);
// What the legacy stream's rules require before the next command of this stream.
void order_against_legacy(Stream* stream);
// Waits, with the lock released.
CUresult wait_for(Call& call, uint16_t slot, uint64_t seq);
CUresult drain(Call& call, Context* context);
// The same in a call that holds up other threads' meanwhile, while it stands at a wait for a word.
CUresult drain_holding_up(Call& call, Context* context);
// Calls that wait for nothing but words.
CUresult drain_words(Call& call, Context* context);

// --- driver_capture.cc ---
// Calls that would wait or synchronize while a capture forbids it: invalidates and refuses.
CUresult check_unsafe();
// Queries and waits on a capturing stream.
CUresult check_not_capturing(Stream* stream);
// Before any work on the legacy stream.
CUresult check_legacy(Context* context);
CUresult capture_node(Stream* stream, const Command& command);
CUresult capture_record(Stream* stream, Event* event);
CUresult capture_wait(Stream* stream, Event* event);
void end_capture(Capture* capture);

// --- driver_launch.cc ---
// What a kernel node is to do from now on: all of its launch but the priority.
CUresult change_node(Node& node, const CUDA_KERNEL_NODE_PARAMS_v2& params);

// --- driver_mem_ops.cc ---
// Behind all that the stream has; captured, a node.
CUresult issue_mem_ops(Call& call, Stream* stream, const std::vector<MemOp>& ops);

// --- driver_memory.cc ---
uint64_t allocate(uint64_t bytes);  // kNoHeap if the heap is full
// Offset of `bytes` at a device or pinned address inside one allocation, else kNoHeap.
uint64_t locate(CUdeviceptr address, uint64_t bytes);
uint64_t device_bytes();  // that this process holds on the device
// What nodes that allocate have at once at most is reserved, if it is not.
CUresult reserve_for(const Graph& graph);
void release_context_memory(Context* context);
// Device memory of the heap, and what was of it is free again.
CUresult allocate_device(Call& call, CUdeviceptr* out, uint64_t bytes);
CUresult free_device(Call& call, CUdeviceptr address);
// It is used again when what the stream has now is done.
CUresult free_behind(Stream* stream, CUdeviceptr address);

// --- driver_pool.cc ---
bool has_room(uint64_t bytes);                           // with what pools keep and do not use
void give_to_pool(CUdeviceptr address, uint64_t bytes);  // it is free; if it was from one

// --- driver_device.cc: all with the lock held ---
Context* retain_primary();  // nullptr if there is no room for one
CUresult release_primary(Call& call);

// --- driver_green.cc ---
void drop_greens();  // the primary context goes, whoever keeps it

// --- driver_table.cc ---
struct Entry {
  const char* name;
  CUresult (*address)();
};
const Entry* find_entry(const std::string& name);  // nullptr if the driver has no such name
// Counts a call that the simulated driver does not answer, and refuses it.
CUresult unsupported(const char* name);

}  // namespace heddle::sim
