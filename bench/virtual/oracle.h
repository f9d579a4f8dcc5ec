// The clairvoyant policy: it knows when every more important client launches next, and how long
// every launch runs. A launch is granted if it ends before anybody more important comes, so that
// best effort fills gaps and costs nobody anything; among those that fit, the more important and
// then the longer. Time-sliced, the change of context there and back is counted too.
//
// It bounds what filling gaps can give. Policies that let work overlap (MPS: a kernel that leaves
// SMs free) or that accept a delay may give best effort more: then at the price that the JCT shows.
#pragma once

#include <optional>

#include "daemon/core/policy.h"
#include "daemon/sim/virtual.h"

namespace heddle::bench {

class Oracle final : public core::Policy {
 public:
  // The machine that it decides for; it must be set before anything runs there.
  explicit Oracle(const sim::VirtualMachine& machine, const sim::GpuConfig& gpu,
                  double round_trip_us)
      : machine_(machine), gpu_(gpu), round_trip_us_(round_trip_us) {}

  std::string_view name() const override { return "oracle"; }
  core::AllowanceVerdict client_init(core::Gpu& gpu, core::ClientId client) override;
  core::AllowanceVerdict client_active(core::Gpu& gpu, core::ClientId client) override;
  core::AllowanceVerdict client_idle(core::Gpu& gpu, core::ClientId client) override;
  core::EnqueueVerdict enqueue(core::Gpu& gpu, core::LaunchId launch) override;
  core::DispatchVerdict dispatch(core::Gpu& gpu) override;

 private:
  core::AllowanceVerdict window(core::Gpu& gpu, core::ClientId client) const;
  bool fits(core::Gpu& gpu, const core::LaunchView& launch, double us) const;

  const sim::VirtualMachine& machine_;
  const sim::GpuConfig gpu_;
  const double round_trip_us_;
  std::vector<core::LaunchId> waiting_;
};

}  // namespace heddle::bench
