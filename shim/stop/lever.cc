#include "shim/stop/lever.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "ipc/socket.h"
#include "shim/link/inside.h"
#include "shim/link/thread.h"
#include "shim/stop/hook.h"

namespace heddle::shim {
namespace {

using ipc::StopOrder;

constexpr int64_t kLeaseLookNs = 50'000'000;
constexpr int64_t kLookNs = 1'000'000'000;
constexpr int64_t kTracerNs = 1'000'000'000;
constexpr int64_t kHoldTryNs = 100'000'000, kHoldNs = 1'000'000'000;
// So many refusals in a row end the stops. A single one may mean that the object was just freed, of
// which the table hears a moment later.
constexpr uint32_t kRefusalsMost = 3;

// HeldOn raises `held` and then looks at `engaged`. The lever sets `engaged` and then looks at
// `held`. So at least one of them sees the other.
constinit std::atomic<uint32_t> held{0};
constinit std::atomic<uint32_t> engaged{0};  // futex: channels are off, or have a slice by heddle
constinit std::atomic<bool> traced{false};

// ---- requests -----------------------------------------------------------------------------------

// Makes a request. True also if the object's client is gone: there is nothing left to change.
bool ask(const Objects::Target& target, uint32_t command, void* parameters, uint32_t bytes) {
  if (file_id(target.fd) != target.file) {
    objects().lose_client(target.client);
    return true;
  }
  rm::Control control{
      target.client, target.object, command, 0, reinterpret_cast<uint64_t>(parameters), bytes, ~0u};
  const Ioctl request = driver_ioctl.load(std::memory_order_acquire);
  return request(target.fd, rm::request_of<rm::Control>(rm::kControl), &control) == 0 &&
         control.status == 0;
}

bool switch_channels(bool off) {
  Objects::Cursor at;
  Objects::Target subdevice;
  bool done = true;
  for (;;) {
    rm::DisableChannels request{};
    if (!objects().next_channels(at, subdevice, request)) return done;
    request.disable = off;
    done &= ask(subdevice, rm::kDisableChannels, &request, sizeof request);
  }
}

// Sets all groups' time slices; 0: back to each group's own.
bool set_slices(uint32_t us) {
  Objects::Target group;
  uint64_t own_us = 0;
  bool done = true;
  for (size_t at = 0; objects().next_group(at, group, own_us);) {
    rm::Timeslice slice{us != 0 ? us : own_us};
    if (own_us == 0) {
      if (us == 0) continue;  // heddle never set this group's slice
      rm::Timeslice own{};
      if (!ask(group, rm::kGetTimeslice, &own, sizeof own)) {
        done = false;
        continue;
      }
      objects().note_slice(group, own.us);
    }
    done &= ask(group, rm::kSetTimeslice, &slice, sizeof slice);
  }
  return done;
}

// ---- what is wanted, and may be -----------------------------------------------------------------

// The order for the one device that the process uses, whichever number it has in the process.
StopOrder wanted_of(const ipc::ControlMemory& control) {
  for (const ipc::DeviceTerms& terms : control.devices) {
    const StopOrder order = ipc::unpack_stop(terms.stop.load(std::memory_order_relaxed));
    if (order != StopOrder{}) return order;
  }
  return {};
}

bool may_stop(const ipc::ControlMemory& control, int64_t now_ns) {
  const int64_t beat = control.header.heartbeat_ns.load(std::memory_order_relaxed);
  return now_ns - beat <= ipc::kHeartbeatStaleNs && held.load(std::memory_order_relaxed) == 0 &&
         __atomic_load_n(&heddle_shim_bypass, __ATOMIC_RELAXED) == 0;
}

ipc::StopAble able() {
  const ipc::StopAble known = objects().able();
  return known == ipc::kStopYes && traced.load(std::memory_order_relaxed) ? ipc::kStopTraced
                                                                          : known;
}

bool store(std::atomic<uint32_t>& word, uint32_t value) {
  if (word.load(std::memory_order_relaxed) == value) return false;
  word.store(value, std::memory_order_release);
  return true;
}

}  // namespace

Lever::Next Lever::look(const ipc::ControlMemory* control, ipc::ClientMemory* client,
                        int64_t now_ns) {
  // Read before the devices' words, so that these are at least as new as the number.
  const uint32_t number =
      control != nullptr ? control->stop_order.load(std::memory_order_acquire) : 0;
  const StopOrder wanted = control != nullptr ? wanted_of(*control) : StopOrder{};
  const ipc::StopAble can = able();
  const bool may = can == ipc::kStopYes && control != nullptr && may_stop(*control, now_ns);
  const StopOrder order = may ? wanted : StopOrder{};
  const bool done = carry_out(order) && order == wanted;
  bool tell = false;
  for (uint32_t i = 0; client != nullptr && i < ipc::kDevices; ++i) {
    ipc::ThreadBlock& block = client->threads[i];
    tell |= store(block.stop_able, can);
    if (!done) continue;
    store(block.stop_us, took_us_);
    tell |= store(block.stop_done, number);
  }
  const bool leased = wanted != StopOrder{} || in_force_ != StopOrder{} || unsure();
  return {leased ? kLeaseLookNs : kLookNs, tell};
}

bool Lever::carry_out(StopOrder order) {
  const uint32_t version = objects().version();
  const bool joined = version != seen_ && order != StopOrder{};
  if (order == in_force_ && !unsure() && !joined) return true;
  bool holds = false;
  if (order != StopOrder{}) {
    engaged.store(1, std::memory_order_seq_cst);
    holds = held.load(std::memory_order_seq_cst) != 0;
    if (holds) order = {};
  }
  const int64_t begun = shim::now_ns();
  const bool done = change(order, joined);
  took_us_ = static_cast<uint32_t>((shim::now_ns() - begun) / 1'000);
  seen_ = version;
  if (done) {
    refusals_ = 0;
  } else {
    if (++refusals_ == kRefusalsMost) objects().forbid(ipc::kStopRefused);
    if (order != StopOrder{}) change({}, false);
  }
  if (in_force_ == StopOrder{} && !unsure() &&
      engaged.exchange(0, std::memory_order_seq_cst) != 0) {
    ipc::futex_wake(&engaged);
  }
  return done && !holds;
}

bool Lever::change(StopOrder order, bool joined) {
  if (unsure_off_ || order.off != in_force_.off || (order.off && joined)) {
    unsure_off_ = !switch_channels(order.off);
  }
  if (unsure_slice_ || order.slice_us != in_force_.slice_us || (order.slice_us != 0 && joined)) {
    unsure_slice_ = !set_slices(order.slice_us);
  }
  in_force_ = order;
  return !unsure();
}

namespace {

// ---- the thread ---------------------------------------------------------------------------------

constinit Lever lever;
constinit bool started = false;
constinit std::atomic<Session*> inside{nullptr};
constinit std::atomic<uint32_t> changes{0};  // futex: the thread sleeps here without a session
constinit std::atomic<const void*> waits_at{nullptr};
constinit int64_t tracer_looked_ns = 0;
constinit std::atomic<bool> locked{false};  // the driver has locked the process for a checkpoint

// Enters the session as Inside does. The helper unmaps a session only once it is no longer current
// and neither a launching thread nor this one is inside.
Session* enter() {
  Session* const session = guard().current.load(std::memory_order_acquire);
  inside.store(session, std::memory_order_seq_cst);
  if (session != nullptr && guard().current.load(std::memory_order_seq_cst) == session &&
      !session->detached.load(std::memory_order_relaxed)) {
    return session;
  }
  inside.store(nullptr, std::memory_order_release);
  return nullptr;
}

void leave() {
  waits_at.store(nullptr, std::memory_order_relaxed);
  inside.store(nullptr, std::memory_order_release);
}

void ring(Session& session) {
  std::atomic_thread_fence(
      std::memory_order_seq_cst);  // the news before the look whether it sleeps
  if (session.control->sleeping.load(std::memory_order_relaxed) == ipc::kAwake) return;
  const uint64_t one = 1;
  if (file_id(session.doorbell) == session.doorbell_id) {
    syscall(SYS_write, session.doorbell, &one, sizeof one);
  } else {
    session.detached.store(true, std::memory_order_relaxed);
  }
}

void stay(Session& session) {
  const std::atomic<uint32_t>& order = session.control->stop_order;
  waits_at.store(&order, std::memory_order_relaxed);
  while (!session.detached.load(std::memory_order_seq_cst)) {
    const uint32_t seen = order.load(std::memory_order_acquire);
    const Lever::Next next = lever.look(session.control, session.client, now_ns());
    if (next.tell) ring(session);
    ipc::futex_wait(&order, seen, next.wait_ns);
  }
}

void* run(void*) {
  for (;;) {
    const uint32_t seen = changes.load(std::memory_order_acquire);
    if (Session* const session = enter()) {
      stay(*session);
      leave();
    } else {
      ipc::futex_wait(&changes, seen, lever.look(nullptr, nullptr, now_ns()).wait_ns);
    }
  }
  return nullptr;
}

void hold() {
  held.fetch_add(1, std::memory_order_seq_cst);
  const int64_t until = now_ns() + kHoldNs;
  for (int64_t left = kHoldNs; left > 0 && engaged.load(std::memory_order_seq_cst) != 0;
       left = until - now_ns()) {
    wake_lever();
    ipc::futex_wait(&engaged, 1, std::min(left, kHoldTryNs));
  }
}

void hold_no_more() {
  if (held.fetch_sub(1, std::memory_order_seq_cst) == 1) wake_lever();
}

}  // namespace

void lever_attached(Session& session) {
  if (driver_ioctl.load(std::memory_order_acquire) == nullptr) return;
  started = started || start_thread("heddle-stops", run) == 0;
  if (started) return wake_lever();
  for (uint32_t i = 0; i < ipc::kDevices; ++i) {
    store(session.client->threads[i].stop_able, ipc::kStopNoThread);
  }
}

// The word's page may be unmapped by now. Then the wake-up reaches no thread, or one that did not
// need it; both are harmless.
void wake_lever() {
  changes.fetch_add(1, std::memory_order_release);
  ipc::futex_wake(&changes);
  if (const void* const word = waits_at.load(std::memory_order_relaxed)) ipc::futex_wake(word);
}

void wake_idle_lever() {
  if (engaged.load(std::memory_order_relaxed) == 0) wake_lever();
}

bool lever_inside(const Session& session) {
  return inside.load(std::memory_order_seq_cst) == &session;
}

void look_for_tracer(int64_t now_ns) {
  if (!started || now_ns - tracer_looked_ns < kTracerNs) return;
  tracer_looked_ns = now_ns;
  const int status = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  if (status < 0) return;
  char text[1024];
  const ssize_t size = read(status, text, sizeof text - 1);
  close(status);
  text[std::max<ssize_t>(size, 0)] = '\0';
  constexpr char kName[] = "TracerPid:";
  const char* const line = strstr(text, kName);
  const bool found = line != nullptr && atoi(line + sizeof kName - 1) != 0;
  if (traced.exchange(found, std::memory_order_relaxed) != found) wake_lever();
}

void forget_lever() {
  lever = {};
  started = false;
  inside.store(nullptr, std::memory_order_relaxed);
  waits_at.store(nullptr, std::memory_order_relaxed);
  tracer_looked_ns = 0;
  traced.store(false, std::memory_order_relaxed);
  locked.store(false, std::memory_order_relaxed);
  held.store(0, std::memory_order_relaxed);
  engaged.store(0, std::memory_order_relaxed);
}

HeldOn::HeldOn(bool wanted) : hold_(wanted && is_initialized()) {
  if (hold_) hold();
}
HeldOn::~HeldOn() {
  if (hold_) hold_no_more();
}

extern "C" int __cxa_atexit(void (*call)(void*), void* argument, void* object);

void hold_on_at_exit() {
  static constinit bool registered = false;
  if (registered) return;
  const auto on = [](void*) {
    if (is_initialized()) hold();
  };
  registered = __cxa_atexit(on, nullptr, nullptr) == 0;
}

void hold_on_for_checkpoint(bool wanted) {
  if (!is_initialized() || locked.exchange(wanted, std::memory_order_acq_rel) == wanted) return;
  wanted ? hold() : hold_no_more();
}

}  // namespace heddle::shim
