// One attached process: its shared memories, the daemon's private cursors into them, and what
// is known of it. Owned by Engine; loop thread only.
//
// The client's memory is hostile: everything is copied once and checked as a copy, and no value in
// it is used as an index before it was compared with a limit.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
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

// A mapping of shared memory, and until it was handed over also its descriptor.
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
  std::string cgroup;  // of its paths the one to show, "" if none is seen
  std::string unseen;  // Origin::unseen
  uint32_t driver_version = 0;
  uint32_t device_count = 1;
  DeviceMap gpus = same_numbers();
  uint32_t sm_count = 0;    // of its device 0, 0: unknown
  std::string gpu_name;     // by its own word
  bool privileged = false;  // believed of GPUs
  bool mps = false;  // by its own word; if not `mode_told`, an MPS control daemon's socket was
                     // there when it began
  bool mode_told = false;                // its driver told it
  bool has_sets = false;                 // its launches may run on SM sets
  ipc::SmSet sm_set;                     // on every device (terms.sms), empty: the whole device
  ipc::SmCount sms;                      // how many SMs that is
  std::vector<uint16_t> sm_groups;       // SMs of each group of a device; none: it cannot be split
  std::vector<ipc::MadeSets> made_sets;  // by its device: it attached before, to another daemon
  std::string memory_asked;              // the limit that it asks for itself, "": none
  std::string run;                       // processes of its user with the same one share that
  bool mps_memory_limit = false;         // MPS holds it to one of its own
  bool gates = false;                    // its launches may wait on the GPU
  std::string threads_wait_because;      // if not
  bool counts_memory = false;            // its shim does; an older one keeps to no limit
  bool tells_clock = false;              // its shim does, ...
  core::TimeNs clock_ahead = 0;  // ... so that this is known: of its clock, before the daemon's
};

class Client {
 public:
  static Result<std::unique_ptr<Client>> make(Identity identity);

  const Identity& identity() const { return identity_; }
  // What rules give it from now on; SMs and failure mode stay what they were when it attached.
  void set_terms(int priority, const std::string& rule, const Terms& terms);
  Intake& intake() { return intake_; }
  const Intake& intake() const { return intake_; }
  const ipc::ClientMemory& memory() const { return *client_; }
  ipc::ControlMemory& control() { return *control_; }

  // Sends ipc::Attached with the descriptors, then closes the daemon's copies. 0 or -errno.
  int send_attached(int socket, int doorbell);

  // A client's part of what is read of all in a turn: who writes without end must not hold up the
  // others. The rest stays where it is.
  static constexpr uint32_t kRecordsPerTurn = 2 * ipc::kRingRecords;
  void set_share(uint32_t records) { share_ = records; }
  bool behind() const { return behind_; }  // something was left
  // Appends what is new in its rings, as far as its share goes. False: the client's
  // memory is impossible (a ring head beyond reach, a record that does not decode), it is to be let
  // go, and no claim means anything.
  bool collect(core::TimeNs now, std::vector<Claim>& claims);
  // Brings over what that looks at first, without waiting for it; then the records of those
  // threads that have news.
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

  // Carries out one decision of the core. True if threads wait no more: then wake(), behind a
  // slot_fence.
  bool apply(const core::Decision& decision);
  // Of a device that nobody schedules: a thread that waits, as it does where the client fails
  // closed, waits no more. True if one did: then wake().
  bool let_through(const Claim& claim);
  void wake();  // those that sleep
  bool any_to_wake() const { return to_wake_ != 0; }
  // A record of a launch with a ticket; and what the core is to be told of those, if anything.
  void hold_at_gate(const Claim& claim);
  std::optional<Claim> next_at_gate(core::TimeNs now, bool if_touched);
  void look_at_gates() { gate_queue_->look(); }
  bool any_thread_waits() const { return gate_queue_->threads.any(); }
  // Of a batch, so often: whoever writes without end must not hold up the others.
  bool may_look() { return looks_ > 0 && looks_-- > 0; }
  // Why its threads wait, "" if its launches do so on the GPU.
  std::string_view threads_wait_because() const {
    return left_gates_    ? "it told of launches at gates what cannot be"
           : kernels_ask_ ? "the policy chooses for each launch; long graphs can be stopped"
                          : std::string_view(identity_.threads_wait_because);
  }
  bool left_gates();  // since the last call: they stand open for good
  bool gates_open() const { return gate_queue_->any_open(); }
  uint64_t gates_forced() const { return gate_queue_->forced(); }
  core::TimeNs gates_due(core::TimeNs now) const { return gate_queue_->look_at(now); }
  void over(const ipc::RecordFields& completion) { gate_queue_->over(completion); }
  // What its shim says of stops on that GPU, if it is new; `allowed`: they may be used there.
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

