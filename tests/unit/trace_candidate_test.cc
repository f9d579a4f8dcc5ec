// A candidate asked at each event of a recording.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "daemon/policy/lua_policy.h"
#include "daemon/sim/virtual.h"
#include "daemon/trace/encoder.h"
#include "daemon/trace/replay.h"

namespace heddle::trace {
namespace {

// One launch at a time, while nobody more important works.
const char* const kTurns = R"(
queue.create("q")
return policy { name = "turns", api = 1, version = "1", hooks = {
  enqueue = function(k) return queue.insert("q", k, k.priority) end,
  dispatch = function(g)
    local k = queue.peek("q")
    if not k then return IDLE, "empty" end
    if g:busy(k.priority) or g.inflight_us > 0 then return IDLE, "somebody works" end
    return RUN, k
  end } })";
const char* const kEager = R"(
return policy { name = "eager", api = 1, version = "1", hooks = {
  client_init = function(c) return GATE end, client_active = function(c) return GATE end,
  enqueue = function(k) return RUN end } })";

// Plays two clients in virtual time and writes what the core saw.
class RecordedRun : public sim::Witness {
 public:
  explicit RecordedRun(core::Policy& policy) {
    const core::Config config;
    bytes_ = Encoder::header({});
    put(encoder_.device(config, 0, true));
    put(encoder_.policy({0, 0, "turns", "turns.lua", "", {}}));
    sim::VirtualMachine machine(config, {});
    machine.set_witness(this);
    machine.set_policy(&policy);
    const size_t high = machine.add_client({.name = "high", .label = {}, .priority = 0});
    const size_t low = machine.add_client({.name = "low", .label = {}, .priority = 9});
    sim::LoopSpec loop;
    loop.launch.us = 300;
    loop.gap_us = 400;
    loop.count = 60;
    machine.loop(high, 1'000, loop);
    loop.gap_us = 20;
    machine.loop(low, 2'000, loop);
    machine.run_until(200'000'000);
  }
  void event(const core::Event& e) override { put(encoder_.event(e)); }
  void decision(const core::Decision& d) override { put(encoder_.decision(d)); }
  void lose(uint64_t count) { put(encoder_.record(LostRecord{count})); }
  std::string end() {
    const auto last = encoder_.end(records_, 0);
    return bytes_ + std::string(reinterpret_cast<const char*>(last.data()), last.size());
  }

 private:
  void put(std::span<const std::byte> record) {
    encoder_.kept();
    bytes_ += std::string(reinterpret_cast<const char*>(record.data()), record.size());
    ++records_;
  }
  Encoder encoder_;
  std::string bytes_;
  uint64_t records_ = 0;
};

std::unique_ptr<policy::LuaPolicy> lua(const char* text) {
  policy::Source source;
  source.text = text;
  source.chunk = "test.lua";
  auto loaded = policy::load_policy(source, {}, policy::virtual_time_limits());
  EXPECT_TRUE(loaded) << loaded.error().message;
  return std::move(*loaded);
}

class TraceCandidate : public ::testing::Test {
 protected:
  Result<Replayed> replay_beside(const std::string& bytes, const char* candidate) {
    auto reader = Reader::from_bytes(bytes, "made");
    if (!reader) return tl::unexpected<Error>(reader.error());
    candidate_ = {};
    candidate_.make = [this, candidate]() -> Result<core::Policy*> {
      return policies_.emplace_back(lua(candidate)).get();
    };
    const PolicySource recorded = [this](const PolicyRecord&) -> Result<core::Policy*> {
      return policies_.emplace_back(lua(kTurns)).get();
    };
    return replay(*reader, recorded, &candidate_);
  }
  core::ShadowCounts low() const {
    for (const core::ShadowOfClient& one : candidate_.reports.at(0).clients) {
      if (one.name == "low") return one.counts;
    }
    return {};
  }

  std::unique_ptr<policy::LuaPolicy> turns_ = lua(kTurns);
  RecordedRun run_{*turns_};
  Candidate candidate_;
  std::vector<std::unique_ptr<policy::LuaPolicy>> policies_;
};

TEST_F(TraceCandidate, TheRecordedPolicyItselfDecidesAlikeAndTheReplayStaysExact) {
  const auto done = replay_beside(run_.end(), kTurns);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_TRUE(done->exact);
  EXPECT_EQ(done->differing, 0u) << done->first;
  EXPECT_GT(done->leased, 50u) << "the high client's are leased";
  ASSERT_EQ(candidate_.reports.size(), 1u);
  EXPECT_EQ(candidate_.reports[0].ended, "the trace ends");
  EXPECT_EQ(low().alike, 60u);
  EXPECT_EQ(low().sooner + low().later + low().unseen, 0u);
}

TEST_F(TraceCandidate, AnotherIsComparedInTimeToo) {
  const auto done = replay_beside(run_.end(), kEager);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(done->differing, 0u) << "it changes nothing";
  EXPECT_GT(low().sooner, 20u);
  EXPECT_EQ(low().sooner + low().alike, 60u);
  EXPECT_LT(low().candidate.sum_us(), low().live.sum_us() / 4);
  ASSERT_GT(candidate_.slices.size(), 3u);
  for (size_t i = 1; i < candidate_.slices.size(); ++i) {
    EXPECT_LT(candidate_.slices[i - 1].at, candidate_.slices[i].at);
    EXPECT_LE(candidate_.slices[i - 1].sooner, candidate_.slices[i].sooner);
  }
  EXPECT_EQ(candidate_.slices.back().sooner, low().sooner);
}

TEST_F(TraceCandidate, SaysWhatTheRecordingLacks) {
  run_.lose(7);
  const auto done = replay_beside(run_.end(), kEager);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(done->lost, 7u);
  EXPECT_FALSE(done->exact);
}

}  // namespace
}  // namespace heddle::trace
