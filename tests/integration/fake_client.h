// A client without a shim or a GPU: attaches, maps the memories, posts and asks. Each has a process
// of its own (which only connects and waits), because the daemon knows clients by process and by
// whether it lives; the test itself writes the shared memory.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "daemon/server/messages.h"
#include "ipc/gate.h"
#include "ipc/layout.h"
#include "ipc/record.h"

namespace heddle::testing {

class FakeClient {
 public:
  struct Options {
    int priority = 5;
    std::string label = {};
    uint32_t version = ipc::kProtocolVersion;
    uid_t uid = 0;  // of its process; 0: the test's own
    uint32_t devices = 1;
    std::string gpus = {};        // a letter each: the GPUs that these are
    uint32_t driver_version = 0;  // CUDA's; 0: it does not say
    std::string sms = {};
    bool splits = true;  // its driver has Green Contexts
    ipc::MadeSets made_sets = {};
    bool gates = false;          // its streams may wait
    bool mps = false;            // an MPS control daemon's socket is there
    int64_t clock_ahead_ns = 0;  // of its time namespace; 0: it does not say what time it is
  };

  FakeClient(const std::string& socket, const Options& options);
  ~FakeClient();
  FakeClient(const FakeClient&) = delete;
  FakeClient& operator=(const FakeClient&) = delete;

  const ipc::Attached& attached() const { return attached_; }
  const ipc::ControlMemory& control() const { return *control_; }
  ipc::ClientMemory& memory() { return *memory_; }
  int gates_descriptor() const { return gates_; }
  ipc::GatePage& gates() { return *gate_page_; }
  pid_t pid() const { return pid_; }

  void register_kernel(uint32_t index, uint64_t id, const std::string& name);
  bool send_raw(std::span<const std::byte> packet);

  // A record as the shim writes it; time, and for launches the sequence number, are filled in.
  bool post(uint16_t thread, ipc::RecordFields fields);
  // The thread waits for a ticket: the `seq`th of its own, which the client draws.
  void ask(uint16_t thread, uint32_t seq, uint32_t kernel = ipc::kNoKernel);
  void withdraw(uint16_t thread, uint32_t seq);  // it goes by its floor
  bool granted(uint16_t thread, uint32_t seq) const;
  bool wait_granted(uint16_t thread, uint32_t seq);
  bool leased(uint8_t device = 0) const;
  bool gated(uint8_t device = 0) const;
  // What it posts and asks from now on happens so long after the time that it is, or before.
  void set_clock(int64_t ahead_ns) { ahead_ns_ = ahead_ns; }
  // Everything posted so far is done.
  void complete_all(uint16_t thread);
  void ring();

  void kill_process();
  void close_socket();
  void reconnect();  // the same process attaches anew

 private:
  void connect();
  void attach();
  void send_attach();
  void unmap();

  const Options options_;
  pid_t pid_ = -1;
  int helper_ = -1;  // the process answers each byte with a connected socket
  int socket_ = -1;
  int doorbell_ = -1;
  int gates_ = -1;
  ipc::GatePage* gate_page_ = nullptr;
  ipc::Attached attached_;
  const ipc::ControlMemory* control_ = nullptr;
  ipc::ClientMemory* memory_ = nullptr;
  uint64_t stream_seq_ = 0;
  uint32_t tickets_ = 0;
  std::map<std::pair<uint16_t, uint32_t>, uint32_t> ticket_of_;  // thread and `seq`
  int64_t ahead_ns_ = 0;
  uint32_t tails_seen_[ipc::kThreads] = {};
};

// What a shim says first.
std::vector<std::byte> attach_packet(int priority);

// Asks the daemon as `heddle` does.
server::Reply request(const std::string& socket, const server::Request& request);

// True as soon as `condition` holds; false if it does not within ten seconds.
bool eventually(const std::function<bool()>& condition);

}  // namespace heddle::testing
