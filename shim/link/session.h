// Sessions: one connection to a daemon with its two shared memories, and which one is current.
//
// The helper thread (helper.cc) makes sessions, publishes one in `guarded->current`, and retires it
// when the daemon goes away. Launching threads only ever read that pointer, through Inside
// (inside.h), which keeps a session mapped while they are in it.
#pragma once

#include <time.h>

#include <atomic>
#include <cstdint>

#include "ipc/layout.h"

namespace heddle::shim {

struct GateBook;

// Identifies the file behind a descriptor, to find out whether the number names another file by
// now. All anonymous files have one identity: a doorbell cannot be told from another eventfd.
struct FileId {
  uint64_t device = 0;
  uint64_t inode = 0;
  bool operator==(const FileId&) const = default;
};
FileId file_id(int fd);

struct alignas(64) Session {
  // What each launch reads: one cache line.
  const ipc::ControlMemory* control = nullptr;
  uint64_t generation = 0;  // never 0, never used twice in a process
  ipc::ClientMemory* client = nullptr;
  GateBook* gates = nullptr;  // shim/gate/opener.h; set while the session is current
  int socket = -1;
  int doorbell = -1;
  FileId socket_id, doorbell_id;
  std::atomic<bool> detached{false};      // the daemon is gone: no answer will come any more
  std::atomic<int64_t> rung_ns{0};        // when the doorbell was last rung ...
  std::atomic<uint32_t> rung_nap{0};      // ... and in which of the daemon's naps
  std::atomic<uint32_t> kernels_told{0};  // kernels below this index are registered there

  enum class State : uint8_t { kFree, kLive, kRetired } state = State::kFree;
};

// State that a forked child must not inherit. It lies in a page with MADV_WIPEONFORK: the child
// finds zeros, sees no session, and passes its launches through until its own cuInit succeeds.
struct Guarded {
  std::atomic<Session*> current;
  std::atomic<uint64_t> threads;      // bitmap of the thread slots in use (inside.h)
  std::atomic<uint32_t> initialized;  // cuInit succeeded in this process
  std::atomic<uint32_t> tried;        // futex word: the first attach succeeded or failed
  std::atomic<uint32_t> fail_closed;  // by the daemon's rule, launches need a session
  std::atomic<uint32_t> objects;      // whether the table of stop/hook.h is this process's own
};

// Points at an object of zeros until make_guard_page(), so that it is never null.
extern constinit std::atomic<Guarded*> guarded;

// Makes the page. Any thread, before a value is stored in it. False if the kernel has no
// MADV_WIPEONFORK (before 4.14): a child could not be told apart, and the process stays unmanaged.
bool make_guard_page();

inline Guarded& guard() { return *guarded.load(std::memory_order_relaxed); }

// False before the first cuInit, and in a forked child, where a lock may be left taken for ever.
inline bool is_initialized() { return guard().initialized.load(std::memory_order_relaxed) != 0; }

// Called after every successful cuInit, on its thread. The first call starts the helper thread and
// waits until it has attached or failed, 0.1 s at most, so that short programs are managed, too.
// HEDDLE_DISABLE=1 makes it do nothing.
void on_driver_initialized();

// The client's rule says that its launches need a daemon's word. False until a daemon said so, and
// in a forked child.
inline bool fails_closed() { return guard().fail_closed.load(std::memory_order_relaxed) != 0; }

inline int64_t now_ns(clockid_t clock = CLOCK_MONOTONIC) {
  timespec now;
  clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace heddle::shim
