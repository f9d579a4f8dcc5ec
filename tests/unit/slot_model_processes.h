// The processes of the model: what shim and daemon do around the slot, action by action.
#pragma once

#include <algorithm>
#include <cstring>
#include <utility>

#include "daemon/server/intake.h"
#include "ipc/ring.h"
#include "ipc/slot.h"
#include "tests/unit/slot_model_memory.h"

namespace heddle::slot_model {

// ---- the books of the daemon --------------------------------------------------------------------

// Claims in the order in which the intake took them: what it was told, and the grants in between.
enum Told : uint8_t {
  kToldAsk = 0x10,
  kToldWithdrawal = 0x20,
  kToldSelf = 0x30,
  kToldCredit = 0x40,
  kGrantMade = 0x50
};

struct Books {
  server::Intake intake{1};
  int launches = 0;  // that the daemon believes to have run
};

inline server::Claim claim_of(uint8_t told) {
  server::Claim claim;
  claim.seq = told & 0xf;
  claim.fields.ask_seq = claim.seq;
  // Two launches an ask at most: the asked one, and one more under its credit.
  claim.fields.stream_seq = 2 * claim.seq;
  claim.source = server::Claim::Source::kRecord;
  if ((told & 0xf0) == kToldAsk) claim.source = server::Claim::Source::kAsk;
  if ((told & 0xf0) == kToldWithdrawal) claim.source = server::Claim::Source::kWithdrawal;
  claim.fields.admission = wire::Admission::SELF_STARVED;
  if ((told & 0xf0) == kToldAsk) claim.fields.admission = wire::Admission::ASK;
  if ((told & 0xf0) == kToldCredit) {
    claim.fields.admission = wire::Admission::CREDIT;
    claim.fields.ask_seq = 0;
    ++claim.fields.stream_seq;
  }
  return claim;
}

inline Books books_of(const Ghost& ghost) {
  Books books;
  for (uint8_t i = 0; i < ghost.claims; ++i) {
    if ((ghost.claim[i] & 0xf0) == kGrantMade) {
      books.intake.granted(0);
      ++books.launches;  // in flight since the grant
      continue;
    }
    for (const core::Event& event : books.intake.take(claim_of(ghost.claim[i]), false)) {
      if (event.kind == core::EventKind::kPosted) ++books.launches;
    }
  }
  if (books.intake.malformed() != 0) throw Violation{"an honest client was not believed"};
  return books;
}

inline void tell(Ghost& ghost, uint8_t told) {
  if (running.stopped) return;  // thrown away in any case, and there need not be room for it
  if (ghost.claims == ghost.claim.size()) throw Violation{"model: too many claims"};
  ghost.claim[ghost.claims++] = told;
}

// ---- the processes ------------------------------------------------------------------------------

inline const Budget* budget;
inline Mutation mutation;

// What a grant says, so that the grant of another ask, or half of one, shows.
inline uint32_t credit_of(uint32_t session, uint32_t seq) { return 16 * (session + 1) + seq; }
inline uint32_t epoch_of(uint32_t session, uint32_t seq) { return 64 * (session + 1) + seq; }

// Client: what its registers are.
enum ClientRegister : uint8_t { kSeq, kSession, kDetached, kLate, kSeenNap, kRungNap };
enum SeenNap : uint8_t { kThisNap = 1, kEarlierNap };
enum ClientAt : uint8_t {
  kAsk,
  kBell,
  kRing,
  kWait,
  kTake,
  kClose,
  kPostCredit,
  kSleep,
  kWithdraw,
  kPostSelf,
  kBellSelf,
  kRingSelf,
  kUnmanaged,
  kDone
};
// Daemon. Its registers: per client the last ask seen and the ring's cursor, what the pass found.
enum DaemonRegister : uint8_t { kAsked0, kCursor0 = 2, kFound = 4, kPass, kGone, kOpen };
enum DaemonAt : uint8_t {  // twice, for the two clients, but the last ones
  kPoll0,
  kPoll1,
  kGrant0,
  kGrant1,
  kWake0,
  kWake1,
  kDrowse0,
  kDrowse1,
  kNap,
  kRise0,
  kRise1
};

inline void slot_ask_step(Block& block, uint32_t seq) {
  const auto build = [&](Record& record) {
    record.a.store(seq, std::memory_order_relaxed);
    record.b.store(seq, std::memory_order_relaxed);
  };
  if (mutation != Mutation::kAskNotFenced) return ipc::slot_ask(block, seq, build);
  build(block.ask_record);
  block.ask_word.store(ipc::pack_ask(ipc::AskState::kAsked, seq), std::memory_order_release);
}

inline bool slot_poll_step(const Block& block, uint32_t last, uint32_t& seq, std::byte* copy) {
  if (mutation != Mutation::kPollLooksOnce) return ipc::slot_poll(block, last, seq, copy);
  const uint64_t word = block.ask_word.load(std::memory_order_seq_cst);
  seq = static_cast<uint32_t>(word);
  if (word != ipc::pack_ask(ipc::AskState::kAsked, seq) || seq == last) return false;
  copy_ask(block.ask_record, copy);
  return true;
}

inline bool slot_answer_step(const Block& block, Slot& slot, uint32_t seq,
                             const ipc::Grant& grant) {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  constexpr auto kFenced = std::memory_order_seq_cst;
  if (mutation == Mutation::kAnswerBeforeFields) {
    slot.granted.store(seq, kFenced);
    slot.credit_us.store(grant.credit_us, kRelaxed);
    slot.epoch.store(grant.epoch, kRelaxed);
    return block.waiting.load(kFenced) != 0;
  }
  if (mutation == Mutation::kLookBeforeAnswer) {
    slot.credit_us.store(grant.credit_us, kRelaxed);
    slot.epoch.store(grant.epoch, kRelaxed);
    const bool waits = block.waiting.load(kFenced) != 0;
    slot.granted.store(seq, kFenced);
    return waits;
  }
  ipc::slot_answer(slot, seq, grant);
  if (mutation != Mutation::kAnswerNotFenced) fence();
  return ipc::slot_sleeps(block);
}

// The ring's records are in the ghost: its words say how many of them count.
inline std::byte ring_memory[ipc::kRingRecords][ipc::kRecordBytes];

inline void push(Ghost& ghost, Block& block, const Slot& slot, uint8_t told) {
  Ghost written = ghost;
  uint32_t tail_seen = 0;  // far from half full, the ring is not looked at
  const bool pushed = ipc::ring_push(
      block.ring_head, slot.ring_tail, tail_seen, ring_memory,
      [&](std::byte*) { written.record[written.posted++ % written.record.size()] = told; });
  expect(pushed, "the ring is full");
  ghost = written;
}

struct Client {
  State& state;
  Process& self;
  int index;

