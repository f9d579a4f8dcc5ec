#include "bench/sim/owner.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstring>

namespace heddle::sim {

namespace {

// Before an event the owner looks at the rings instead of sleeping: waking up costs about as much.
constexpr int64_t kSpinNs = 30'000;

// For as long as a meeting lasts that nobody else comes to.
constexpr TimeNs kMeetNs = TimeNs{1} << 50;

constexpr const char* kEntryNames[] = {
#define HEDDLE_ENTRY(name) #name,
#include "shim/driver/entry_points.inc"
#undef HEDDLE_ENTRY
};
static_assert(std::size(kEntryNames) <= std::size(ClientRegion{}.unsupported));

uint64_t tag_of(size_t client, uint16_t stream) { return uint64_t{client} << 16 | stream; }

void fill(char* to, const Command& command) {
  for (uint64_t at = 0; at + command.width <= command.bytes; at += command.width) {
    memcpy(to + at, &command.value, command.width);
  }
}

}  // namespace

Owner::Owner(const GpuConfig& config, int listener, FILE* log)
    : gpu_(config), listener_(listener), log_(log) {}

void Owner::run(int64_t linger_ns) {
  empty_since_ = monotonic_ns();
  for (;;) {
    collect();
    const TimeNs now = monotonic_ns();
    execute_until(now);
    if (clients_.empty() && now - empty_since_ > linger_ns) return;
    TimeNs wake = std::min(gpu_.next_event(), next_order());
    if (clients_.empty()) wake = empty_since_ + linger_ns + 1;
    if (wake - monotonic_ns() > kSpinNs) sleep_until(wake);
  }
}

// Takes what clients published, in the order of their clocks. True if there was anything.
bool Owner::collect() {
  incoming_.clear();
  for (auto& client : clients_) {
    ClientRegion& region = client->region();
    const uint32_t head = region.head.load(std::memory_order_acquire);
    // A head that ran ahead of the ring is a broken client: what it wrote is gone, so is the rest.
    if (head - client->taken > kWireRing) client->taken = head - kWireRing;
    for (; client->taken != head; ++client->taken) {
      incoming_.push_back({client.get(), region.ring[client->taken % kWireRing]});
    }
    region.tail.store(head, std::memory_order_release);
  }
  std::stable_sort(incoming_.begin(), incoming_.end(), [](const Incoming& a, const Incoming& b) {
    return a.command.submitted_ns < b.command.submitted_ns;
  });
  return !incoming_.empty();
}

// Submits what was collected at the times of submission and moves the model to `now`. A late
// wake-up therefore delays only the news of a completion, never the kernels behind it.
void Owner::execute_until(TimeNs now) {
  for (const Incoming& incoming : incoming_) {
    const TimeNs at = std::clamp<TimeNs>(incoming.command.submitted_ns, gpu_.now(), now);
    advance(at);
    submit(*incoming.client, incoming.command);
  }
  incoming_.clear();
  advance(std::max(now, gpu_.now()));
}

void Owner::advance(TimeNs to) {
  for (TimeNs next = next_order(); next <= to; next = next_order()) {
    gpu_.advance(next, notices_);
    handle_notices();
    step_order();
  }
  gpu_.advance(to, notices_);
  handle_notices();
}

void Owner::submit(OwnerClient& client, const Command& command) {
  if (command.stream == kOrders) return take_order(client, command);
  if (command.stream >= kWireStreams || command.after_stream >= kWireStreams) return;
  if (command.kind == CommandKind::kOpenStream) return open_slot(client, command);
  OwnerClient::Slot& slot = client.slot(command.stream);
  if (!slot.open) return;
  Op op;
  op.tag = tag_of(client.index(), command.stream);
  op.priority = command.priority;
  if (command.kind == CommandKind::kKernel || command.kind == CommandKind::kMeet) {
    op.kind = OpKind::kKernel;
    op.kernel = command.kernel;
    if (command.groups != kAllGroups)
      op.place = {ipc::SmSet(command.groups), ipc::SmCount(sms_of(command.groups))};
    if (command.kind == CommandKind::kMeet) op.kernel.block_ns = kMeetNs;
    if (gpu_.blocks_per_sm(op.kernel) == 0) op.kernel = {};
  }
  // By a copy engine, whose channels are not switched off.
  if (command.kind == CommandKind::kCopy) op.kind = OpKind::kDelay;
  const OwnerClient::Slot& after = client.slot(command.after_stream);
  if (command.after_seq > 0 && after.open) op.after = {after.model, command.after_seq + after.base};
  slot.work.push_back({command});
  gpu_.submit(gpu_.now(), slot.model, op);
}

void Owner::open_slot(OwnerClient& client, const Command& command) {
  OwnerClient::Slot& slot = client.slot(command.stream);
  if (slot.open) gpu_.close_stream(gpu_.now(), slot.model);
  slot.open = true;
  slot.model = gpu_.open_stream(client.index(), command.priority);
  slot.base = gpu_.issued(slot.model) - command.seq;
  slot.work.clear();
}

void Owner::handle_notices() {
  for (const Notice& notice : notices_) finish(notice);
  notices_.clear();
}

void Owner::finish(const Notice& notice) {
  const auto owner = std::find_if(clients_.begin(), clients_.end(), [&](const auto& client) {
    return client->index() == notice.client;
  });
  if (owner == clients_.end()) return;
  OwnerClient& client = **owner;
  const auto stream = static_cast<uint16_t>(notice.tag);
  OwnerClient::Slot& slot = client.slot(stream);
  if (slot.work.empty()) return;
  if (notice.kind == Notice::kStarted) {
    slot.work.front().start = notice.at;
    if (slot.work.front().command.kind == CommandKind::kMeet) meet(client, slot);
    return;
  }
  const OwnerClient::Executing done = slot.work.front();
  slot.work.pop_front();
  apply(client, done.command);
  ClientRegion& region = client.region();
  if (done.command.timing < kWireTimings) {
    region.timings[done.command.timing].store(notice.at, std::memory_order_relaxed);
  }
  if (done.command.kind == CommandKind::kKernel || done.command.kind == CommandKind::kMeet) {
    log_kernel(client, done, notice.at);
  }
  StreamWords& words = region.streams[stream];
  words.done.store(done.command.seq);
  words.wake.fetch_add(1);
  if (words.waiting.load() > 0) futex_wake(words.wake);
}

// The last to come lets all of them go.
void Owner::meet(OwnerClient& client, const OwnerClient::Slot& slot) {
  const Command& command = slot.work.front().command;
  std::vector<Guest>& guests = meetings_[command.value];
  guests.push_back({client.index(), slot.model});
  if (guests.size() < command.bytes) return;
  for (const Guest& guest : guests) gpu_.end_kernel(guest.stream);
  meetings_.erase(command.value);
}

// Effects happen at completion, in stream order: what a copy or a kernel reads is what the
// operations before it in its stream left there.
void Owner::apply(OwnerClient& client, const Command& command) {
  if (command.kind == CommandKind::kKernel && command.dst != kNoHeap) {
    uint64_t* state = client.word(command.dst);
    if (state != nullptr) *state = *state * kStateFactor + command.value;
    return;
  }
  if (command.kind != CommandKind::kCopy && command.kind != CommandKind::kFill) return;
  char* to = client.range(command.dst, command.bytes);
  if (to == nullptr) return;
  if (command.kind == CommandKind::kFill) {
    if (command.width > 0 && command.width <= sizeof command.value) fill(to, command);
    return;
  }
  const char* from = client.range(command.src, command.bytes);
  if (from != nullptr) memmove(to, from, command.bytes);
}

void Owner::log_kernel(OwnerClient& client, const OwnerClient::Executing& done, TimeNs end) {
  ++client.launches;
  if (log_ == nullptr) return;
  const char* name = client.region().names[done.command.name % kWireKernels];
  fprintf(
      log_,
      "{\"pid\":%d,\"label\":\"%s\",\"kernel\":\"%.63s\",\"stream\":%u,\"blocks\":%u,\"sms\":%u,"
      "\"value\":%" PRIu64 ",\"submitted_ns\":%" PRId64 ",\"start_ns\":%" PRId64
      ",\"end_ns\":%" PRId64 "}\n",
      client.pid(), client.label().c_str(), name, unsigned{done.command.stream},
      done.command.kernel.blocks, sms_of(done.command.groups), done.command.value,
      done.command.submitted_ns, done.start, end);
}

void Owner::log_exit(OwnerClient& client) {
  if (log_ == nullptr) return;
  fprintf(log_,
          "{\"pid\":%d,\"label\":\"%s\",\"exit_ns\":%" PRId64 ",\"launches\":%" PRIu64
          ",\"unsupported\":{",
          client.pid(), client.label().c_str(), monotonic_ns(), client.launches);
  const char* comma = "";
  for (size_t i = 0; i < std::size(kEntryNames); ++i) {
    const uint32_t count = client.region().unsupported[i].load(std::memory_order_relaxed);
    if (count == 0) continue;
    fprintf(log_, "%s\"%s\":%u", comma, kEntryNames[i], count);
    comma = ",";
  }
  fprintf(log_, "}}\n");
  fflush(log_);
}

void Owner::sleep_until(TimeNs wake) {
  for (auto& client : clients_) client->region().sleeping.store(1);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  // What was published before a client could see the word is found here, without a doorbell.
  const bool published = std::any_of(clients_.begin(), clients_.end(), [](const auto& client) {
    return client->region().head.load() != client->taken;
  });
  if (!published) {
    std::vector<pollfd> polled{{listener_, POLLIN, 0}};
    for (auto& client : clients_) {
      polled.push_back({client->doorbell(), POLLIN, 0});
      polled.push_back({client->pidfd(), POLLIN, 0});
      polled.push_back({client->connection(), 0, 0});
    }
    const int64_t left = std::max<int64_t>(0, wake - monotonic_ns() - kSpinNs / 2);
    const timespec timeout{left / 1'000'000'000, left % 1'000'000'000};
    ppoll(polled.data(), polled.size(), wake == kNever ? nullptr : &timeout, nullptr);
    for (size_t i = clients_.size(); i-- > 0;) {
      eventfd_t rings;
      const pollfd* const of_client = &polled[1 + 3 * i];
      if (of_client[0].revents != 0) eventfd_read(clients_[i]->doorbell(), &rings);
      if (of_client[1].revents != 0 || of_client[2].revents != 0) remove_dead(i);
    }
    if (polled[0].revents != 0) admit();
  }
  for (auto& client : clients_) client->region().sleeping.store(0, std::memory_order_relaxed);
}

void Owner::admit() {
  const int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
  if (connection < 0) return;
  const TimeNs now = std::max(gpu_.now(), monotonic_ns());
  auto client = OwnerClient::accept(connection, gpu_.config().mode);
  if (client == nullptr) return;
  // Thread percentages are MPS's.
  const bool limited = gpu_.config().mode == Mode::kMps;
  client->set_index(gpu_.add_client(limited ? client->sm_limit() : 0));
  empty_since_ = now;
  clients_.push_back(std::move(client));
}

void Owner::remove_dead(size_t which) {
  OwnerClient& client = *clients_[which];
  advance(std::max(gpu_.now(), monotonic_ns()));
  drop_orders(client);
  gpu_.remove_client(gpu_.now(), client.index());
  for (auto& [meeting, guests] : meetings_) {
    std::erase_if(guests, [&](const Guest& guest) { return guest.client == client.index(); });
  }
  log_exit(client);
  clients_.erase(clients_.begin() + static_cast<ptrdiff_t>(which));
  empty_since_ = monotonic_ns();
}

}  // namespace heddle::sim
