#include "bench/runner/requests.h"

#include <cstdio>
#include <filesystem>
#include <random>

namespace heddle::bench {

std::string requests_of(const scenario::Scenario& scenario, const Variant& variant, double per_s,
                        const RequestSeed& seed) {
  using scenario::ArrivalKind;
  const scenario::Job& job = scenario.jobs[variant.job];
  const scenario::Arrivals& given = job.arrivals;
  std::seed_seq words{seed.run, uint64_t{seed.repetition}, uint64_t{variant.job}};
  uint32_t drawn[1];
  words.generate(drawn, drawn + 1);
  if (job.paired && variant.managed) return "paired " + std::to_string(drawn[0]);
  if (given.load > 0 && per_s <= 0) return "closed";
  if (given.load <= 0) per_s = given.per_s;
  char text[64];
  const auto seeded = [&](const char* kind) {
    snprintf(text, sizeof text, "%s %g %u", kind, per_s, drawn[0]);
    return std::string(text);
  };
  switch (given.kind) {
    case ArrivalKind::kClosed:
      return "closed";
    case ArrivalKind::kRecorded:
      return "recorded " + std::filesystem::absolute(resolve(scenario, given.file)).string();
    case ArrivalKind::kBurst:
      snprintf(text, sizeof text, "burst %u %g", given.burst, per_s);
      return text;
    case ArrivalKind::kOpen:
      return seeded("open");
    case ArrivalKind::kPoisson:
      return seeded("poisson");
    case ArrivalKind::kOnOff:
      return seeded("onoff");
  }
  return "closed";
}

}  // namespace heddle::bench
