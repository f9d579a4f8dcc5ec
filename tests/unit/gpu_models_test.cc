// A device's scheduler goes by the constants of its GPU model, or by its own where there are none.
#include "daemon/server/gpus.h"

#include <gtest/gtest.h>

namespace heddle::server {
namespace {

using core::Channel;

class Looking final : public core::Policy {
 public:
  std::string_view name() const override { return "looking"; }
  core::AllowanceVerdict client_init(core::Gpu& gpu, core::ClientId) override {
    fp64_left = gpu.channel_left(Channel::kFp64);
    return {};
  }
  double fp64_left = 0;
};

// What a policy finds left of the fp64 pipeline of an idle GPU of that name.
double fp64_left(const std::string& gpu) {
  core::Scheduler scheduler{core::Config{}};
  Log log(LogLevel::kOff);
  use_gpu_model(scheduler, HEDDLE_GPU_MODELS, gpu, log);
  Looking looking;
  bool ok = false;
  scheduler.set_policy(&looking, 1, ok);
  core::Event attached(core::EventKind::kAttached, 2, 1);
  attached.attached = {};
  scheduler.step(attached);
  const double left = looking.fp64_left;
  scheduler.set_policy(nullptr, 3, ok);
  return left;
}

TEST(GpuModelsTest, ADeviceGoesByTheModelOfItsGpu) {
  EXPECT_EQ(fp64_left("NVIDIA H100 80GB HBM3"), 0.955);
}

TEST(GpuModelsTest, AnUnknownGpuKeepsTheCoresOwnConstants) {
  EXPECT_EQ(fp64_left("NVIDIA L4"), 1);
  EXPECT_EQ(fp64_left(""), 1);
}

}  // namespace
}  // namespace heddle::server
