// heddled's loop: sockets, liveness, naps. One thread runs it; any thread may call stop().
//
// For spin_us after the last event the loop polls all clients' shared memory without sleeping, and
// looks at its descriptors at intervals. If all clients at work launch freely, it only drains their
// rings every 2 ms (Engine::at_ease). To sleep, it writes into each client's `sleeping` word how to
// wake it, and looks once more (Dekker's algorithm: the client stores its record first and reads
// the word next). Then it sleeps in libuv until a doorbell, the core's next deadline or the next
// heartbeat.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/server/clock.h"
#include "daemon/server/config_changes.h"
#include "daemon/server/connections.h"
#include "daemon/server/engine.h"
#include "daemon/server/gpus.h"
#include "daemon/server/memory_ledger.h"
#include "daemon/server/mps_watch.h"
#include "daemon/server/parking.h"
#include "daemon/server/policy_changes.h"
#include "daemon/server/recording.h"
#include "daemon/server/requests.h"
#include "daemon/server/rules.h"
#include "daemon/server/stop_asking.h"

namespace heddle::server {

class Server {
 public:
  // Binds the socket and loads the configured policy (if it cannot be loaded, the built-in runs
  // and `heddle status` says why). `store` and `log` must outlive the server.
  static Result<std::unique_ptr<Server>> make(const Config& config, PolicyStore& store, Log& log);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Serves until stop(). Before it returns every gate is open, so that clients run on, and the
  // socket is gone.
  void run();
  void stop();

  // SIGTERM and SIGINT stop the server. SIGHUP reads the configuration again: the rules, with the
  // terms that may change (Client::set_terms), and [policy] if that changed. Without a source
  // SIGHUP does nothing.
  void handle_signals(ConfigChanges::Source source = {});

  const std::string& socket_path() const;

 private:
  // A libuv loop that outlives all handles.
  struct Loop {
    Loop() { uv_loop_init(&loop); }
    ~Loop() {
      uv_run(&loop, UV_RUN_DEFAULT);  // close callbacks
      uv_loop_close(&loop);
    }
    uv_loop_t loop;
  };
  struct Process {  // a client's process; its pidfd tells when it ends
    Descriptor pidfd;
    Descriptor doorbell;  // one each, so that a client can silence only its own
    int connection = -1;  // descriptor of its socket; -1: closed
    Applicant applicant;  // for the rules
    std::unique_ptr<FdWatch> watch;
  };

  Server(const Config& config, PolicyStore& store, Log& log, std::string path, int listener,
         int doorbells, int timer);

  bool spin(core::TimeNs now);
  void nap(core::TimeNs now);
  bool look_around(core::TimeNs now);
  void beat();
  void save_profiles();
  void poll_kernels(Client& client);
  void on_readable(int fd);
  bool receive(Connection& connection);  // false: to be closed: it ended, was served, or is broken
  void on_message(Connection& connection, Message message);
  void on_attach(Connection& connection, const AttachMessage& message);
  void refuse(Connection& connection, const std::string& reason);
  void greet(const Client& client);
  void on_request(Connection& connection, const Request& request);
  std::function<void(const Reply&)> answer_later(Connection& connection);
  void order_policy(Connection& connection, const Request& request);
  Reply start_recording(const Connection& connection, const Reply& reply);
  size_t regrade();
  void want_back(core::ClientId id);
  void disconnect(int fd);
  void process_gone(core::ClientId id);

  const Config config_;
  PolicyStore& store_;
  Log& log_;
  ServerFacts facts_;
  Loop loop_;
  Descriptor doorbells_, timer_;
  std::optional<std::pair<dev_t, ino_t>> socket_file_;
  const std::vector<DriverGpu> driver_gpus_ = driver_gpus();
  ProfileStore profiles_;
  Engine engine_;
  Connections connections_;
  MemoryLedger memory_;
  Parking parking_;
  PolicyChanges policy_changes_;
  ConfigChanges config_changes_;
  MpsOrders mps_;
  StopAsking stop_asking_;
  std::unique_ptr<Recording> recording_;  // one at a time
  int recording_for_ = -1;                // the connection that asked for it

  std::unique_ptr<FdWatch> waking_, timing_;
  Timer save_again_;
  Handle<uv_async_t> stopper_;
  std::vector<std::unique_ptr<SignalWatch>> signals_;
  std::unordered_map<core::ClientId, std::unique_ptr<Process>> processes_;
  std::unordered_map<pid_t, std::string> refused_;  // reasons of recent refusals that were logged

  bool saving_ = false;  // profiles, on a thread of libuv's pool
  bool stopping_ = false;
  bool answered_ = false;        // a request, in this turn of libuv's loop
  core::TimeNs last_event_ = 0;  // when a client last wrote news that may need an answer soon
  core::TimeNs last_tick_ = 0;   // of the core
  core::TimeNs last_look_ = 0;   // at descriptors
  core::TimeNs next_heartbeat_ = 0;
  core::TimeNs next_beat_ = 0;
  alignas(8) std::byte packet_[ipc::kMessageBytes];
  Jobs jobs_{&loop_.loop};  // destroyed first: their `then` needs the other members
};

}  // namespace heddle::server
