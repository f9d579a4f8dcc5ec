// Device memory: how limits are written, the daemon's accounts, the shim's table.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "daemon/server/memory.h"
#include "daemon/server/messages.h"
#include "shim/link/messages.h"
#include "shim/memory/table.h"

namespace heddle::server {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGiB = uint64_t{1} << 30;

TEST(MemoryAmount, IsReadAsAdministratorsWriteIt) {
  EXPECT_EQ(ipc::parse_memory("20GiB")->bytes, 20 * kGiB);
  EXPECT_EQ(ipc::parse_memory("1.5GiB")->bytes, 3 * kGiB / 2);
  EXPECT_EQ(ipc::parse_memory("512MiB")->of(kGiB), 512 * kMiB);
  EXPECT_EQ(ipc::parse_memory("25%")->of(80 * kGiB), 20 * kGiB);
  for (const char* bad : {"", "20", "20GB", "GiB", "0GiB", "-1GiB", "101%", "1KiB", "1..5GiB", "%",
                          "20 GiB", "9999999TiB"}) {
    EXPECT_FALSE(ipc::parse_memory(bad)) << bad;
  }
}

TEST(MemoryRule, IsReadAndRefusedWithPlaceAndRemedy) {
  const auto good = parse_config(
      "[gpu]\ncontext_memory = \"500MiB\"\n[[rule]]\nname = \"t\"\nmemory = \"25%\"\n"
      "memory_per = \"container\"\n",
      "f");
  ASSERT_TRUE(good) << good.error().message;
  EXPECT_EQ(good->context_memory, 500 * kMiB);
  EXPECT_EQ(good->rules.at(0).terms.memory, "25%");
  EXPECT_EQ(good->rules.at(0).terms.memory_per, MemoryPer::kContainer);
  const auto error = [](const std::string& keys) {
    const auto config = parse_config("[[rule]]\n" + keys, "f");
    return config ? "" : config.error().message;
  };
  EXPECT_EQ(error("memory = 20"), "f:2: rule.memory must be a string in quotes");
  EXPECT_EQ(error("memory = \"20GB\""),
            "f:2: rule.memory must be an amount in quotes, such as \"20GiB\", \"512MiB\" or "
            "\"25%\" of the GPU");
  EXPECT_EQ(error("memory = \"1GiB\"\nmemory_per = \"pod\""),
            "f:3: rule.memory_per must be \"rule\" or \"client\" or \"user\" or \"label\" or "
            "\"cgroup\" or \"container\"");
  EXPECT_EQ(error("priority = 3\nmemory_per = \"user\""),
            "f:3: rule.memory_per must be left out, or beside memory, the limit that it is about");
}

// A need as the shim writes it, and what no shim writes.
TEST(MemoryNeed, IsDecodedAndChecked) {
  const auto decode = [](const shim::MemoryNeed& need) {
    shim::Packet packet;
    shim::build_need(packet, need);
    return decode_message(packet.span());
  };
  const auto message = decode({3, 7, 5 * kGiB, true});
  ASSERT_TRUE(message);
  const auto& need = std::get<MemoryNeed>(*message);
  EXPECT_EQ(need.device, 3u);
  EXPECT_EQ(need.number, 7u);
  EXPECT_EQ(need.bytes, 5 * kGiB);
  EXPECT_TRUE(need.release);
  EXPECT_FALSE(decode({ipc::kDevices, 1, kMiB, false}));
  EXPECT_FALSE(decode({0, 1, ~uint64_t{0}, false}));
}

// Clients whose use is what a test says.
class Memory : public ::testing::Test {
 protected:
  void join(core::ClientId id, uint64_t held = 0, const char* group = "team",
            const char* limit = "1GiB") {
    MemoryAccounts::Bytes total{}, holds{};
    total[0] = 8 * kGiB;
    holds[0] = held;
    used_[id] = held;
    accounts_.join(id, same_numbers(), total, holds);
    accounts_.set_limits(id, {{group, *ipc::parse_memory(limit)}});
  }
  // What a shim does: asks, and uses it if it may.
  ipc::MemoryVerdict allocate(core::ClientId id, uint64_t bytes) {
    if (used_[id] + bytes <= accounts_.view(id, 0).granted) {
      used_[id] += bytes;
      return ipc::kMemoryGranted;
    }
    const auto verdict = accounts_.need(id, 0, used_[id] + bytes);
    if (verdict == ipc::kMemoryGranted) used_[id] += bytes;
    return verdict;
  }
  void give_back(core::ClientId id) { accounts_.release(id, 0, used_[id]); }
  // Those with slack beside `id` are asked for it; how many did not give it back in time.
  int ask_others(core::ClientId id, core::TimeNs now) {
    int taken = 0;
    for (const auto& [other, device] : accounts_.with_slack(id, 0)) {
      taken += accounts_.ask_back(other, device, now) ? 1 : 0;
    }
    return taken;
  }

