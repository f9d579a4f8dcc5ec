// Owners of the core, each without a scheduler.
#include <gtest/gtest.h>

#include "daemon/core/heads.h"
#include "daemon/core/learning.h"
#include "daemon/core/promises.h"

namespace heddle::core {
namespace {

Client& add(Roster& roster, ClientId id, int priority) {
  auto client = std::make_unique<Client>();
  client->id = id;
  client->rule.priority = priority;
  roster.add(std::move(client));
  return *roster.find(id);
}

LaunchBody ask_of(uint16_t thread, uint32_t ask_seq) {
  LaunchBody launch{};
  launch.thread = thread;
  launch.ask_seq = ask_seq;
  return launch;
}

TEST(Roster, ActiveClientsAreInOrderOfImportanceAndThenAsTheyCame) {
  Roster roster;
  Client &a = add(roster, 3, 5), &b = add(roster, 1, 0), &c = add(roster, 2, 5);
  for (Client* client : {&a, &b, &c}) roster.activate(*client);
  EXPECT_EQ(roster.active()[0], &b);
  EXPECT_EQ(roster.active()[1], &a);
  EXPECT_EQ(roster.ids()[0], 1u);
  EXPECT_EQ(roster.above(5).size(), 1u);
  EXPECT_EQ(roster.below(0).size(), 2u);
  b.rule.priority = 9;
  roster.move(b);
  EXPECT_EQ(roster.active()[2], &b);
  EXPECT_EQ(roster.highest_active(), 5);
  roster.remove(a);
  EXPECT_EQ(roster.find(3), nullptr);
  EXPECT_EQ(roster.active().size(), 2u);
}

TEST(Heads, AHandleIsStaleOnceItsLaunchWasReleased) {
  Heads heads;
  Client client;
  const uint32_t slot = heads.add(client, ask_of(1, 7), 1000);
  const LaunchId id = heads.id_of(slot);
  EXPECT_EQ(client.head.slot, slot);
  heads.release(slot);
  EXPECT_EQ(heads.slot_of(id), kNoHead);
  EXPECT_FALSE(client.head.any());
  EXPECT_EQ(heads.add(client, ask_of(0, 9), 2000), slot);
  EXPECT_NE(heads.id_of(slot), id);
}

TEST(Heads, TurnsOfAClientWithTwiceTheShareAreHalfAsFarApart) {
  Heads heads;
  Client one, two;
  one.known.typical_us = two.known.typical_us = 100;
  one.rule.share = 2;
  for (Client* client : {&one, &two}) {
    for (const uint32_t ticket : {1u, 2u}) {
      const uint32_t slot = heads.add(*client, ask_of(0, ticket), 1000);
      heads.take_turn(slot);
      heads.release(slot);
    }
  }
  EXPECT_EQ(one.head.turn_us * 2, two.head.turn_us);
}

TEST(Promises, OnlyThoseAboveWithAPromiseLimitALaunch) {
  Situation now{Config{}};
  Roster roster;
  GpuTime time;
  Promises promises(now, roster, time);
  Client &high = add(roster, 1, 0), &low = add(roster, 2, 9);
  roster.activate(high);
  roster.activate(low);
  EXPECT_TRUE(promises.afford(low, kUnknownKernel, 500, {}).fits);
  promises.promise(high, {1.1F});
  high.work.busy_until = 1'000'000;
  EXPECT_TRUE(promises.any());
  EXPECT_EQ(promises.afford(low, kUnknownKernel, 500, {}).victim, high.id);
  EXPECT_TRUE(promises.afford(high, kUnknownKernel, 500, {}).fits);
  promises.promise(high, {0, 1.2F});
  EXPECT_FALSE(promises.any()) << "nobody buys a part of the tail";
  EXPECT_TRUE(high.promise.tail.promised());
}

TEST(Telling, AHintIsToldOnceUntilItMovesByAPart) {
  const Situation now{Config{}};
  Telling telling(now);
  Client client;
  KernelStats stats;
  stats.duration.add(100, true, {});
  client.known.kernels.resize(1);
  client.known.kernels[0].stats = &stats;
  telling.hint(client, 0, 5);
  telling.hint(client, 0, 5);
  EXPECT_EQ(telling.decisions().size(), 1u);
  telling.hint(client, 0, 0);
  EXPECT_EQ(telling.decisions().size(), 2u);
}

}  // namespace
}  // namespace heddle::core
