// A daemon that does what a test says, and an application under the shim that does the same.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>
#include <unistd.h>

#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ipc/gate.h"
#include "ipc/layout.h"
#include "ipc/record.h"

namespace heddle::shim_test {

struct Registration {
  uint32_t index;
  uint64_t id;
  std::string name;
  std::map<uint32_t, uint32_t> nodes;  // of a graph: how many launch the kernel of that index
  uint32_t other_nodes = 0;
};

// Serves one client at a time, on the test's own thread: nothing happens but inside its calls.
class FakeDaemon {
 public:
  explicit FakeDaemon(const std::string& socket_path);
  ~FakeDaemon();

  // Accepts the next client, makes its memories with `leased` as its allowance, and answers. Its
  // streams may wait if it can and `has_gates`.
  void accept(uint32_t leased, uint32_t flags = 0);
  void refuse();                                   // the same, with managed = 0
  void answer(std::span<const std::byte> packet);  // with this, whatever it is, and leaves
  void hang_up();                                  // as a daemon that dies
  bool pending(int timeout_ms);                    // does a client knock?

  ipc::ControlMemory& control() { return *control_; }
  ipc::ClientMemory& client() { return *client_; }

  // All records published since the last call, of all threads, but for asks.
  std::vector<ipc::RecordFields> records();
  // Whether the thread in that slot waits for its ticket, and its record: once for each.
  bool asks(ipc::RecordFields& ask, uint32_t thread = 0);
  // Waits until it does; the record. Fails the test after 5 s.
  ipc::RecordFields wait_for_ask(uint32_t thread = 0);
  // Its ticket, and what is before that, goes.
  void grant(const ipc::RecordFields& ask, int launch_priority = 0, uint32_t thread = 0,
             uint32_t sm_set = 0);
  std::vector<Registration> registrations();
  uint64_t rings(int timeout_ms = 0);  // of the doorbell since the last call
  bool rung(int timeout_ms = 0) { return rings(timeout_ms) != 0; }

  std::string command, label, sms;
  int priority = -2;
  bool mps = false, mode_told = false;
  bool has_gates = false;
  ipc::GatePage* gates = nullptr;  // the newest page; it stays when the daemon hangs up
  std::vector<uint16_t> groups;
  std::vector<ipc::MadeSets> made_sets;
  std::string gpu_ids;

 private:
  int receive_attach();
  void drain();
  bool wants_gates_ = false;
  int listener_ = -1;
  int socket_ = -1;
  int doorbell_ = -1;
  ipc::ControlMemory* control_ = nullptr;
  ipc::ClientMemory* client_ = nullptr;
  uint32_t cursors_[ipc::kThreads] = {};
  std::vector<ipc::RecordFields> records_;             // read, and not given out
  std::deque<ipc::RecordFields> asks_[ipc::kThreads];  // the same
};

class Application {
 public:
  // `environment`: NAME=value, on top of the test's own.
  explicit Application(std::vector<std::string> environment,
                       const char* program = HEDDLE_SHIM_CLIENT, const char* option = "an",
                       const std::string& value = "argument");
  ~Application();

  void send(const std::string& command);
  std::string receive();
  std::string operator()(const std::string& command) {
    send(command);
    return receive();
  }
  pid_t pid() const { return pid_; }
  bool answered();  // is there something to receive?

 private:
  pid_t pid_;
  int to_ = -1;
  FILE* from_ = nullptr;
};

// DeviceTerms::leased
inline constexpr uint32_t kLease = 1, kGate = 0;

class Shim : public ::testing::Test {
 protected:
  Shim()
      : path_(testing::TempDir() + "shim-" + std::to_string(getpid()) + ".sock"), daemon_(path_) {}
  ~Shim() override { unlink(path_.c_str()); }

  std::vector<std::string> environment() {
    return {"HEDDLE_SOCKET=" + path_, "HEDDLE_LABEL=a label", "HEDDLE_PRIORITY=7"};
  }
  // An attached application.
  void start(Application& app, uint32_t leased, uint32_t flags = 0) {
    app.send("init");
    daemon_.accept(leased, flags);
    ASSERT_EQ(app.receive(), "0");
  }
  struct Attached : Application {
    Attached(Shim& shim, uint32_t leased, uint32_t flags = 0) : Application(shim.environment()) {
      shim.start(*this, leased, flags);
    }
  };
  // A launch that asks and is granted, with these. Its ask.
  template <typename... Grant>
  ipc::RecordFields expect_asks(Application& app, const std::string& launch, Grant... grant) {
    app.send(launch);
    const ipc::RecordFields ask = daemon_.wait_for_ask();
    EXPECT_EQ(ask.admission, wire::Admission::ASK) << launch;
    daemon_.grant(ask, grant...);
    EXPECT_EQ(app.receive(), "0") << launch;
    return ask;
  }
  // Makes kernels known, so that none is measured.
  void predict(float us) {
    for (ipc::DeviceHints& hints : std::span(daemon_.control().hints, 2)) {
      for (int i = 0; i < 8; ++i) hints.kernels[i].predicted_us = us;
    }
  }
  std::vector<ipc::RecordFields> records(wire::Kind kind) {
    std::vector<ipc::RecordFields> some;
    for (const auto& record : daemon_.records()) {
      if (record.kind == kind) some.push_back(record);
    }
    return some;
  }

  std::string path_;
  FakeDaemon daemon_;
};

}  // namespace heddle::shim_test