  uint8_t& reg(ClientRegister r) { return self.registers[r]; }
  Ghost& ghost() { return state.ghosts[reg(kSession)][static_cast<size_t>(index)]; }
  Block block() { return block_of(reg(kSession), index); }
  Slot slot() { return slot_of(reg(kSession), index); }
  void next() {
    self.at = reg(kSeq) < budget->asks[static_cast<size_t>(index)] ? kAsk : kDone;
    reg(kLate) = 0;
  }

  // Carries the action in hand one access further; what follows the last access is done with it.
  void step() {
    Block b = block();
    Slot s = slot();
    const auto seq = static_cast<uint8_t>(reg(kSeq) + (self.at == kAsk ? 1 : 0));
    switch (self.at) {
      case kAsk:
        if (reg(kDetached) != 0 && self.reads == 0) {  // nobody to ask
          reg(kSeq) = seq;
          running.moved = true;
          return next();
        }
        slot_ask_step(b, seq);
        reg(kSeq) = seq;
        self.at = kBell;
        return;
      case kBell:
      case kBellSelf: {
        bool ring = load(place_of(reg(kSession), index, kSleeping)) != 0;
        if (ring) {
          load(place_of(reg(kSession), index, kNaps));
          ring = reg(kRungNap) == 0;
          if (ring) reg(kSeenNap) = kThisNap;
        }
        self.at = static_cast<uint8_t>(self.at == kBell ? (ring ? kRing : kWait)
                                                        : (ring ? kRingSelf : kUnmanaged));
        return;
      }
      case kRing:
      case kRingSelf:
        if (self.stored != 0) return stop();
        if (reg(kSession) == state.session) state.doorbell = 1;
        reg(kRungNap) = std::exchange(reg(kSeenNap), 0) == kThisNap;
        running.moved = true;
        self.at = self.at == kRing ? kWait : kUnmanaged;
        return;
      case kWait: {
        const bool granted = ipc::slot_granted(s, seq);
        self.at = granted ? kTake : reg(kLate) != 0 || reg(kDetached) != 0 ? kWithdraw : kSleep;
        return;
      }
      case kSleep:
        ipc::slot_sleep(b, s, seq, [&](uint32_t seen) {
          sleep_on(s.granted.place, static_cast<uint16_t>(seen));
        });
        self.at = kWait;
        return;
      case kTake: {
        const ipc::Grant grant = ipc::slot_grant(s);
        expect(grant.credit_us == credit_of(reg(kSession), seq) &&
                   grant.epoch == epoch_of(reg(kSession), seq),
               "a grant is not whole, or of another ask");
        ++ghost().launches;
        self.at = kClose;
        return;
      }
      case kClose:
        ipc::slot_close(b, seq);
        self.at = kPostCredit;
        if (seq % 2 == 0) next();
        return;
      case kPostCredit:  // a second launch under the credit of the grant
        push(ghost(), b, s, static_cast<uint8_t>(kToldCredit | seq));
        ++ghost().launches;
        self.at = kBellSelf;
        return;
      case kWithdraw:
        ipc::slot_withdraw(b, seq);
        self.at = kPostSelf;
        return;
      case kPostSelf:
        if (mutation != Mutation::kSelfNotReported) {
          push(ghost(), b, s, static_cast<uint8_t>(kToldSelf | seq));
        } else {
          running.moved = true;
        }
        ++ghost().launches;
        self.at = kBellSelf;
        return;
      case kUnmanaged:
        running.moved = true;
        return next();
      default:
        return stop();
    }
  }
};

struct Daemon {
  State& state;
  Process& self;

