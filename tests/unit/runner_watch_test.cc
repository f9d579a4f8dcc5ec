// bench/runner/watch: what heddled's counters and hooks grew by, without a heddled.
#include <gtest/gtest.h>

#include "bench/runner/watch.h"

namespace heddle::bench {
namespace {

Json hook(const char* name, double sum_us) { return {{"hook", name}, {"sum_us", sum_us}}; }

// A device's part of the status; without hooks its policy is built in.
Json device(int index, double granted, const Json& hooks) {
  const Json policy = hooks.is_null() ? Json::object() : Json{{"hooks", hooks}};
  return {{"index", index}, {"policy", policy}, {"stats", {{"granted", granted}}}};
}

Json status(std::vector<Json> devices) {
  return {{"counters", {{"reloads", 3}}}, {"devices", std::move(devices)}};
}

Json only(std::vector<Json> hooks) { return status({device(0, 5, Json(std::move(hooks)))}); }

TEST(Watch, HooksAndCountersOfAllDevicesAreAdded) {
  const Json before = status({device(0, 10, Json::array({hook("dispatch", 100)})),
                              device(1, 20, Json::array({hook("dispatch", 7)}))});
  const Json now =
      status({device(0, 13, Json::array({hook("dispatch", 130), hook("enqueue", 2.5)})),
              device(1, 24, Json::array({hook("dispatch", 8)}))});
  EXPECT_EQ(grown(before, now), (Json{{"granted", 7.0}, {"hooks_us", 33.5}}))
      << "reloads did not grow";
}

TEST(Watch, HooksThatNobodyCalledTookNoTime) {
  EXPECT_EQ(grown(only({}), only({})), (Json{{"hooks_us", 0.0}}));
  EXPECT_EQ(grown(only({}), only({hook("dispatch", 4)}))["hooks_us"], 4);
}

TEST(Watch, HooksAreUnknownWhereAnotherPolicyTookOver) {
  const Json before = only({hook("dispatch", 100), hook("enqueue", 1)});
  for (const Json& now :
       {only({hook("dispatch", 300)}), only({hook("dispatch", 20), hook("enqueue", 500)}),
        status({device(0, 5, nullptr)})}) {
    EXPECT_FALSE(grown(before, now).contains("hooks_us")) << now;
  }
  EXPECT_FALSE(grown(status({device(0, 5, nullptr)}), before).contains("hooks_us"));
}

TEST(Watch, ABuiltInPolicyHasNoHooks) {
  EXPECT_EQ(grown(status({device(0, 1, nullptr)}), status({device(0, 2, nullptr)})),
            (Json{{"granted", 1.0}}));
  EXPECT_EQ(grown(Json::object(), Json::object()), Json::object());
}

}  // namespace
}  // namespace heddle::bench
