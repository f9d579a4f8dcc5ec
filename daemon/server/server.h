// heddled's loop: sockets, liveness, naps. One thread runs it; stop() is for any thread.
//
// While anything happened within spin_us the loop polls all clients' shared memory without
// sleeping, and looks at its descriptors now and then; unless all who are at work launch freely,
// whose rings it only drains every 2 ms (Engine::at_ease). Then it says in each client's `sleeping`
// word how to wake it, looks once more (Dekker: the client stores first and looks at the word
// next), and sleeps in libuv until the doorbell, the core's next deadline or the next heartbeat.
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
#include "daemon/server/closer.h"
#include "daemon/server/config.h"
#include "daemon/server/driver_gpus.h"
#include "daemon/server/engine.h"
#include "daemon/server/handles.h"
#include "daemon/server/jobs.h"
#include "daemon/server/log.h"
#include "daemon/server/memory.h"
#include "daemon/server/messages.h"
#include "daemon/server/mps_watch.h"
#include "daemon/server/origin.h"
#include "daemon/server/policy_source.h"
#include "daemon/server/recording.h"
#include "daemon/server/requests.h"
#include "daemon/server/rules.h"
#include "ipc/socket.h"

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

  // How SIGHUP has the configuration read again: `read` runs on libuv's pool, `configured` on the
  // loop, before the policy is loaded that it names.
  struct ConfigSource {
    std::function<Result<Config>()> read;
    std::function<void(const Config&)> configured;
  };
  // SIGTERM and SIGINT stop the server. SIGHUP: rules, and what they give at once (Client), and
  // [policy] if that has changed are what the configuration says now; without a source nothing
  // happens.
  void handle_signals(ConfigSource source = {});

  const std::string& socket_path() const { return facts_.socket; }

 private:
  // Each client costs about 100 KiB and three descriptors; each connection one or two.
  static constexpr size_t kClientsMax = 1'024, kConnectionsMax = 2 * kClientsMax;
  // One user cannot take every place; the privileged may.
  static constexpr size_t kShareOfUser = 2;

  // A libuv loop that outlives all handles.
  struct Loop {
    Loop() { uv_loop_init(&loop); }
    ~Loop() {
      uv_run(&loop, UV_RUN_DEFAULT);  // close callbacks
      uv_loop_close(&loop);
    }
    uv_loop_t loop;
  };
  struct Connection {
    Descriptor fd;
    ipc::Peer peer;
    Descriptor pidfd;
    Container container;        // of the unprivileged
    core::TimeNs since = 0;     // when it was accepted
    core::ClientId client = 0;  // 0 until it attaches
    uint64_t serial = 0;        // descriptors are used again
    bool privileged = false;
    bool complained = false;
    bool waits = false;  // for an answer that takes as long as a disk
    std::unique_ptr<FdWatch> watch;
  };
  struct Process {  // of a client; it lives as long as its pidfd says so
    Descriptor pidfd;
    Descriptor doorbell;  // its own: a client can then muffle nobody but itself
    int connection = -1;  // descriptor of its socket, -1 once that is closed
    Applicant applicant;  // whom rules judge
    std::unique_ptr<FdWatch> watch;
  };
  using FileId = std::pair<dev_t, ino_t>;
  using Places = std::map<std::string, FileId>;
  struct Watched {  // a directory of policies
    FileId file;
    bool stale;  // something happened to the directory itself
    std::unique_ptr<DirectoryWatch> watch;
  };

  Server(const Config& config, PolicyStore& store, Log& log, std::string path, int listener,
         int doorbells, int timer);

  bool spin(core::TimeNs now);
  void nap(core::TimeNs now);
  void poll_kernels(Client& client);
  void listen();
  void accept_all();
  bool has_place(const Connection& connection);
  bool make_room(const std::function<bool(const Connection&)>& among);
  void turn_away(int error);
  void tell_refusal(const std::string& error, const char* hint);
  void note_refusal(const std::string& error);
  void on_readable(int fd);
  bool receive(Connection& connection);  // false: the peer is gone, served, or talks nonsense
  void on_message(Connection& connection, Message message);
  void on_attach(Connection& connection, const AttachMessage& message);
  void refuse(Connection& connection, const std::string& reason);
  void look_at_mps();
  void find_mode();
  void on_request(Connection& connection, const Request& request);
  Reply start_recording(const Connection& connection, const Reply& reply);
  std::string obstacle_to_mps(MpsWatch::Order order) const;
  void order_mps(const Connection& connection, MpsWatch::Order order);
  Reply make_profile(core::ClientId client, Descriptor& memory);
  void save_profiles();
  void beat();
  void disconnect(int fd);
  void hang_up(Descriptor fd);
  void join_memory(Client& client, const AttachMessage& message);
  void set_memory_limits(Client& client);
  void on_memory_need(Client& client, const MemoryNeed& need);
  void show_memory(Client& client, uint32_t device, const MemoryAccounts::View& view);
  void show_memory();
  void ask_others(core::ClientId id, uint32_t device);
  void want_back(core::ClientId id);
  void process_gone(core::ClientId id);
  using Find = std::function<std::optional<Result<Generation>>()>;
  void load_policy(const std::string& name);
  void reread_config();
  void take_config(Result<Config> fresh);
  void take_policy_settings(const Config& fresh);
  size_t take_rules(std::vector<Rule> rules);
  void resolve_names();
  void change_policy(Find find, std::function<void(Result<Prepared>)> then);
  void take_configured(Result<Prepared> loaded);
  void order_policy(Connection& connection, const Request& request);
  Find finder(const Request& request);
  void follow_trial(uint64_t before, bool same, double for_s);
  void end_trial();
  void go_back(uint64_t to, const std::string& how);
  void shadow_policy(Connection& connection, const Request& request);
  void begin_promotion(uint64_t before, const Request& request, const core::RunTimes& runs);
  void check_promotion();
  Reply show_policy(Descriptor& memory);
  Reply show_shadow(Descriptor& memory) const;
  std::function<void(const Reply&)> answer_later(Connection& connection);
  void reload_changed();
  void fall_back();
  void remember_policies();
  void look_at_policies(bool changed);
  bool watch(const Places& places);
  void on_directory_event(const std::string& directory, const std::string& name);

  const Config config_;
  PolicySettings configured_;  // what was last made of [policy]
  PolicyStore& store_;
  Log& log_;
  std::vector<Rule> rules_;  // changed by jobs only, between their work
  ConfigSource source_;
  ServerFacts facts_;
  Loop loop_;
  Descriptor listener_, doorbells_, timer_;
  std::optional<std::pair<dev_t, ino_t>> socket_file_;
  const bool no_descriptors_;  // the kernel lets no peer send any
  Closer closer_;
  Descriptor spare_;  // given up for a moment to turn away a connection when there are no more
  const std::vector<DriverGpu> driver_gpus_ = driver_gpus();
  ProfileStore profiles_;
  Engine engine_;
  MemoryAccounts memory_;
  std::unique_ptr<Recording> recording_;  // one at a time
  int recording_for_ = -1;                // the connection that asked for it
  MpsWatch mps_;
  static constexpr int kNobody = -1, kHungUp = -2;
  int mps_for_ = kNobody;  // the connection that waits until its order is carried out

  std::unique_ptr<FdWatch> accepting_, waking_, timing_;
  std::unique_ptr<Timer> debounce_, listen_again_, save_again_, watch_again_, resolve_again_,
      revert_;
  Handle<uv_async_t> stopper_;
  std::vector<std::unique_ptr<SignalWatch>> signals_;
  std::map<std::string, Watched> directories_;
  std::unordered_map<int, std::unique_ptr<Connection>> connections_;
  std::unordered_map<core::ClientId, std::unique_ptr<Process>> processes_;
  std::unordered_map<pid_t, std::string> refused_;  // who was told why, lately

  uint64_t last_serial_ = 0;
  std::string unwritten_;  // why the state was not written the last time, "" if it was
  bool saving_ = false;    // profiles, on a thread of libuv's pool
  bool stopping_ = false;
  bool answered_ = false;        // a request, in this turn of libuv's loop
  core::TimeNs last_event_ = 0;  // when something came that may want an answer soon
  core::TimeNs last_tick_ = 0;   // of the core
  core::TimeNs last_look_ = 0;   // at descriptors
  core::TimeNs next_heartbeat_ = 0;
  core::TimeNs next_beat_ = 0;
  core::TimeNs last_refusal_ = 0;  // told
  alignas(8) std::byte packet_[ipc::kMessageBytes];
  Jobs jobs_{&loop_.loop};  // the first to go: what follows them needs all others
};

core::TimeNs monotonic_now();

}  // namespace heddle::server
