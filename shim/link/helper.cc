// The helper thread: attaches, watches the socket for the daemon's end, and attaches again.
//
// It calls the driver only in watch.cc, which polls markers, and to make twins (sm/twin_maker.cc).
// Old mappings stay until no thread is inside them. Waiters of a dead daemon are woken, and go.
#include <errno.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "ipc/fault.h"
#include "ipc/socket.h"
#include "shim/admission/kernels.h"
#include "shim/admission/rows.h"
#include "shim/driver/driver.h"
#include "shim/evidence/streams.h"
#include "shim/evidence/watch.h"
#include "shim/gate/opener.h"
#include "shim/link/environment.h"
#include "shim/link/inside.h"
#include "shim/link/log.h"
#include "shim/link/messages.h"
#include "shim/link/part.h"
#include "shim/link/residence.h"
#include "shim/link/session.h"
#include "shim/link/spin.h"
#include "shim/link/thread.h"
#include "shim/memory/account.h"
#include "shim/sm/contexts.h"
#include "shim/sm/twins.h"
#include "shim/stop/hook.h"
#include "shim/stop/lever.h"

namespace heddle::shim {
namespace {

constexpr int kBackoffMinMs = 20;
constexpr int kBackoffMaxMs = 500;
constexpr int kRefusedMs = 5000;  // after a refusal: each attempt is a line in the daemon's log
constexpr int kReplyMs = 2000;    // only a daemon that is stopped takes longer to answer
constexpr int64_t kFirstAttachNs = 100'000'000;
constexpr int kRecycleMs = 100;        // between looks at retired sessions with threads inside
constexpr int kLookMs = 1000;          // between looks at changes without a wake-up
constexpr int kDescriptorsFrom = 500;  // out of the way of programs that count on low numbers

constinit Guarded nobody{};
constinit Session sessions[16];
constinit uint64_t generations = 0;
constinit Spin init_lock;
constinit bool can_unmap = false;
constinit AttachFacts attach_facts{};

// The environment as the first cuInit found it. The application may change it at any time, and a
// reader on another thread can crash meanwhile.
struct Environment {
  char socket[128];  // longer than any address, so that a path that was cut is refused
  char runtime[128];
  char label[ipc::kLabelBytes + 1];
  char sms[ipc::kLabelBytes + 1], memory[ipc::kLabelBytes + 1], run[ipc::kLabelBytes + 1];
};
constinit Environment environment{};

}  // namespace

constinit std::atomic<Guarded*> guarded{&nobody};

bool make_guard_page() {
  if (guarded.load(std::memory_order_relaxed) != &nobody) return true;
  const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* page = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return false;
  Guarded* expected = &nobody;
  const bool wiped = madvise(page, bytes, MADV_WIPEONFORK) == 0;
  if (!wiped || !guarded.compare_exchange_strong(expected, static_cast<Guarded*>(page))) {
    munmap(page, bytes);
  }
  return wiped;
}

FileId file_id(int fd) {
  struct stat file;
  if (fstat(fd, &file) != 0) return {};
  return {file.st_dev, file.st_ino};
}

namespace {

// ---- attaching ----------------------------------------------------------------------------------

// False if the application closed the socket: its number may name another file by now.
bool owns_socket(const Session& session) { return file_id(session.socket) == session.socket_id; }

int move_up(int fd) {
  const int up = fcntl(fd, F_DUPFD_CLOEXEC, kDescriptorsFrom);
  if (up >= 0) close(fd);
  return up >= 0 ? up : fd;
}

// The file's size; 0: there is no such file.
size_t size_of(int fd) {
  struct stat file;
  return fd >= 0 && fstat(fd, &file) == 0 ? static_cast<size_t>(file.st_size) : 0;
}

void* map(int fd, size_t bytes, int protection) {
  if (size_of(fd) < bytes) return nullptr;
  void* memory = mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return nullptr;
  madvise(memory, bytes, MADV_DONTFORK);  // a forked child must not write records there
  return memory;
}

void unmap(Session& session) {
  if (session.control != nullptr) {
    munmap(const_cast<ipc::ControlMemory*>(session.control), sizeof *session.control);
  }
  if (session.client != nullptr) munmap(session.client, sizeof *session.client);
  session.control = nullptr;
  session.client = nullptr;
}

void close_session(Session& session) {
  unmap(session);
  if (session.socket >= 0 && owns_socket(session)) close(session.socket);
  if (session.doorbell >= 0 && file_id(session.doorbell) == session.doorbell_id) {
    close(session.doorbell);
  }
  leave_gates(session.gates);
  session.gates = nullptr;
  session.socket = session.doorbell = -1;
  session.state = Session::State::kFree;
}

int connect_daemon() {
  char path[108];
  if (ipc::socket_path(environment.socket, environment.runtime, path, sizeof path) < 0) return -1;
  const int fd = ipc::connect_socket(path, kReplyMs);
  return fd < 0 ? -1 : move_up(fd);
}

bool send_attach(int socket) {
  Packet packet;
  tell_memory_held(attach_facts);
  for (size_t i = 0; i < attach_facts.gpu_id_count; ++i) {
    attach_facts.made_sets[i] = made_sets(static_cast<int>(i));
  }
  build_attach(packet, attach_facts);
  return ipc::send_packet(socket, packet.span()) == 0;
}

// An answer of another protocol version has only its first two words in common with this one.
bool same_protocol(const ipc::Attached& answer) {
  return answer.magic == ipc::kControlMagic && answer.version == ipc::kProtocolVersion;
}

// If mmap() fails here, it will fail for the next session, too.
void forget_word() {
  if (!read_word_from(-1)) log_line("out of mappings; launching unmanaged");
}

// Waits for the daemon's answer and takes its descriptors. False: no answer came. An answer of
// another version may be longer or shorter, but has the first two words.
bool receive_answer(Session& session, ipc::Attached& answer) {
  pollfd readable{session.socket, POLLIN, 0};
  if (poll(&readable, 1, kReplyMs) <= 0) return false;
  int fds[4];
  const ssize_t size =
      ipc::receive_packet(session.socket, std::as_writable_bytes(std::span(&answer, 1)), fds);
  if (size == static_cast<ssize_t>(sizeof answer) && same_protocol(answer) && answer.managed != 0) {
    session.control =
        static_cast<const ipc::ControlMemory*>(map(fds[0], sizeof(ipc::ControlMemory), PROT_READ));
    session.client = static_cast<ipc::ClientMemory*>(
        map(fds[1], sizeof(ipc::ClientMemory), PROT_READ | PROT_WRITE));
    // A fail-closed client is never unobserved: each of its launches needs the daemon's word.
    const bool closed = (answer.flags & ipc::kFailClosed) != 0;
    if (!read_word_from(closed || session.control == nullptr ? -1 : fds[0])) unmap(session);
    if (fds[2] >= 0) session.doorbell = move_up(fds[2]);
    session.doorbell_id = file_id(session.doorbell);
    if (session.control != nullptr && session.client != nullptr && session.doorbell >= 0) {
      const bool waits = (answer.flags & ipc::kStreamsWait) != 0 && start_opener();
      session.gates = keep_gates(fds[3], now_ns(), waits && !closed);
    }
  } else {
    if (fds[2] >= 0) close(fds[2]);
  }
  for (const int fd : {fds[0], fds[1], fds[3]}) {
    if (fd >= 0) close(fd);
  }
  return size == -EMSGSIZE || size >= static_cast<ssize_t>(2 * sizeof(uint32_t));
}

// Tells the daemon of all kernels; false: it failed. attend() tells of kernels seen later.
bool tell_kernels(Session& session) {
  while (kernels_untold(session)) {
    const int error = tell_kernel(session);
    pollfd writable{session.socket, POLLOUT, 0};
    if (error != 0 && (error != -EAGAIN || poll(&writable, 1, kReplyMs) <= 0)) return false;
  }
  return true;
}

void publish(Session& session) {
  session.state = Session::State::kLive;
  HEDDLE_FAULT_POINT("attach: mapped, not current");
  memory_attached(session);
  guard().current.store(&session, std::memory_order_release);
  lever_attached(session);
}

enum class Attach : uint8_t { kLive, kFailed, kRefused };

// Afterwards the session is live, or free again.
Attach attach(Session& session) {
  session.socket = connect_daemon();
  if (session.socket < 0) return Attach::kFailed;
  session.socket_id = file_id(session.socket);
  session.generation = ++generations;
  session.rung_nap.store(0, std::memory_order_relaxed);
  session.detached.store(false, std::memory_order_relaxed);
  session.rung_ns.store(0, std::memory_order_relaxed);
  session.kernels_told.store(0, std::memory_order_relaxed);
  ipc::Attached answer{};
  answer.magic = answer.version = 0;
  HEDDLE_FAULT_POINT("attach: connected, not told");
  const bool answered = send_attach(session.socket) && receive_answer(session, answer);
  bool ok = answered;
  if (answered && same_protocol(answer)) {
    const uint32_t flags = answer.managed != 0 ? answer.flags : 0;
    guard().fail_closed.store(flags & ipc::kFailClosed, std::memory_order_relaxed);
  }
  answer.reason[sizeof answer.reason - 1] = answer.rule[sizeof answer.rule - 1] = '\0';
  if (!ok) {
    log_line("the daemon does not answer");
  } else if (!same_protocol(answer)) {
    log_line("the daemon speaks protocol %u, this shim %u; install both from the same release",
             answer.version, ipc::kProtocolVersion);
    ok = false;
    answer.managed = 0;
  } else if (answer.managed == 0) {
    log_line("not managed: %s", answer.reason);
    ok = false;
  } else if (session.control == nullptr || session.client == nullptr || session.doorbell < 0 ||
             session.gates == nullptr) {
    log_line("the daemon's memory cannot be mapped; launching unmanaged");
    ok = false;
  }
  if (ok) tell_memory_used(*session.client);
  if (!ok || !tell_kernels(session)) {
    forget_word();
    close_session(session);
    return answered && answer.managed == 0 ? Attach::kRefused : Attach::kFailed;
  }
  publish(session);
  log_line("attached as client %llu at Q%u (%s)", static_cast<unsigned long long>(answer.client_id),
           answer.priority, answer.rule);
  return Attach::kLive;
}

// ---- retiring -----------------------------------------------------------------------------------

// Unmaps retired sessions that no thread is inside any more. After membarrier() every thread either
// has announced its stay where anyone_inside() sees it, or sees that the session is not current.
bool recycle() {
  bool left = false;
  for (Session& session : sessions) {
    if (session.state != Session::State::kRetired) continue;
    if (can_unmap && syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0 &&
        !anyone_inside(session) && !lever_inside(session)) {
      HEDDLE_FAULT_POINT("retire: not unmapped");
      close_session(session);
    } else {
      left = true;
    }
  }
  return left;
}

void retire(Session& session) {
  memory_detached();
  session.detached.store(true, std::memory_order_seq_cst);
  Session* expected = &session;
  guard().current.compare_exchange_strong(expected, nullptr);
  session.state = Session::State::kRetired;
  leave_gates(session.gates);
  HEDDLE_FAULT_POINT("retire: word still read");
  forget_word();
  HEDDLE_FAULT_POINT("retire: not woken");
  wake_waiters(session);
  wake_lever();
  log_line("detached from client connection %llu",
           static_cast<unsigned long long>(session.generation));
}

// Returns when the daemon, or our end of the socket, is gone. poll() does not return when another
// thread of the application closes the socket: owns_socket() finds that at the next look.
void attend(Session& session) {
  while (!session.detached.load(std::memory_order_relaxed) && owns_socket(session)) {
    const bool soon = recycle() && can_unmap;
    look_for_tracer(now_ns());
    heed_calls(true);
    const bool away = word_page.header.away.load() != 0;  // the driver would keep this thread
    if (!away) make_twins();
    const bool untold = kernels_untold(session);
    if (untold) heed_calls(false);
    pollfd polled[] = {{session.socket, static_cast<short>(untold ? POLLIN | POLLOUT : POLLIN), 0},
                       {watch_descriptor(), POLLIN, 0}};
    const pollfd& end = polled[0];
    const int ready = poll(polled, away ? 1 : 2, soon || away ? kRecycleMs : kLookMs);
    if (ready < 0 && errno != EINTR) return;
    if (!away && (ready == 0 || polled[1].revents != 0)) watch();
    if (end.revents == 0) continue;
    if ((end.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0) return;
    if (!owns_socket(session)) return;  // it may be a file of the application's by now
    while (kernels_untold(session) && tell_kernel(session) == 0) {
    }
    std::byte ignored[64];
    const ssize_t size = ipc::receive_packet(session.socket, ignored);
    if (size == 0 || (size < 0 && size != -EAGAIN && size != -EMSGSIZE)) return;
    if (size > 0) give_back_memory();  // the only message that a daemon sends to a session
  }
}

Session* free_session() {
  for (Session& session : sessions) {
    if (session.state == Session::State::kFree) return &session;
  }
  return nullptr;
}

void* helper_main(void*) {
  make_watch_descriptor();
  can_unmap = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
  for (int backoff_ms = kBackoffMinMs;; backoff_ms = std::min(2 * backoff_ms, kBackoffMaxMs)) {
    if (watch_descriptor() < 0) make_watch_descriptor();
    Session* session = free_session();
    const Attach attached = session != nullptr ? attach(*session) : Attach::kFailed;
    guard().tried.store(1, std::memory_order_release);
    ipc::futex_wake(&guard().tried);
    if (attached == Attach::kLive) {
      attend(*session);
      retire(*session);
      backoff_ms = kBackoffMinMs;
    }
    poll(nullptr, 0, attached == Attach::kRefused ? kRefusedMs : backoff_ms);
    recycle();
  }
  return nullptr;
}

// ---- the first cuInit ---------------------------------------------------------------------------

// For drivers up to CUDA 12.3, which do not tell: an MPS control daemon listens in its directory.
bool mps_runs() {
  const char* directory = secure_getenv("CUDA_MPS_PIPE_DIRECTORY");
  char path[256];
  snprintf(path, sizeof path, "%s/control",
           directory != nullptr && *directory != '\0' ? directory : "/tmp/nvidia-mps");
  return access(path, F_OK) == 0 && !ipc::is_stale_socket(path);
}

int wanted_priority() {
  const char* text = secure_getenv("HEDDLE_PRIORITY");
  if (text == nullptr || text[0] < '0' || text[0] > '9' || text[1] != '\0') return -1;
  return text[0] - '0';
}

template <size_t N>
void remember(char (&out)[N], const char* name) {
  const char* value = secure_getenv(name);
  out[0] = '\0';
  if (value != nullptr) strncpy(out, value, N - 1);
}

float wanted_part(const char* name) {
  const char* value = secure_getenv(name);
  if (value == nullptr) return 0;
  const float part = part_of(value);
  if (part == 0)
    log_line("%s=%.32s is no number from 0.01 to 1, such as 0.3: no limit", name, value);
  return part;
}

void gather_facts() {
  remember(environment.socket, ipc::kSocketEnv);
  remember(environment.runtime, "XDG_RUNTIME_DIR");
  remember(environment.label, "HEDDLE_LABEL");
  remember(environment.sms, "HEDDLE_SMS");
  remember(environment.memory, "HEDDLE_MEMORY");
  remember(environment.run, "HEDDLE_RUN");
  attach_facts.memory = environment.memory;
  attach_facts.run = environment.run;
  attach_facts.label = environment.label;
  attach_facts.sms = environment.sms;
  attach_facts.issue_max = wanted_part("HEDDLE_ISSUE_MAX");
  attach_facts.l2_max = wanted_part("HEDDLE_L2_MAX");
  attach_facts.dram_max = wanted_part("HEDDLE_DRAM_MAX");
  attach_facts.park = is_set("HEDDLE_PARK");
  attach_facts.command = command_line();
  attach_facts.priority = wanted_priority();
  attach_facts.streams_wait = !is_off("HEDDLE_GATES") && !is_set("CUDA_LAUNCH_BLOCKING") &&
                              driver_has(kEntry_cuStreamWaitValue32_v2);
  int value = 0;
  attach_facts.mode_told =
      HEDDLE_REAL(cuDeviceGetAttribute)(&value, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, 0) == CUDA_SUCCESS;
  attach_facts.mps = attach_facts.mode_told ? value != 0 : mps_runs();
  if ((attach_facts.mps || !attach_facts.mode_told) && driver_ioctl.load() != nullptr) {
    objects().forbid(ipc::kStopMps);
  }
  count_queues(attach_facts.mps);
  if (HEDDLE_REAL(cuDriverGetVersion)(&value) == CUDA_SUCCESS) {
    attach_facts.driver_version = static_cast<uint32_t>(value);
  }
  if (HEDDLE_REAL(cuDeviceGetCount)(&value) == CUDA_SUCCESS) {
    attach_facts.device_count = static_cast<uint32_t>(value);
  }
  if (HEDDLE_REAL(cuDeviceGetAttribute)(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0) ==
      CUDA_SUCCESS) {
    attach_facts.sm_count = static_cast<uint32_t>(value);
  }
  static constinit char gpu_name[ipc::kLabelBytes] = {};
  if (HEDDLE_REAL(cuDeviceGetName)(gpu_name, sizeof gpu_name, 0) == CUDA_SUCCESS) {
    attach_facts.gpu_name = gpu_name;
  }
  attach_facts.sm_group_count = read_groups(0, attach_facts.sm_groups);
  attach_facts.gpu_id_count = std::min(attach_facts.device_count, ipc::kDevices);
  for (size_t i = 0; i < attach_facts.gpu_id_count; ++i) {
    CUuuid& id = attach_facts.gpu_ids[i];
    if (HEDDLE_REAL(cuDeviceGetUuid_v2)(&id, static_cast<CUdevice>(i)) != CUDA_SUCCESS) id = {};
  }
  gather_memory(attach_facts);
}

// Drops the parent's state in a forked child. In any other process there is nothing to drop.
void forget_parent() {
  for (Session& session : sessions) {
    if (session.state == Session::State::kFree) continue;
    session.control = nullptr;  // MADV_DONTFORK: not mapped here
    session.client = nullptr;
    close_session(session);
  }
  forget_threads();
  forget_streams();
  forget_twins();
  forget_sm_sets();
  forget_kernels();
  forget_rows();
  forget_memory();
  forget_gates();
  forget_lever();
}

// False if the lock never comes free: another thread held it when the process was forked.
bool lock_init() {
  for (int i = 0; i < 200; ++i) {
    if (init_lock.try_lock()) return true;
    poll(nullptr, 0, 1);
  }
  return false;
}

}  // namespace

void on_driver_initialized() {
  if (guard().initialized.load(std::memory_order_acquire) != 0 || is_set("HEDDLE_DISABLE")) return;
  if (!lock_init()) return;
  const bool first = guard().initialized.load(std::memory_order_relaxed) == 0;
  bool started = false;
  if (first && make_guard_page()) {
    guard().initialized.store(1, std::memory_order_release);
    forget_parent();
    create_thread_key();
    create_capture_key();
    rest_events_at_exit();
    hold_on_at_exit();
    gather_facts();
    const int error = start_thread("heddle", helper_main);
    started = error == 0;
    if (!started) {
      log_line("no helper thread (error %d): raise the limit on processes; launching unmanaged",
               error);
    }
  }
  init_lock.unlock();
  if (!started) return;
  const int64_t until = now_ns() + kFirstAttachNs;
  for (int64_t left = kFirstAttachNs;
       left > 0 && guard().tried.load(std::memory_order_acquire) == 0; left = until - now_ns()) {
    ipc::futex_wait(&guard().tried, 0, left);
  }
}

}  // namespace heddle::shim