  std::map<core::ClientId, uint64_t> used_;
  MemoryAccounts accounts_{
      0, [this](core::ClientId id, uint32_t device) { return device == 0 ? used_[id] : 0; }};
};

TEST_F(Memory, LimitHoldsForAllOfAGroupTogether) {
  join(1);
  join(2);
  EXPECT_EQ(allocate(1, 600 * kMiB), ipc::kMemoryGranted);
  EXPECT_EQ(allocate(2, 600 * kMiB), ipc::kMemoryRefused);
  EXPECT_EQ(allocate(2, 300 * kMiB), ipc::kMemoryGranted);
}

TEST_F(Memory, WhatIsParkedCountsForNoLimitUntilItIsBack) {
  join(1, 600 * kMiB);
  join(2);
  join(3, kGiB, "other");
  const auto parked = [](core::ClientId id) { return id == 1; };
  const auto nobody = [](core::ClientId) { return false; };
  EXPECT_TRUE(accounts_.share_limit(1, 2));
  EXPECT_FALSE(accounts_.share_limit(2, 3));
  EXPECT_EQ(allocate(2, 600 * kMiB), ipc::kMemoryRefused);
  EXPECT_FALSE(accounts_.fits_without(2, 0, 600 * kMiB, nobody));
  EXPECT_TRUE(accounts_.fits_without(2, 0, 600 * kMiB, parked));
  EXPECT_FALSE(accounts_.fits_without(2, 0, 1100 * kMiB, parked));
  accounts_.set_away(1, true);
  EXPECT_EQ(accounts_.groups().at(1).used, 0u);
  EXPECT_EQ(allocate(2, 600 * kMiB), ipc::kMemoryGranted);
  EXPECT_EQ(accounts_.views()[std::pair(core::ClientId{2}, 0u)].others, 0u);
  EXPECT_FALSE(accounts_.fits_back(1, nobody));
  EXPECT_TRUE(accounts_.fits_back(1, [](core::ClientId id) { return id == 2; }));
  used_[2] = 0;
  give_back(2);
  EXPECT_TRUE(accounts_.fits_back(1, nobody));
  accounts_.set_away(1, false);
  EXPECT_EQ(allocate(2, 600 * kMiB), ipc::kMemoryRefused);
}

TEST_F(Memory, GroupsKnowNothingOfEachOther) {
  join(1, 0, "one");
  join(2, 0, "two");
  EXPECT_EQ(allocate(1, kGiB), ipc::kMemoryGranted);
  EXPECT_EQ(allocate(2, kGiB), ipc::kMemoryGranted);
}

TEST_F(Memory, GrantsAChunkAheadSoThatMostAllocationsAskNothing) {
  join(1);
  EXPECT_EQ(allocate(1, kMiB), ipc::kMemoryGranted);
  EXPECT_GT(accounts_.view(1, 0).granted, 8 * kMiB);
}

TEST_F(Memory, LastByteOfALimitCanBeHad) {
  join(1);
  join(2);
  uint64_t all = 0;
  while (allocate(1 + all % 2, 5 * kMiB) == ipc::kMemoryGranted) all += 5;
  for (core::ClientId id : {1, 2}) give_back(id);
  const uint64_t left = kGiB - used_[1] - used_[2];
  EXPECT_EQ(allocate(2, left), ipc::kMemoryGranted);
  EXPECT_EQ(allocate(1, 1), ipc::kMemoryRefused);
}

TEST_F(Memory, UnusedMemoryOfOthersIsAskedFor) {
  join(1);
  join(2);
  EXPECT_EQ(allocate(1, 500 * kMiB), ipc::kMemoryGranted);
  used_[1] = 100 * kMiB;  // freed, and kept
  EXPECT_EQ(allocate(2, 900 * kMiB), ipc::kMemoryRetry);
  EXPECT_EQ(accounts_.with_slack(2, 0).at(0).first, 1u);
  give_back(1);
  EXPECT_EQ(allocate(2, 900 * kMiB), ipc::kMemoryGranted);
}

TEST_F(Memory, MemoryNotGivenBackInTimeIsTaken) {
  join(1);
  join(2);
  EXPECT_EQ(allocate(1, 500 * kMiB), ipc::kMemoryGranted);
  used_[1] = 100 * kMiB;
  EXPECT_EQ(allocate(2, 900 * kMiB), ipc::kMemoryRetry);
  const core::TimeNs begin = 7'000'000'000;
  EXPECT_EQ(ask_others(2, begin), 0);
  EXPECT_EQ(ask_others(2, begin + MemoryAccounts::kGiveBackNs - 1), 0);
  EXPECT_EQ(allocate(2, 900 * kMiB), ipc::kMemoryRetry);
  EXPECT_EQ(accounts_.need(1, 0, 100 * kMiB), ipc::kMemoryGranted) << "no way to keep it";
  accounts_.release(1, 0, 400 * kMiB);
  EXPECT_EQ(ask_others(2, begin + MemoryAccounts::kGiveBackNs), 1);
  EXPECT_EQ(accounts_.view(1, 0).granted, 100 * kMiB);
  EXPECT_EQ(allocate(2, 900 * kMiB), ipc::kMemoryGranted);
}

// At an attach a client may say anything; the shim of one that holds memory shows it at once.
TEST_F(Memory, AClaimAtTheAttachIsBoundedAndNeedsToBeUsed) {
  join(1, uint64_t{1} << 47);
  join(2);
  EXPECT_EQ(accounts_.groups().at(0).granted, kGiB);
  used_[1] = 0;
  EXPECT_EQ(allocate(2, kGiB), ipc::kMemoryRetry);
  EXPECT_EQ(ask_others(2, 1), 0);
  EXPECT_EQ(ask_others(2, 1 + MemoryAccounts::kGiveBackNs), 1);
  EXPECT_EQ(allocate(2, kGiB), ipc::kMemoryGranted);
  join(3, 300 * kMiB);
  used_[2] = 800 * kMiB;
  EXPECT_EQ(ask_others(3, 1), 0);
  EXPECT_EQ(ask_others(3, 1 + MemoryAccounts::kGiveBackNs), 1);
  EXPECT_EQ(allocate(2, kMiB), ipc::kMemoryRefused) << "800 and 300 are in use";
}

// A shim counts what its graphs and pools have grown by before it asks.
TEST_F(Memory, UsedMemoryCountsWhateverWasGranted) {
  join(1);
  join(2);
  used_[1] = 900 * kMiB;
  EXPECT_EQ(allocate(2, 200 * kMiB), ipc::kMemoryRefused);
}

TEST_F(Memory, AnEndingClientGivesItsMemoryBack) {
  join(1, kGiB);
  join(2);
  EXPECT_EQ(allocate(2, kMiB), ipc::kMemoryRefused);
  accounts_.leave(1);
  EXPECT_EQ(allocate(2, kGiB), ipc::kMemoryGranted);
}

TEST_F(Memory, LoweredLimitTakesNothingAwayAndGivesNothingMore) {
  join(1, 800 * kMiB);
  accounts_.set_limits(1, {{"team", *ipc::parse_memory("512MiB")}});
  EXPECT_EQ(accounts_.view(1, 0).granted, 800 * kMiB);
  EXPECT_EQ(allocate(1, 1), ipc::kMemoryRefused);
  used_[1] = 400 * kMiB;
  give_back(1);
  EXPECT_EQ(allocate(1, 112 * kMiB), ipc::kMemoryGranted);
  EXPECT_EQ(allocate(1, 1), ipc::kMemoryRefused);
}

TEST_F(Memory, TwoLimitsBothHold) {
  join(1);
  accounts_.set_limits(
      1, {{"team", *ipc::parse_memory("1GiB")}, {"run", *ipc::parse_memory("256MiB")}});
  EXPECT_EQ(accounts_.view(1, 0).limit, 256 * kMiB);
  EXPECT_EQ(allocate(1, 300 * kMiB), ipc::kMemoryRefused);
  EXPECT_EQ(allocate(1, 256 * kMiB), ipc::kMemoryGranted);
  join(2, 900 * kMiB);
  EXPECT_EQ(accounts_.view(1, 0).others, 900 * kMiB);
}

TEST_F(Memory, ContextsCountByTheSettingForThem) {
  MemoryAccounts accounts(500 * kMiB, [](core::ClientId, uint32_t) { return 0; });
  MemoryAccounts::Bytes total{};
  total[0] = 8 * kGiB;
  for (core::ClientId id : {1, 2}) {
    accounts.join(id, same_numbers(), total, {});
    accounts.set_limits(id, {{"team", *ipc::parse_memory("2GiB")}});
  }
  EXPECT_EQ(accounts.need(1, 0, 1100 * kMiB), ipc::kMemoryRefused);
  EXPECT_EQ(accounts.need(1, 0, 1000 * kMiB), ipc::kMemoryGranted);
  EXPECT_EQ(accounts.groups().at(0).used, 1000 * kMiB);
}

TEST_F(Memory, AccountsOfAllAreThoseOfEach) {
  join(1, 100 * kMiB);
  join(2, 200 * kMiB);
  join(3, 300 * kMiB, "others");
  const auto views = accounts_.views();
  ASSERT_EQ(views.size(), 3u);
  for (core::ClientId id : {1, 2, 3}) {
    const auto one = accounts_.view(id, 0);
    const auto& of_all = views.at({id, 0});
    EXPECT_EQ(one.limit, of_all.limit);
    EXPECT_EQ(one.others, of_all.others);
    EXPECT_EQ(one.granted, of_all.granted);
  }
}

// What the rule says decides who shares its limit.
TEST(MemoryGroups, AreWhomTheRuleHoldsTogether) {
  Identity who;
  who.id = 7;
  who.uid = 1000;
  who.rule = "teams";
  who.label = "red";
  who.cgroup = "/kubepods/pod1/" + std::string(64, 'a');
  who.terms.memory = "20GiB";
  const auto group = [&](MemoryPer per) {
    who.terms.memory_per = per;
    return memberships_of(who).at(0).group;
  };
  EXPECT_EQ(group(MemoryPer::kRule), "rule teams");
  EXPECT_EQ(group(MemoryPer::kClient), "rule teams, client 7");
  EXPECT_EQ(group(MemoryPer::kUser), "rule teams, uid 1000");
  EXPECT_EQ(group(MemoryPer::kLabel), "rule teams, label red");
  EXPECT_EQ(group(MemoryPer::kContainer), "rule teams, container " + std::string(64, 'a'));
  who.memory_asked = "1GiB";
  who.run = "12.3";
  EXPECT_EQ(memberships_of(who).at(1).group, "run 1000:12.3");
  who.run.clear();
  EXPECT_EQ(memberships_of(who).at(1).group, "client 7");
}

}  // namespace
}  // namespace heddle::server

