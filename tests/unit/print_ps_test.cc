// heddle ps: that it fits its columns, says its units, and leaves nothing out.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <sstream>

#include "daemon/cli/look/print.h"

namespace heddle::cli {
namespace {

using nlohmann::json;

json device() {
  return {{"device", 15},
          {"active", true},
          {"allowed", "gate"},
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

std::string printed(const json& clients, bool notes = true) {
  std::ostringstream out;
  const json answer = {{"clients", clients}, {"truncated", false}, {"unattached", json::array()}};
  (notes ? print_ps_notes : print_ps)(out, answer);
  return out.str();
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(Ps, HasALineOfEightyColumnsForEachClient) {
  json clients = json::array();
  for (int id = 1023; id < 1030; ++id) clients.push_back(client(id));
  std::ostringstream out;
  const std::string exe = "/opt/" + std::string(100, 'x');
  const json other = {{"pid", 4'194'303}, {"exe", exe}};
  print_ps(out, {{"clients", clients}, {"truncated", false}, {"unattached", {other}}});
  const std::vector<std::string> lines = lines_of(out.str());
  ASSERT_EQ(lines.size(), 12u) << "head, seven clients, what ! is, the mode, two of who is free\n"
                               << out.str();
  for (const std::string& line : lines) EXPECT_LE(line.size(), 80u) << line;
  for (const char* head : {"GPU s", "ADD ms", "MEM GiB"}) {
    EXPECT_NE(lines[0].find(head), std::string::npos) << lines[0];
  }
}

TEST(Ps, LabelsThatDifferAtTheirEndsStayApart) {
  json clients = json::array({client(1), client(2)});
  for (size_t i = 0; i < 2; ++i) {
    clients[i]["label"] = "api-with-a-quite-long-name-" + std::to_string(i + 1);
  }
  const std::string text = printed(clients, false);
  EXPECT_NE(text.find("e-1 "), text.npos) << text;
  EXPECT_NE(text.find("e-2 "), text.npos) << text;
  EXPECT_NE(text.find(" ap"), text.npos) << text;
  clients[0]["label"] = "";
  clients[0]["exe"] = "/opt/serve";
  EXPECT_NE(printed(clients, false).find(" serve "), text.npos) << "the program's name";
}

TEST(Ps, AMarkSaysWhatVHasMoreOf) {
  json one = json::array({client(5)});
  one[0]["devices"][0]["memory_refused"] = 0;
  EXPECT_EQ(printed(one, false).find("active!"), std::string::npos) << printed(one, false);
  const json good = one;
  one[0]["unseen"] = "label";
  EXPECT_NE(printed(one, false).find("active!"), std::string::npos);
  one = good;
  one[0]["counters"]["self"]["forced"] = 3;
  EXPECT_NE(printed(one, false).find("active!"), std::string::npos);
  one = good;
  one[0]["managed"] = false;
  EXPECT_NE(printed(one, false).find("free!"), std::string::npos);
  EXPECT_NE(printed(one, false).find("ps -v"), std::string::npos);
}

TEST(Ps, HelpNamesEachColumnInEightyColumns) {
  const std::string help = ps_help();
  std::string head = lines_of(printed(json::array({client(5)}), false))[0];
  for (const char* two : {"GPU s", "ADD ms", "MEM GiB"}) {
    EXPECT_NE(help.find(std::string("\n  ") + two + "  "), help.npos) << two;
    const size_t at = head.find(two);
    ASSERT_NE(at, head.npos);
    head.erase(at, std::string(two).size());
  }
  std::istringstream words(head);
  for (std::string word; words >> word;) {
    EXPECT_NE(help.find("\n  " + word + ' '), help.npos) << word;
  }
  for (const std::string& line : lines_of(help + status_help()))
    EXPECT_LE(line.size(), 80u) << line;
}

TEST(Ps, ClientOfAPodIsToldWithItsNames) {
  json one = json::array({client(5)});
  one[0]["pod"] = {{"namespace", "team-a"}, {"pod", "api-7"}, {"container", "main"}};
  EXPECT_NE(printed(one).find("\nclient 5: pod team-a/api-7, container main\n"), std::string::npos);
}

TEST(Ps, WhatNoColumnHasIsToldBelow) {
  json one = json::array();
  one.push_back(client(5));
  one[0]["clock_ahead_s"] = 3'600.25;
  const std::string text = printed(one);
  for (const std::string& note :
       {std::string("client 5: launches that waited for no grant: starved 3\n"),
        "client 5: " + std::string(60, 'n') + ", rule " + std::string(30, 'r') +
            " (share 2, fail closed); on GPU 15 grants 100M, measured to 37 %\n",
        std::string("client 5: others add 123.46 ms at most to one of its gaps; of 50 gaps 3 took "
                    "more, by 0.07 ms at most\n"),
        std::string("client 5: its clock is 3600.250 s ahead of heddled's"),
        std::string("client 5: 7 allocations refused by its limit\n"), std::string("mode: mps\n"),
        std::string(" 123.5G ")}) {
    EXPECT_NE(text.find(note), text.npos) << note << "not in\n" << text;
  }
}

TEST(Ps, WhoseLaunchesMayBeHeldHasALineThatSaysWhere) {
  json one = json::array({client(5)});
  json& held = one[0];
  held["devices"].push_back(device());  // two GPUs, one line
  held["held"] = "device";
  held["priority"] = 9;
  const std::string line = "client 5: held on the device: its launches wait there",
                    text = printed(one);
  EXPECT_NE(text.find(line), text.npos) << text;
  EXPECT_EQ(text.find(line), text.rfind(line)) << text;
  held["held"] = "thread";
  held["threads_wait_because"] = "its rule has it fail closed";
  EXPECT_NE(printed(one).find("held in the program, whose threads wait: its rule has it fail"),
            std::string::npos);
  for (json& device : held["devices"]) device["allowed"] = "lease";
  EXPECT_EQ(printed(one).find("held"), std::string::npos) << "nobody is above it";
  held["threads_wait_because"] = "[daemon] gates is false";
  EXPECT_EQ(held_text(held, device()), "") << "that is said where the configuration says it";
}

json promise(const json& slowdown, int blocks, int broken, const json& by) {
  return {{"slowdown_max", 1.1},
          {"slowdown", slowdown},
          {"blocks", blocks},
          {"broken", broken},
          {"broken_by", by}};
}

TEST(Ps, APromiseHasALineThatSaysHowItIsKept) {
  json one = json::array({client(5)});
  const auto line = [&](const json& told) {
    one[0]["devices"][0]["promise"] = told;
    return printed(one);
  };
  const std::string broken = line(promise(1.2467, 6, 5, "slots"));
  EXPECT_NE(broken.find("client 5: promise 1.10: now 1.25, 5 of 6 blocks broken, by slots\n"),
            broken.npos)
      << broken;
  const std::string kept = line(promise(1.02, 6, 0, nullptr));
  EXPECT_NE(kept.find("client 5: promise 1.10: now 1.02, 0 of 6 blocks broken\n"), kept.npos);
  const std::string young = line(promise(nullptr, 0, 0, nullptr));
  EXPECT_NE(young.find("client 5: promise 1.10: no block has ended yet\n"), young.npos) << young;
  one[0]["devices"][0]["promise_p99"] = promise(1.36, 5, 2, nullptr);
  EXPECT_NE(line(promise(1.02, 6, 0, nullptr))
                .find("client 5: promise 1.10: now 1.02, 0 of 6 blocks broken\n"
                      "client 5: promise p99 1.10: now 1.36, 2 of 5 blocks broken\n"),
            kept.npos);
  EXPECT_NE(line(nullptr).find("client 5: promise p99 1.10: now 1.36, 2 of 5"), kept.npos);
  one[0]["devices"][0].erase("promise_p99");
  EXPECT_EQ(line(nullptr).find("promise"), kept.npos);
}

TEST(PrintPs, TellsWhatIsUsedOfALimitedChannel) {
  json one = json::array({client(5)});
  one[0]["dram_max"] = 0.3;
  json& ceilings = one[0]["devices"][0]["ceilings"];
  ceilings = {{{"channel", "l2"}, {"max", 0.5}, {"use", 0.1234}, {"unknown", 0.4}},
              {{"channel", "dram"}, {"max", 0.3}, {"use", nullptr}, {"unknown", 1}}};
  const std::string told = printed(one);
  EXPECT_NE(told.find("client 5: uses l2 0.12 of 0.50 (unknown of 40 % of its work), dram unknown "
                      "of 0.30 beside others\n"),
            told.npos)
      << told;
  EXPECT_NE(told.find("dram_max 0.3"), told.npos) << "the rule";
}

TEST(Ps, OnesOwnAndTheMostImportantComeFirst) {
  json clients = json::array({client(1), client(2), client(3), client(4)});
  clients[0]["hidden"] = clients[1]["hidden"] = true;
  clients[0]["priority"] = clients[2]["priority"] = 9;
  const std::string text = printed(clients);
  const size_t order[] = {text.find("\n4 "), text.find("\n3 "), text.find("\n2 "),
                          text.find("\n1 ")};
  EXPECT_TRUE(std::is_sorted(std::begin(order), std::end(order))) << text;
  EXPECT_NE(order[3], text.npos) << text;
}

TEST(Ps, AFewBytesAreAThousandthOfAGiB) {
  EXPECT_EQ(memory_text({{"memory_bytes", 8}}), "0.001");
  EXPECT_EQ(memory_text({{"memory_bytes", 0}, {"memory_limit_bytes", 2.0 * (1 << 30)}}), "0/2");
  EXPECT_EQ(memory_text({{"memory_bytes", 1.5 * (1 << 30)}}), "1.5");
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

TEST(PsNotes, SayWhatAClientGotOfWhatItRequests) {
  json one = json::array({client(1)});
  json& told = one[0]["devices"][0]["compute"];
  told = {{"request", 0.25},
          {"limit", 0.5},
          {"got", {0.1, 0.2, 0.3}},
          {"short", true},
          {"over", false}};
  EXPECT_NE(printed(one).find("requests 25 %, limit 50 %: got 20 % of 10 s (10 % of 1 s, 30 % of "
                              "60 s)"),
            std::string::npos);
  EXPECT_NE(printed(one, false).find('!'), std::string::npos) << "it waits for more";
  told["request"] = 0;
  EXPECT_NE(printed(one).find("client 1: limit 50 %: got"), std::string::npos);
}

}  // namespace
}  // namespace heddle::cli
