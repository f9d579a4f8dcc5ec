// One connection to a daemon: its two shared memories, and which of them is the current one.
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

// Tells a descriptor of ours from another that took its number. Anonymous files have one identity
// for all of them: a doorbell is not told from another eventfd.
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
  GateBook* gates = nullptr;  // shim/gate/page.h; there while it is current
  int socket = -1;
  int doorbell = -1;
  FileId socket_id, doorbell_id;
  std::atomic<bool> detached{false};      // no answer will come through it any more
  std::atomic<int64_t> rung_ns{0};        // when the doorbell was last rung ...
  std::atomic<uint32_t> rung_nap{0};      // ... and in which of the daemon's naps
  std::atomic<uint32_t> kernels_told{0};  // how many, in the order of their indices

  enum class State : uint8_t { kFree, kLive, kRetired } state = State::kFree;
};

// What a forked child must not believe: it lies in a page with MADV_WIPEONFORK, so that a child
// finds zeros, sees no session and passes straight through until its own cuInit succeeds.
struct Guarded {
  std::atomic<Session*> current;
  std::atomic<uint64_t> threads;      // bitmap of the thread slots in use (inside.h)
  std::atomic<uint32_t> initialized;  // cuInit succeeded in this process
  std::atomic<uint32_t> tried;        // futex word: the first attach succeeded or failed
  std::atomic<uint32_t> fail_closed;  // by the daemon's rule, launches need a session
  std::atomic<uint32_t> objects;      // whose the table of the driver's objects is (stop/hook.h)
};

// Points at a page of zeros from the start, so that no reader needs to ask whether it is there.
extern constinit std::atomic<Guarded*> guarded;

// Any thread, before anything is stored there. False where the kernel has no such thing (before
// 4.14): then nothing tells a child apart, and the process stays unmanaged.
bool make_guard_page();

inline Guarded& guard() { return *guarded.load(std::memory_order_relaxed); }

// False before the first cuInit, and in a forked child, where a lock may have been left taken.
inline bool is_initialized() { return guard().initialized.load(std::memory_order_relaxed) != 0; }

// Called after every successful cuInit, on its thread. The first time it starts the helper thread
// and waits, for a bounded time, until that has attached or failed, so that short programs are
// managed too. HEDDLE_DISABLE=1 makes it do nothing.
void on_driver_initialized();

// The administrator wants this process to launch on a daemon's word only. False until a daemon said
// so, and in a forked child.
inline bool fails_closed() { return guard().fail_closed.load(std::memory_order_relaxed) != 0; }

inline int64_t now_ns(clockid_t clock = CLOCK_MONOTONIC) {
  timespec now;
  clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace heddle::shim
