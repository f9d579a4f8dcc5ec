// One attached process: its shared memories, the daemon's private cursors into them, and facts
// about the process. Owned by Engine; loop thread only.
//
// The client's memory is hostile: everything is copied once and checked as a copy, and no value in
// it is used as an index before it was compared with a limit.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/core/decision.h"
#include "daemon/core/event.h"
#include "daemon/core/scheduler.h"
#include "daemon/server/config.h"
#include "daemon/server/gates.h"
#include "daemon/server/intake.h"
#include "daemon/server/stop_desk.h"
#include "ipc/layout.h"
#include "ipc/slot.h"
#include "ipc/socket.h"

namespace heddle::server {

// A mapping of shared memory, with its descriptor until that was sent to the client.
template <class T>
class SharedMemory {
 public:
  SharedMemory() = default;
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // Makes a zeroed memory, maps it, then seals it. 0 or -errno.
  int make(const char* name, int (*seal)(int));
  void close_descriptor();

  int fd() const { return fd_; }
  T* operator->() const { return memory_; }
  T& operator*() const { return *memory_; }

 private:
  T* memory_ = nullptr;
  int fd_ = -1;
};

struct Identity {
  core::ClientId id = 0;
  pid_t pid = 0;
  uid_t uid = 0;
  int priority = ipc::kPriorityDefault;
  std::string rule;
  Terms terms;
  std::string label;
  std::string command;
  std::string exe;
  std::string cgroup;  // the longest of its paths, to show; "": none is seen
  std::string unseen;  // Origin::unseen
  uint32_t driver_version = 0;
  uint32_t device_count = 1;
  DeviceMap gpus = same_numbers();
  uint32_t sm_count = 0;    // of its device 0; 0: unknown
  std::string gpu_name;     // as the client says
  bool privileged = false;  // what it says about GPUs is believed
  bool mps = false;  // as the client says; without `mode_told`: it saw an MPS control daemon's
                     // socket when it began
  bool mode_told = false;                // `mps` comes from its driver
  bool has_sets = false;                 // its launches may run on SM sets
  ipc::SmSet sm_set;                     // on every device (terms.sms); empty: the whole device
  ipc::SmCount sms;                      // how many SMs that is
  std::vector<uint16_t> sm_groups;       // SMs of each group of a device; none: it cannot be split
  std::vector<ipc::MadeSets> made_sets;  // by device, if it was attached to an earlier daemon
  std::string memory_asked;              // the memory limit that it asks for itself; "": none
  std::string run;                       // processes of its user with the same `run` share that
  bool mps_memory_limit = false;         // MPS has a memory limit of its own for it
  bool gates = false;                    // its launches may wait on the GPU
  std::string threads_wait_because;      // the reason if not
  bool counts_memory = false;            // its shim counts memory; an older shim keeps no limit
  bool parks = false;                    // its shim waits for parked memory
  bool park_asked = false;               // and it allows that itself
  bool tells_clock = false;              // its shim told its clock
  core::TimeNs clock_ahead = 0;          // how far the client's clock is ahead of the daemon's
};

class Client {
 public:
  static Result<std::unique_ptr<Client>> make(Identity identity);

  const Identity& identity() const { return identity_; }
  // The terms by the present rules. SMs and failure mode stay as they were when it attached.
  void set_terms(int priority, const std::string& rule, const Terms& terms);
  Intake& intake() { return intake_; }
  const Intake& intake() const { return intake_; }
  const ipc::ClientMemory& memory() const { return *client_; }
  ipc::ControlMemory& control() { return *control_; }

  // Sends ipc::Attached with the descriptors, then closes the daemon's copies. 0 or -errno.
  int send_attached(int socket, int doorbell);

  // The client's share of the records that are read in a turn, so that a client that writes without
  // end cannot hold up the others. The rest stays in the rings.
  static constexpr uint32_t kRecordsPerTurn = 2 * ipc::kRingRecords;
  void set_share(uint32_t records) { share_ = records; }
  bool behind() const { return behind_; }  // records were left in its rings
  // Appends the new records of its rings, up to its share. False: the client's memory is impossible
  // (a ring head beyond reach, a record that does not decode). Then its claims mean nothing, and it
  // must be let go.
  bool collect(core::TimeNs now, std::vector<Claim>& claims);
  // Prefetch the cache lines that collect() reads first; then the records of threads with news.
  void prefetch() const {
    const uint16_t used = threads_used();
    for (uint16_t i = 0; i < used; ++i) __builtin_prefetch(&client_->threads[i]);
  }
  void prefetch_news() const {
    const uint16_t used = threads_used();
    for (uint16_t i = 0; i < used; ++i) {
      const ipc::ThreadBlock& block = client_->threads[i];
      if (posted(i)) __builtin_prefetch(block.ring[cursors_[i].ring % ipc::kRingRecords]);
    }
  }