  uint8_t& reg(int r) { return self.registers[r]; }
  bool gone(int client) { return (reg(kGone) >> client & 1) != 0; }
  Ghost& ghost(int client) { return state.ghosts[state.session][static_cast<size_t>(client)]; }

  // As Client::collect does: the ask, whether it was withdrawn, the ring; then by time.
  void poll(int client) {
    const Block block = block_of(state.session, client);
    Slot slot = slot_of(state.session, client);
    uint8_t told[8];
    size_t count = 0;
    alignas(8) std::byte copy[ipc::kRecordBytes];
    uint32_t seq = 0;
    uint8_t asked = reg(kAsked0 + client);
    if (slot_poll_step(block, asked, seq, copy)) {
      uint32_t words[2];
      std::memcpy(words, copy, sizeof words);
      expect(words[0] == seq && words[1] == seq, "the record of another ask");
      asked = static_cast<uint8_t>(seq);
      told[count++] = static_cast<uint8_t>(kToldAsk | seq);
    }
    const uint32_t open = books_of(ghost(client)).intake.open_ask(0);
    const bool withdrawn = open != 0 && ipc::slot_withdrawn(block, open);
    uint32_t cursor = reg(kCursor0 + client);
    ipc::ring_drain(block.ring_head, slot.ring_tail, cursor, ring_memory, [&](const std::byte*) {
      told[count++] = ghost(client).record[(cursor - 1) % 8];
    });
    const auto time = [](uint8_t t) { return 4 * (t & 0xf) + (t >> 4 == kToldAsk >> 4 ? 0 : 1); };
    std::stable_sort(told, told + count, [&](uint8_t a, uint8_t b) { return time(a) < time(b); });
    if (withdrawn) told[count++] = static_cast<uint8_t>(kToldWithdrawal | open);
    for (size_t i = 0; i < count; ++i) tell(ghost(client), told[i]);
    reg(kAsked0 + client) = asked;
    reg(kCursor0 + client) = static_cast<uint8_t>(cursor);
    if (count != 0) reg(kFound) = 1;
  }

