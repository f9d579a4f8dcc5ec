// Slices and stops: what clients order of the GPU beside its work.
#include <algorithm>

#include "bench/sim/owner.h"

namespace heddle::sim {
namespace {

constexpr uint64_t kSliceMostNs = 1'000'000'000;

TimeNs call_ns(CommandKind kind) {
  switch (kind) {
    case CommandKind::kStop:
      return facts::kStopCallNs;
    case CommandKind::kGoOn:
      return facts::kGoOnCallNs;
    default:
      return facts::kSliceCallNs;
  }
}

}  // namespace

void Owner::answer(OwnerClient& client, const Command& order) {
  StreamWords& words = client.region().streams[kOrders];
  words.done.store(order.seq);
  words.wake.fetch_add(1);
  if (words.waiting.load() > 0) futex_wake(words.wake);
}

void Owner::checkpoint(OwnerClient& client, const Command& command) {
  uint64_t said = kNobody;
  for (const auto& other : clients_) {
    if (static_cast<uint64_t>(other->pid()) != command.bytes) continue;
    std::atomic<uint32_t>& state = other->region().checkpoint;
    if (command.value != kOnlyAsk) state.store(static_cast<uint32_t>(command.value));
    if (command.value == 0) futex_wake(state);
    said = state.load() | (other->busy() ? kBusy : 0);
  }
  if (uint64_t* word = client.word(command.dst); word != nullptr) *word = said;
  answer(client, command);
}

void Owner::take_order(OwnerClient& client, const Command& command) {
  if (command.kind == CommandKind::kCheckpoint) return checkpoint(client, command);
  const TimeNs begin = std::max(gpu_.now(), orders_end_);
  orders_end_ = begin + call_ns(command.kind);
  orders_.push_back({&client, command, begin, orders_end_});
}

TimeNs Owner::next_order() const {
  if (orders_.empty()) return kNever;
  return orders_.front().begun ? orders_.front().end : orders_.front().begin;
}

void Owner::step_order() {
  Order& order = orders_.front();
  const ClientIndex client = order.client->index();
  if (!order.begun) {
    order.begun = true;
    const auto slice = static_cast<TimeNs>(std::min(order.command.value, kSliceMostNs));
    if (order.command.kind == CommandKind::kStop) gpu_.stop(order.begin, client);
    if (order.command.kind == CommandKind::kGoOn) gpu_.go_on(order.begin, client);
    if (order.command.kind == CommandKind::kSlice) gpu_.set_slice(order.begin, client, slice);
    return;
  }
  answer(*order.client, order.command);
  orders_.pop_front();
}

// Whoever waits behind them does not wait less.
void Owner::drop_orders(const OwnerClient& client) {
  std::erase_if(orders_, [&](const Order& order) { return order.client == &client; });
}

}  // namespace heddle::sim
