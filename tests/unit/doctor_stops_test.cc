// What `heddle doctor` says of stops.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "daemon/cli/doctor/doctor.h"

namespace heddle::cli {
namespace {

using nlohmann::json;

TEST(DoctorStops, SaysWhetherKernelsCanBeStopped) {
  json status = {{"stops",
                  {{"setting", "asked"},
                   {"file", "/var/lib/heddle/stops.json"},
                   {"error", ""},
                   {"not_asked", ""},
                   {"answers", json::array()}}}};
  json& stops = status["stops"];
  const auto found = [&] {
    const std::vector<Finding> all = examine_stops(status);
    return all.size() == 1 ? all[0] : Finding{};
  };
  EXPECT_EQ(found().text, "not asked yet; heddle doctor --stop");
  EXPECT_EQ(found().level, Finding::Level::kNone);
  stops["not_asked"] = "MPS is on the GPU";
  EXPECT_EQ(found().text, "not asked yet: MPS is on the GPU; heddle doctor --stop");
  stops["error"] = "/x/stops.json: is no list of answers; remove it";
  EXPECT_EQ(found().text, "not asked: /x/stops.json: is no list of answers");
  EXPECT_EQ(found().remedy, "remove it");
  EXPECT_EQ(found().level, Finding::Level::kWarn);
  stops["error"] = stops["not_asked"] = "";
  stops["answers"] = {{{"gpu", "GPU-1"},
                       {"name", "NVIDIA H200"},
                       {"at", "2026-11-29T12:00:00Z"},
                       {"answer", "yes"},
                       {"why", ""},
                       {"stop_us", 340},
                       {"go_us", 290}}};
  EXPECT_EQ(found().text, "yes, 0.63 ms to stop and go on, asked 2026-11-29 (NVIDIA H200, GPU-1)");
  EXPECT_EQ(found().level, Finding::Level::kOk);
  stops["answers"][0]["answer"] = "no";
  stops["answers"][0]["why"] = "the kernel went on";
  EXPECT_EQ(found().text, "no: the kernel went on, asked 2026-11-29 (NVIDIA H200, GPU-1)");
  stops["setting"] = "off";
  EXPECT_EQ(found().text, "off, by [gpu] stops");
}

TEST(DoctorStops, SaysWhichModeSuitsTheGpu) {
  json status = {{"mode", "timeslice"},
                 {"stops", {{"setting", "asked"}, {"answers", json::array()}}}};
  const auto text = [&] {
    const std::vector<Finding> all = examine_mode(status);
    return all.empty() ? "" : all.at(0).text;
  };
  EXPECT_EQ(text(), "") << "not asked yet, and so not known";
  status["stops"]["answers"] = {{{"answer", "yes"}}};
  EXPECT_EQ(text().find("time-sliced suits this GPU, which stops kernels; MPS is for"), 0u);
  EXPECT_EQ(examine_mode(status)[0].level, Finding::Level::kOk);
  status["mode"] = "mps";
  EXPECT_NE(text().find("for others try time-sliced"), std::string::npos);
  status["stops"]["answers"] = {{{"answer", "no"}}};
  EXPECT_EQ(text(), "") << "there is no better mode";
  status["mode"] = "timeslice";
  EXPECT_NE(text().find("under MPS ([mps] manage = true) programs overlap"), std::string::npos);
  status["stops"]["answers"].push_back({{"answer", "yes"}});
  EXPECT_EQ(text(), "") << "each GPU another";
  status["stops"]["setting"] = "on";
  EXPECT_EQ(text().find("time-sliced suits"), 0u);
}

}  // namespace
}  // namespace heddle::cli