  // Carries out one decision of the core. True if it let waiting threads go: then the caller calls
  // wake(), after a slot_fence().
  bool apply(const core::Decision& decision);
  // A launch on a device without a scheduler: lets its thread go, which waits if the client is
  // fail-closed. True if one waited: then the caller calls wake().
  bool let_through(const Claim& claim);
  void wake();  // the threads that sleep
  bool any_to_wake() const { return to_wake_ != 0; }
  // Takes the record of a launch with a ticket. next_at_gate(): what to tell the core about those.
  void hold_at_gate(const Claim& claim);
  std::optional<Claim> next_at_gate(core::TimeNs now, bool if_touched);
  void look_at_gates() { gate_queue_->look(); }
  bool any_thread_waits() const { return gate_queue_->threads.any(); }
  // Limits the looks at gates in a batch: a client that writes without end must not hold up others.
  bool may_look() { return looks_ > 0 && looks_-- > 0; }
  // Why its launches wait in its threads; "": they wait on the GPU.
  std::string_view threads_wait_because() const {
    return left_gates_    ? "it told of launches at gates what cannot be"
           : kernels_ask_ ? "the policy chooses for each launch; long graphs can be stopped"
                          : std::string_view(identity_.threads_wait_because);
  }
  std::optional<bool> take_park_order() { return std::exchange(park_order_, std::nullopt); }
  void set_away(bool away);         // its memory is parked, or is no more
  uint32_t memory_wanted() const {  // how often its calls have waited for that
    return client_->threads[0].memory_wanted.load(std::memory_order_relaxed);
  }
  bool left_gates();  // its gates were opened for good since the last call
  bool gates_open() const { return gate_queue_->any_open(); }
  uint64_t gates_forced() const { return gate_queue_->forced(); }
  core::TimeNs gates_due(core::TimeNs now) const { return gate_queue_->look_at(now); }
  void over(const ipc::RecordFields& completion) { gate_queue_->over(completion); }
  // News from its shim about stops on that GPU. `allowed`: stops may be used there.
  std::optional<core::StopBody> stops_on(uint8_t gpu, bool allowed, core::TimeNs now);
  ipc::StopAble can_stop(uint8_t gpu) const;
  bool stoppable() const { return stop_desk_.any_able(); }
  void heartbeat(core::TimeNs now);
  void set_bypass(bool on);
  void set_sleep(ipc::Sleep sleep);
  void set_contended(bool on);
  void set_unobserved(bool on);
  void allow_sparse(bool on);
  bool sparse() const { return control_->header.sparse.load(std::memory_order_relaxed) != 0; }

  // False: the index is too large, or another kernel has it.
  bool add_kernel(const KernelMessage& message);
  bool knows_kernel(uint32_t index) const {
    return index < kernels_.size() && kernels_[index].there;
  }

  void forget_kernels() { kernels_ = std::vector<Kernel>(); }
  size_t kernel_places() const { return kernels_.size(); }  // places that its kernels take

  uint64_t task() const;  // hash of label, executable and arguments
  uint64_t unlabelled_task() const;
  // The events, in order, that tell a core about the client, its task's profile, and its kernels.
  std::vector<core::Event> introduction(uint8_t gpu, core::TimeNs now,
                                        const core::TaskProfile* profile) const;

  // ---- GPUs, by the number that they have here ----
  GpuNumbers::Numbers visible() const;  // the GPUs that it could launch on
  bool on_gpu(uint8_t gpu) const { return has(introduced_, gpu); }
  void put_on_gpu(uint8_t gpu) { add(introduced_, gpu); }
  // It works on the GPUs that it posted to; before its first post, on those that it is known on.
  bool works_on(uint8_t gpu) const { return has(working(), gpu); }
  bool posted_to(uint8_t gpu) const { return has(posted_to_, gpu); }
  void note_post(uint8_t gpu) { add(posted_to_, gpu); }
  GpuNumbers::Numbers working() const { return posted_to_ != 0 ? posted_to_ : introduced_; }
  bool leased() const { return leased_; }  // on all GPUs that it works on
  bool gated() const { return gated_; }    // on some GPU that it works on