  bool open(int client) { return !gone(client) && books_of(ghost(client)).intake.open_ask(0) != 0; }

  void after_polls() {
    const bool found = reg(kFound) != 0 || reg(kOpen) != 0;
    reg(kFound) = reg(kOpen) = 0;
    if (found) {
      self.at = kGrant0;
    } else {
      self.at = reg(kPass) == 0 ? kDrowse0 : kNap;
    }
  }

  // A daemon that said it sleeps and found something, or was woken, says that it is up.
  void loop() {
    self.at = reg(kPass) != 0 ? kRise0 : kPoll0;
    reg(kPass) = 0;
  }

  // Of a nap's number only counts whether a client has this one's, so the client's registers are
  // told when it changes; nothing is stored between that and the seq_cst store behind it.
  void begin_nap(int client) {
    const bool made_before = running.at < self.reads;
    store(place_of(state.session, client, kNaps), 1, std::memory_order_seq_cst);
    Process& other = state.processes[static_cast<size_t>(client)];
    if (made_before || mutation == Mutation::kNapsAlike || gone(client)) return;
    if (other.registers[kSession] != state.session) return;
    other.registers[kRungNap] = 0;
    if (other.registers[kSeenNap] == kThisNap) other.registers[kSeenNap] = kEarlierNap;
  }

  void skip(uint8_t to) {
    running.moved = true;
    self.at = to;
  }

  void step() {
    const int client = self.at == kNap ? 0 : self.at % 2;
    switch (self.at) {
      case kPoll0:
      case kPoll1:
        if (!gone(client)) poll(client);
        running.moved = true;
        self.at = kPoll1;
        if (client == 1) after_polls();
        return;
      case kGrant0:
      case kGrant1: {
        if (!open(client)) {
          running.moved = true;
          if (client == 1) return loop();
          self.at = kGrant1;
          return;
        }
        Slot slot = slot_of(state.session, client);
        const uint32_t seq = books_of(ghost(client)).intake.open_ask(0);
        const bool wake =
            slot_answer_step(block_of(state.session, client), slot, seq,
                             {credit_of(state.session, seq), epoch_of(state.session, seq)});
        tell(ghost(client), kGrantMade);
        ++ghost(client).grants;
        if (wake) {
          self.at = static_cast<uint8_t>(kWake0 + client);
        } else if (client == 0) {
          self.at = kGrant1;
        } else {
          loop();
        }
        return;
      }
      case kWake0:
      case kWake1: {
        if (self.stored != 0) return stop();
        running.moved = true;
        uint8_t& asleep = state.processes[static_cast<size_t>(client)].asleep;
        if (asleep == 1) asleep = 2;
        if (client == 1) return loop();
        self.at = kGrant1;
        return;
      }
      case kDrowse0:
      case kDrowse1:
        begin_nap(client);
        store(place_of(state.session, client, kSleeping), 1, std::memory_order_seq_cst);
        reg(kPass) = 1;
        self.at = client == 0 ? kDrowse1 : kPoll0;
        return;
      case kNap:
        if (state.doorbell == 0) return stop();
        state.doorbell = 0;
        running.moved = true;
        return loop();
      case kRise0:
      case kRise1:
        store(place_of(state.session, client, kSleeping), 0, std::memory_order_seq_cst);
        self.at = client == 0 ? kRise1 : kPoll0;
        return;
      default:
        return stop();
    }
  }
};

}  // namespace heddle::slot_model