namespace heddle::shim {
namespace {

// Against std::map, with few distinct hashes' worth of room, so that runs of places are long.
TEST(HoldingTable, FindsWhatWasAddedAndNothingElse) {
  const auto seed = static_cast<unsigned>(::testing::UnitTest::GetInstance()->random_seed());
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  HoldingTable table;
  std::map<uint64_t, uint64_t> expected;
  for (int step = 0; step < 200'000; ++step) {
    const uint64_t key = random() % 3000 * 0x200000;
    if (random() % 2 == 0) {
      table.add(Holds::kPointer, key)->bytes = expected[key] = random();
    } else if (Holding* held = table.find(Holds::kPointer, key)) {
      ASSERT_EQ(held->bytes, expected.at(key));
      table.remove(held);
      expected.erase(key);
    } else {
      ASSERT_EQ(expected.count(key), 0u);
    }
    ASSERT_EQ(table.size(), expected.size());
  }
  for (const auto& [key, bytes] : expected) {
    ASSERT_NE(table.find(Holds::kPointer, key), nullptr);
    EXPECT_EQ(table.find(Holds::kPointer, key)->bytes, bytes);
    EXPECT_EQ(table.find(Holds::kArray, key), nullptr);
  }
  table.remove_if([](const Holding& holding) { return holding.bytes % 2 == 0; });
  for (const auto& [key, bytes] : expected) {
    EXPECT_EQ(table.find(Holds::kPointer, key) == nullptr, bytes % 2 == 0);
  }
}

}  // namespace
}  // namespace heddle::shim
