// heddle ps: that it fits its columns, says its units, and leaves nothing out.
#include <gtest/gtest.h>

#include <sstream>

#include "daemon/cli/print.h"

namespace heddle::cli {
namespace {

using nlohmann::json;

json device() {
  return {{"device", 15},
          {"active", true},
          {"window", 2'000'000},
          {"queued", 64},
          {"launches", 123'456'789'012},
          {"granted", 99'999'999},
          {"gpu_us", 9e12},
          {"added_us_max", 123'456.0},
          {"gaps_filled", 50},
          {"gaps_exceeded", 3},
          {"exceeded_us_max", 70.0},
          {"profiled", false},
          {"runs", 370},
          {"measure_runs", 1000},
          {"memory_bytes", 79.96 * (1 << 30)},
          {"memory_limit_bytes", 80.0 * (1 << 30)},
          {"memory_group_bytes", 79.96 * (1 << 30)},
          {"memory_refused", 7}};
}

json client(int id) {
  return {{"id", id},
          {"pid", 4'194'304},
          {"priority", 0},
          {"exe", "/opt/" + std::string(60, 'n')},
          {"label", std::string(40, 'l')},
          {"rule", std::string(30, 'r')},
          {"share", 2},
          {"slo_ms", nullptr},
          {"window_max_us", nullptr},
          {"fail", "closed"},
          {"sms", ""},
          {"mode", "mps"},
          {"managed", true},
          {"connected", true},
          {"unseen", ""},
          {"reason", ""},
          {"counters", {{"self", {{"starved", 3}, {"stale", 0}}}}},
          {"devices", {device()}}};
}

std::string printed(const json& clients) {
  std::ostringstream out;
  print_ps(out, {{"clients", clients}, {"truncated", false}, {"unattached", json::array()}});
  return out.str();
}

TEST(Ps, FitsAHundredAndTwentyColumnsAndSaysItsUnits) {
  json clients = json::array();
  for (int id = 1023; id < 1030; ++id) clients.push_back(client(id));
  std::istringstream lines(printed(clients));
  std::string line;
  for (size_t i = 0; std::getline(lines, line) && i < 8; ++i) {
    EXPECT_LE(line.size(), 120u) << line;
    if (i > 0) continue;
    for (const char* head : {"WIN us", "GPU s", "ADD ms", "MEM GiB"}) {
      EXPECT_NE(line.find(head), line.npos) << line;
    }
  }
}

TEST(Ps, WhatDoesNotFitIsToldBelow) {
  json one = json::array();
  one.push_back(client(5));
  one[0]["clock_ahead_s"] = 3'600.25;
  const std::string text = printed(one);
  for (const std::string& note :
       {std::string("client 5: launches that waited for no grant: starved 3\n"),
        "client 5: rule " + std::string(30, 'r') + " (share 2, fail closed)\n",
        std::string("client 5: others may add to one of its gaps <= 123.46 ms, 3 of 50 over by"),
        std::string("client 5: its clock is 3600.250 s ahead of heddled's"),
        std::string("client 5: 7 allocations refused by its limit\n"), std::string("mode: mps\n"),
        std::string(" 123.5G 100M ")}) {
    EXPECT_NE(text.find(note), text.npos) << note << "not in\n" << text;
  }
}

TEST(Ps, AClientThatUsesNoGpuYetIsListed) {
  json one = client(7);
  one["devices"] = json::array();
  one["mode"] = "unknown";
  one["managed"] = false;
  one["reason"] = "refused by the policy";
  const std::string text = printed(json::array({one, client(8)}));
  EXPECT_NE(text.find("client 7: mode unknown\nclient 8: mode mps\n"), text.npos) << text;
  EXPECT_NE(text.find("client 7: unmanaged: refused by the policy\n"), text.npos) << text;
}

}  // namespace
}  // namespace heddle::cli