  // Stops managing it: its launches go freely, and its memory is not read any more. `reason`: for
  // `heddle ps`.
  void let_go(std::string reason);
  bool managed() const { return unmanaged_reason_.empty(); }
  const std::string& unmanaged_reason() const { return unmanaged_reason_; }

  // By the client's own count, on which only its own comfort may depend: its launches with a
  // record, and those without one that no earlier call returned.
  uint64_t launches_told() const;
  uint64_t take_untold();

  core::TimeNs last_active = 0;  // time of the newest record
  bool connected = true;         // its socket is open
  bool refused = false;          // by the policy

 private:
  explicit Client(Identity identity)
      : identity_(std::move(identity)),
        intake_(identity_.id, identity_.device_count, identity_.gpus) {}
  void answer(const WaitingThreads::Went& went, const ipc::Grant& grant);
  void answer_went(const core::Decision* decision);
  static bool has(GpuNumbers::Numbers all, uint8_t gpu) { return (all >> gpu & 1) != 0; }
  void add(GpuNumbers::Numbers& all, uint8_t gpu) {
    all |= GpuNumbers::Numbers{1} << gpu;
    allowed_changed();
  }
  size_t device_of(int gpu) const;      // its own number of that GPU; too large: it has none
  ipc::DeviceTerms* terms_of(int gpu);  // nullptr: none of its devices is that GPU
  ipc::SmSet set_of(const core::Decision& decision) const;
  float predicted(const ipc::RecordFields& launch) const;  // by the hint that the client has
  void allowed_changed();
  void tell_sparse();
  uint16_t threads_used() const {
    const uint32_t used = client_->counters.threads_used.load(std::memory_order_acquire);
    return static_cast<uint16_t>(std::min(used, ipc::kThreads));
  }
  bool posted(uint16_t thread) const {
    const uint32_t head = client_->threads[thread].ring_head.load(std::memory_order_seq_cst);
    return head != cursors_[thread].ring;
  }
  bool drain_ring(uint16_t thread, core::TimeNs now, std::vector<Claim>& claims);
  // The claim's time on the daemon's clock.
  core::TimeNs date(const Claim& claim, core::TimeNs now);
  // The earliest plausible time of the thread's next record: that of its last record; or when all
  // rings were last read to the end; or the last grant, before which no granted work can be done.
  core::TimeNs floor_of(uint16_t thread) const {
    return std::max({cursors_[thread].last_at, read_all_at_ - kStampNs, granted_at_});
  }
  core::TimeNs read_all_at_ = 0, granted_at_ = 0;
  uint64_t untold_taken_ = 0;
  uint32_t naps_ = 0;
  static constexpr uint32_t kLooks = 16;
  uint32_t share_ = kRecordsPerTurn;
  uint32_t looks_ = kLooks;
  bool behind_ = false;
  uint32_t room_ = 0;          // records that this poll may still take
  uint16_t first_thread_ = 0;  // where a poll begins: behind the thread that used up the last one

  struct Cursor {
    uint32_t ring = 0;
    core::TimeNs last_at = 0;
  };

  Identity identity_;
  SharedMemory<ipc::ControlMemory> control_;
  SharedMemory<ipc::ClientMemory> client_;
  SharedMemory<ipc::GatePage> gates_;
  std::unique_ptr<GateQueue> gate_queue_;
  uint64_t to_wake_ = 0;  // threads, a bit each
  StopDesk stop_desk_;
  bool left_gates_ = false, kernels_ask_ = false;
  Intake intake_;
  std::array<Cursor, ipc::kThreads> cursors_{};
  // In one large block, which goes back to the system with the client. Only graphs have nodes.
  struct Kernel {
    bool there = false;
    core::KernelBody kernel{};
    std::unique_ptr<const core::NodesBody> nodes;
  };
  std::vector<Kernel> kernels_;  // by index
  GpuNumbers::Numbers introduced_ = 0, posted_to_ = 0;
  bool sparse_allowed_ = false;
  std::optional<bool> park_order_;  // by the policy: that its memory leaves, or comes back
  std::array<core::Allowance, ipc::kDevices> allowed_{};
  bool leased_ = true, gated_ = false;
  std::string unmanaged_reason_;
};

}  // namespace heddle::server