  // False: there is no such place, or it is another kernel's.
  bool add_kernel(const KernelMessage& message);
  bool knows_kernel(uint32_t index) const {
    return index < kernels_.size() && kernels_[index].there;
  }

  void forget_kernels() { kernels_ = std::vector<Kernel>(); }
  size_t kernel_places() const { return kernels_.size(); }  // that its kernels take

  uint64_t task() const;  // hash of label, executable and arguments; of its user
  uint64_t unlabelled_task() const;
  // Tells a core about the client, what is known of its task, and all its kernels: the events, in
  // order.
  std::vector<core::Event> introduction(uint8_t gpu, core::TimeNs now,
                                        const core::TaskProfile* profile) const;

  // ---- GPUs, by the number that they have here ----
  GpuNumbers::Numbers visible() const;  // that it could launch on
  bool on_gpu(uint8_t gpu) const { return has(introduced_, gpu); }
  void put_on_gpu(uint8_t gpu) { add(introduced_, gpu); }
  // It works on those that it posted to; before it did, on those that it was introduced to.
  bool works_on(uint8_t gpu) const { return has(working(), gpu); }
  bool posted_to(uint8_t gpu) const { return has(posted_to_, gpu); }
  void note_post(uint8_t gpu) { add(posted_to_, gpu); }
  GpuNumbers::Numbers working() const { return posted_to_ != 0 ? posted_to_ : introduced_; }
  bool leased() const { return leased_; }  // launches freely on all that it works on
  bool gated() const { return gated_; }    // held on some of it

  // Not managed any more: its launches run freely, its memory is not read. Why, for `heddle ps`.
  void let_go(std::string reason);
  bool managed() const { return unmanaged_reason_.empty(); }
  const std::string& unmanaged_reason() const { return unmanaged_reason_; }

  // By its own count, which nothing but its own comfort may depend on: launches with a record, and
  // those without that no call before has returned.
  uint64_t launches_told() const;
  uint64_t take_untold();

  core::TimeNs last_active = 0;  // of the newest thing collected
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
  size_t device_of(int gpu) const;      // the client's own number of it, past its GPUs: it has none
  ipc::DeviceTerms* terms_of(int gpu);  // nullptr: none of its devices is that GPU
  ipc::SmSet set_of(const core::Decision& decision) const;
  float predicted(const ipc::RecordFields& launch) const;  // as the client was told
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
  // When the client says that it happened, on the daemon's clock.
  core::TimeNs date(const Claim& claim, core::TimeNs now);
  // What the thread wrote last, or, as nothing was unread then, when all was read last. And what is
  // read after a grant counts from then on: nothing that was granted is done before.
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
  uint16_t first_thread_ = 0;  // where it begins: behind the one that used up the room before

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
  // One large block, which goes back to the system with its client. Only graphs have nodes.
  struct Kernel {
    bool there = false;
    core::KernelBody kernel{};
    std::unique_ptr<const core::NodesBody> nodes;
  };
  std::vector<Kernel> kernels_;  // by index
  GpuNumbers::Numbers introduced_ = 0, posted_to_ = 0;
  bool sparse_allowed_ = false;
  std::array<core::Allowance, ipc::kDevices> allowed_{};
  bool leased_ = true, gated_ = false;
  std::string unmanaged_reason_;
};

}  // namespace heddle::server
