// Launches of one client that have a ticket (ipc/gate.h): they stand at gates on the GPU, or their
// threads wait.
//
// The core sees the oldest unit of each device as an ask by a thread number that no client has. Its
// grant lets the tickets up to that one go; an allowance opens the gates, or closes them. So units
// get verdicts like other asks, starve from the moment of becoming the oldest, and run from the
// grant. Loop thread only. All input comes from a hostile client.
//
//   waiting ── ask, grant ──▶ let go ──▶ told to the core once it may have begun ──▶ over
//      ▲                                  │ a graph with gates inside, and the gates are closed
//      └───────────── recalled ───────────┘
//
// If launches under way make no progress for 2 s, they do not delay other clients any more, and
// neither do the client's later launches: until the GPU or the client reports that some work is
// over. The times of a recalled graph add up.
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
  // The claim's ticket goes. If its thread has drawn a newer ticket since, no thread waits for it.
  void goes(const Claim& claim) {
    if (claim.waiter == ipc::kThreads) return;
    --count_;
    if (newest_[claim.waiter] != key(claim)) return;
    went_.push_back({claim.waiter, claim.fields.ask_seq, claim.fields.device});
  }
  // Tickets that went since forget().
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

  static constexpr size_t kMost = 4096;  // claims of a device: two turns' records

  explicit GateQueue(ipc::GatePage& page) : page_(page) {}

  // Adds a checked record of a launch with a ticket, with its predicted time. False: there are too
  // many.
  bool add(const Claim& claim, float predicted_us);

  // Reads the GPU's words in the page.
  void look();
  // The next claim for the core; none: it knows everything. `all_open`: all launches go without its
  // grant. `if_touched`: none unless this queue changed since the last call.
  std::optional<Claim> next(core::TimeNs now, bool all_open, bool if_touched = false);

  // The core grants the oldest unit of that thread number, which asked. False: none did. let_go()
  // carries it out, after waiting threads have their answers.
  bool release(uint16_t thread, core::TimeNs now);
  void let_go(uint16_t thread);
  // Opens the device's gates, or closes them behind the launches that may have begun. Graphs with
  // gates inside then stop at the next one.
  void set_open(size_t device, bool open);
  // Opens all gates for good, whatever the core decides: a launch without a record may stand there,
  // or the client is not managed any more.
  void give_up();
  bool given_up() const { return given_up_; }
  bool any_open() const {
    return std::ranges::any_of(devices_, [](const Device& d) { return d.open; });
  }
  uint64_t forced() const { return forced_; }  // launches whose gates the client opened itself
  // When to look next: a unit behind which another launch waits is predicted to be over then.
  core::TimeNs look_at(core::TimeNs now) const;
  // A completion: the stream's work is over up to there.
  void over(const ipc::RecordFields& completion);

  static bool is_thread(uint16_t thread) {
    return thread >= ipc::kThreads && thread < ipc::kThreads + ipc::kDevices;
  }

 private:
  struct Device {
    std::vector<Claim> fresh;     // in the order read, to be merged into `waiting`
    std::deque<Claim> waiting;    // by ticket, recalled graphs first; the first may be `asked`
    std::deque<Claim> under_way;  // the core knows; perhaps not over; the oldest first
    std::deque<Claim> ended;      // over by the GPU's word; the core has yet to be told
    bool asked = false, open = false, closing = false;
    bool running = false;         // graphs pass the gates inside
    size_t recalled = 0;          // in `waiting`: they must ask again, whatever was released
    uint32_t newest = 0;          // ticket
    uint32_t released = 0;        // ticket up to which the gates are open, unless `open`
    uint32_t floor = 0;           // when last read
    uint32_t told = 0;            // the newest ticket that the core knows to have gone
    uint32_t done = 0;            // the newest ticket that is over by the GPU's word
    core::TimeNs told_until = 0;  // predicted end of `told`
    core::TimeNs heard = 0;       // when launches under way last made progress
    core::TimeNs held = 0;        // how long they had made none when all were recalled
    bool moved = false;           // they made progress since the last next()
    bool silent = false;          // they have made none for too long
    uint32_t forced = 0;          // the newest ticket that forced_ may have counted

    bool has_let(uint32_t ticket) const {
      return ipc::gate_lets(released, ticket) || ipc::gate_lets(floor, ticket);
    }
    // Whether this is a graph with gates inside for which no other work waits.
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
  void run(size_t device, bool on);  // lets graphs pass the gates inside, or stops them there
  std::optional<Claim> let_be(size_t device, core::TimeNs now);
  bool may_have_begun(size_t device, const Claim& claim, core::TimeNs now) const;
  std::optional<Claim> next(size_t device, core::TimeNs now, bool all_open);
  Claim recall(size_t device, core::TimeNs now);
  Claim pop(size_t device, core::TimeNs now);

  ipc::GatePage& page_;
  bool given_up_ = false;
  bool touched_ = false;
  uint64_t forced_ = 0;
  size_t used_ = 0;  // devices from this one on never had a launch at a gate
  std::array<Device, ipc::kDevices> devices_;
};

}  // namespace heddle::server
