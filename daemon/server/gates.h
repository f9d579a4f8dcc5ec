// Launches of one client that have a ticket (ipc/gate.h): they stand at gates on the GPU, or their
// thread waits.
//
// The core sees the oldest unit of each device as an ask, of a thread that no client has. Its grant
// lets the tickets up to that one go; an allowance opens the gates, or closes them. So what holds
// for asks holds for these: verdicts, starvation from the moment of becoming the oldest, time from
// the grant. Loop thread only; what it is told comes from a hostile client.
//
//   waiting ── ask, grant ──▶ let go ──▶ told to the core once it may have begun ──▶ over
//      ▲                                  │ a graph with gates inside, and the gates are closed
//      └───────────── recalled ───────────┘
//
// What is under way, and is not seen to go on for 2 s, holds nobody up any more, and neither does
// what its client posts behind it: until the GPU or the client says that something is over. The
// turns of a recalled graph add up.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "daemon/server/intake.h"
#include "ipc/gate.h"
#include "ipc/slot.h"

namespace heddle::server {

// Threads of one client that wait for their tickets.
class WaitingThreads {
 public:
  struct Went {
    uint16_t thread;
    uint32_t ticket;
    size_t device;
  };

  bool any() const { return count_ > 0; }
  void add(Claim& claim) {
    if (!Intake::waits(claim)) return;
    claim.waiter = claim.thread;
    newest_[claim.thread] = key(claim);
    ++count_;
  }
  // One that its thread gave up, and that goes late, is nobody's any more.
  void goes(const Claim& claim) {
    if (claim.waiter == ipc::kThreads) return;
    --count_;
    if (newest_[claim.waiter] != key(claim)) return;
    went_.push_back({claim.waiter, claim.fields.ask_seq, claim.fields.device});
  }
  // Since they were forgotten.
  std::span<const Went> went() const { return went_; }
  void forget() { went_.clear(); }

 private:
  static uint32_t key(const Claim& claim) {
    return ipc::slot_key(claim.fields.ask_seq, claim.fields.device);
  }

  std::vector<Went> went_;
  std::array<uint32_t, ipc::kThreads> newest_{};
  size_t count_ = 0;
};

class GateQueue {
 public:
  WaitingThreads threads;

  static constexpr size_t kMost = 4096;  // of a device: two turns' records

  explicit GateQueue(ipc::GatePage& page) : page_(page) {}

  // A checked record of a launch with a ticket, predicted to take so long. False: there are too
  // many.
  bool add(const Claim& claim, float predicted_us);

  // Reads what the GPU said since.
  void look();
  // What the core is to be told next; none: it knows all that it can. `all_open`: the launches go
  // without its word.
  // `if_touched`: nothing unless something was done here since it said so.
  std::optional<Claim> next(core::TimeNs now, bool all_open, bool if_touched = false);

  // The core's word for the oldest unit of that thread, which asked; false: none did. It is carried
  // out by let_go(), behind what its threads are told.
  bool release(uint16_t thread, core::TimeNs now);
  void let_go(uint16_t thread);
  // What the core allows on the device: its gates stand open, or are closed behind what may have
  // begun. Graphs with gates inside stop at the next one.
  void set_open(size_t device, bool open);
  // They stand open from now on, whatever the core says: a launch that nobody knows of may stand
  // there, or the client is managed no more.
  void give_up();
  bool given_up() const { return given_up_; }
  bool any_open() const {
    return std::ranges::any_of(devices_, [](const Device& d) { return d.open; });
  }
  uint64_t forced() const { return forced_; }  // launches whose gates the client opened itself
  // When a unit that somebody waits behind is predicted to be over.
  core::TimeNs look_at(core::TimeNs now) const;
  // The stream's work on the device is over up to there.
  void over(const ipc::RecordFields& completion);

  static bool is_thread(uint16_t thread) {
    return thread >= ipc::kThreads && thread < ipc::kThreads + ipc::kDevices;
  }

 private:
  struct Device {
    std::vector<Claim> fresh;     // as they were read, to be merged into those that wait
    std::deque<Claim> waiting;    // by ticket, recalled ones before; the first may be `asked`
    std::deque<Claim> under_way;  // told, and maybe not over; the oldest first
    std::deque<Claim> ended;      // as the GPU said, and not told
    bool asked = false, open = false, closing = false;
    bool running = false;         // graphs go on at the gates inside
    size_t recalled = 0;          // of `waiting`, that are to be asked for whatever was let go
    uint32_t newest = 0;          // ticket
    uint32_t released = 0;        // up to here, where not open
    uint32_t floor = 0;           // as it was last seen
    uint32_t told = 0;            // the newest that the core was told has gone
    uint32_t done = 0;            // the newest that the GPU said is over
    core::TimeNs told_until = 0;  // it is predicted to run
    core::TimeNs heard = 0;       // when what is under way was last seen to go on
    core::TimeNs held = 0;        // for so long it was not, up to when all of it was recalled
    bool moved = false;           // it was, since next() was last called
    bool silent = false;          // it was not for too long
    uint32_t forced = 0;          // the newest ticket that forced_ may have counted

    bool has_let(uint32_t ticket) const {
      return ipc::gate_lets(released, ticket) || ipc::gate_lets(floor, ticket);
    }
    // A graph with gates inside, which others do not wait for.
    bool may_recall(const Claim& claim) const;
    // No graph with that ticket or an earlier one may stand inside.
    uint32_t none_stands_up_to() const;
  };

  bool over(size_t device, uint32_t ticket) const;
  static void merge(Device& d);
  void look(size_t device);
  void look_at_done(size_t device);
  void check_words(size_t device, uint32_t floor_before);
  void let(size_t device, uint32_t upto);
  void run(size_t device, bool on);  // graphs, at the gates inside
  std::optional<Claim> let_be(size_t device, core::TimeNs now);
  bool may_have_begun(size_t device, const Claim& claim, core::TimeNs now) const;
  std::optional<Claim> next(size_t device, core::TimeNs now, bool all_open);
  Claim recall(size_t device, core::TimeNs now);
  Claim pop(size_t device, core::TimeNs now);

  ipc::GatePage& page_;
  bool given_up_ = false;
  bool touched_ = false;
  uint64_t forced_ = 0;
  size_t used_ = 0;  // devices that had a launch at a gate are among so many first ones
  std::array<Device, ipc::kDevices> devices_;
};

}  // namespace heddle::server
