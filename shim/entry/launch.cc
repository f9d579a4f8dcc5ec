// Entry points that launch kernels, cooperative ones among them. Graphs: graph.cc.
#include "shim/admission/gate.h"
#include "shim/admission/leased.h"
#include "shim/admission/rows.h"
#include "shim/driver/driver.h"
#include "shim/sm/contexts.h"

namespace heddle::shim {
namespace {

constexpr unsigned kAttributesMax = 16;

template <bool kPerThread>
auto real_ex() {
  return kPerThread ? HEDDLE_REAL(cuLaunchKernelEx_ptsz) : HEDDLE_REAL(cuLaunchKernelEx);
}

// Adds a priority to the config. `room` holds the config's attributes, and has a place for one
// more.
void add_priority(CUlaunchConfig& config, CUlaunchAttribute* room, int priority) {
  CUlaunchAttribute& added = room[config.numAttrs++];
  added.id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
  added.value.priority = priority;
  config.attrs = room;
}

// Launches with a priority, to an SM set, or both. `config` is the caller's copy, with `room`. If
// the driver refuses, launches without the priority, and then as the application made the launch.
template <bool kPerThread, class Plain>
CUresult launch_changed(Turn& turn, const Launch& wanted, CUlaunchConfig& config,
                        CUlaunchAttribute* room, void** params, void** extra, Plain&& plain) {
  const auto f = static_cast<CUfunction>(wanted.handle);
  const CUstream lane = turn.lane();
  if (turn.priority() != 0) add_priority(config, room, turn.priority());
  if (lane != nullptr) config.hStream = lane;
  const auto launch = [&] { return real_ex<kPerThread>()(&config, f, params, extra); };
  CUresult result = launch();
  if (result != CUDA_SUCCESS && !is_possible(f, wanted.shape)) return result;
  if (result != CUDA_SUCCESS && turn.priority() != 0) {
    --config.numAttrs;
    result = lane != nullptr ? launch() : plain();
    if (result == CUDA_SUCCESS) turn.priority_refused();  // else the priority was not the reason
  }
  if (result != CUDA_SUCCESS && lane != nullptr) {
    turn.stay();
    result = plain();
    if (result == CUDA_SUCCESS) turn.stayed();
  }
  return result;
}

template <bool kPerThread>
auto real_kernel() {
  return kPerThread ? HEDDLE_REAL(cuLaunchKernel_ptsz) : HEDDLE_REAL(cuLaunchKernel);
}

// Not inlined into launch_kernel, so that this stays short, with a small stack frame.
template <bool kPerThread>
[[gnu::noinline, gnu::hot]] CUresult take_turn(HEDDLE_LAUNCH_PARAMETERS, void** extra) {
  const auto plain = [&] {
    return real_kernel<kPerThread>()(f, gx, gy, gz, bx, by, bz, smem, stream, params, extra);
  };
  Launch launch{{stream, kPerThread}, f, {{gx, gy, gz}, {bx, by, bz}, smem, 1}};
  launch.may_raise = launch.may_move = true;
  Turn turn(launch);
  if (!turn.changed()) return turn.launched(plain());
  CUlaunchConfig config{gx, gy, gz, bx, by, bz, smem, stream, nullptr, 0};
  CUlaunchAttribute room[1];
  return turn.launched(
      launch_changed<kPerThread>(turn, launch, config, room, params, extra, plain));
}

// Launches under `lease`, a Leased or an Untold, at that one's priority if it has one and the
// launch may be raised.
template <class Lease, class Raised, class Possible, class Plain>
[[gnu::always_inline]] inline CUresult launch_leased(Lease& lease, bool may_raise, Raised&& raised,
                                                     Possible&& possible, Plain&& plain) {
  if (lease.priority() == 0 || !may_raise) return lease.launched(plain());
  CUresult result = raised(lease.priority());
  if (result != CUDA_SUCCESS && possible()) [[unlikely]] {
    result = plain();
    if (result == CUDA_SUCCESS) lease.priority_refused();  // else the priority was not the reason
  }
  return lease.launched(result);
}

template <bool kPerThread>
[[gnu::always_inline]] inline CUresult launch_kernel(HEDDLE_LAUNCH_PARAMETERS, void** extra) {
  const auto plain = [&] {
    return real_kernel<kPerThread>()(f, gx, gy, gz, bx, by, bz, smem, stream, params, extra);
  };
  const auto raised = [&](int priority) {
    CUlaunchConfig config{gx, gy, gz, bx, by, bz, smem, stream, nullptr, 0};
    CUlaunchAttribute room[1];
    add_priority(config, room, priority);
    return real_ex<kPerThread>()(&config, f, params, extra);
  };
  const auto possible = [&] { return is_possible(f, {{gx, gy, gz}, {bx, by, bz}, smem, 1}); };
  if (goes_unobserved(f)) return plain();
  if (Untold row(f, {{gx, gy, gz}, {bx, by, bz}, smem, 1}); row) {
    return launch_leased(row, true, raised, possible, plain);
  }
  Leased lease({stream, kPerThread}, f, {{gx, gy, gz}, {bx, by, bz}, smem, 1});
  if (lease) return launch_leased(lease, true, raised, possible, plain);
  return take_turn<kPerThread>(f, gx, gy, gz, bx, by, bz, smem, stream, params, extra);
}

template <bool kPerThread>
CUresult launch_cooperative(HEDDLE_LAUNCH_PARAMETERS) {
  Launch launch{{stream, kPerThread}, f, {{gx, gy, gz}, {bx, by, bz}, smem, 1}};
  launch.cooperative = true;
  Turn turn(launch);
  const auto real = kPerThread ? HEDDLE_REAL(cuLaunchCooperativeKernel_ptsz)
                               : HEDDLE_REAL(cuLaunchCooperativeKernel);
  return turn.launched(real(f, gx, gy, gz, bx, by, bz, smem, stream, params));
}

// Reads what the launch's attributes mean for the shim.
void read_attributes(const CUlaunchConfig& config, Launch& launch) {
  launch.may_raise = launch.may_move =
      config.numAttrs < kAttributesMax && (config.attrs != nullptr || config.numAttrs == 0);
  for (unsigned i = 0; config.attrs != nullptr && i < config.numAttrs; ++i) {
    const CUlaunchAttributeValue& value = config.attrs[i].value;
    switch (config.attrs[i].id) {
      case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        launch.cooperative = value.cooperative != 0;
        if (launch.cooperative) launch.may_raise = launch.may_move = false;
        break;
      case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        launch.may_raise = false;  // the application chose one
        break;
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        launch.shape.cluster_blocks = value.clusterDim.x * value.clusterDim.y * value.clusterDim.z;
        break;  // the driver refuses the launch on an SM set that is too small for a cluster
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
        launch.may_raise = launch.may_move = false;
        break;
      case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
        if (value.cooperative != 0) keep_whole_device();  // both values begin with an int
        break;
      default:
        break;
    }
  }
}

// Copies the attributes of a launch that the shim changes to `room`. A launch that moves follows an
// event, with which programmatic serialization must not let it overlap.
void copy_attributes(CUlaunchConfig& config, bool moves, CUlaunchAttribute* room) {
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    room[i] = config.attrs[i];
    if (moves && room[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) {
      room[i].id = CU_LAUNCH_ATTRIBUTE_IGNORE;
    }
  }
  config.attrs = room;
}

template <bool kPerThread>
CUresult launch_ex(const CUlaunchConfig* config, CUfunction f, void** params, void** extra) {
  const auto plain = [&] { return real_ex<kPerThread>()(config, f, params, extra); };
  if (config == nullptr) return plain();
  Launch launch{{config->hStream, kPerThread},
                f,
                {{config->gridDimX, config->gridDimY, config->gridDimZ},
                 {config->blockDimX, config->blockDimY, config->blockDimZ},
                 config->sharedMemBytes,
                 1}};
  read_attributes(*config, launch);
  if (!launch.cooperative && goes_unobserved(f)) return plain();
  CUlaunchConfig own = *config;
  CUlaunchAttribute room[kAttributesMax];
  if (!launch.cooperative) {
    const auto raised = [&](int priority) {
      copy_attributes(own, false, room);
      add_priority(own, room, priority);
      return real_ex<kPerThread>()(&own, f, params, extra);
    };
    const auto possible = [&] { return is_possible(f, launch.shape); };
    if (Untold row(f, launch.shape); row) {
      return launch_leased(row, launch.may_raise, raised, possible, plain);
    }
    Leased lease(launch.stream, f, launch.shape);
    if (lease) return launch_leased(lease, launch.may_raise, raised, possible, plain);
  }
  Turn turn(launch);
  if (!turn.changed()) return turn.launched(plain());
  copy_attributes(own, turn.lane() != nullptr, room);
  return turn.launched(launch_changed<kPerThread>(turn, launch, own, room, params, extra, plain));
}

// The calls older than cuLaunchKernel: the block's shape is set at the function.
template <class Real>
CUresult launch_grid(CUfunction f, CUstream stream, int width, int height, Real&& real) {
  ipc::LaunchShape shape;
  shape.grid[0] = static_cast<uint32_t>(width);
  shape.grid[1] = static_cast<uint32_t>(height);
  Turn turn({{stream, false}, f, shape});
  return turn.launched(real());
}

}  // namespace
}  // namespace heddle::shim

using namespace heddle::shim;

#define HEDDLE_LAUNCH_ARGUMENTS f, gx, gy, gz, bx, by, bz, smem, stream, params

extern "C" {

[[gnu::hot]] CUresult cuLaunchKernel(HEDDLE_LAUNCH_PARAMETERS, void** extra) noexcept {
  return launch_kernel<false>(HEDDLE_LAUNCH_ARGUMENTS, extra);
}
CUresult cuLaunchKernel_ptsz(HEDDLE_LAUNCH_PARAMETERS, void** extra) noexcept {
  return launch_kernel<true>(HEDDLE_LAUNCH_ARGUMENTS, extra);
}
CUresult cuLaunchCooperativeKernel(HEDDLE_LAUNCH_PARAMETERS) noexcept {
  return launch_cooperative<false>(HEDDLE_LAUNCH_ARGUMENTS);
}
CUresult cuLaunchCooperativeKernel_ptsz(HEDDLE_LAUNCH_PARAMETERS) noexcept {
  return launch_cooperative<true>(HEDDLE_LAUNCH_ARGUMENTS);
}
CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** params,
                          void** extra) noexcept {
  return launch_ex<false>(config, f, params, extra);
}
CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig* config, CUfunction f, void** params,
                               void** extra) noexcept {
  return launch_ex<true>(config, f, params, extra);
}
CUresult cuLaunch(CUfunction f) noexcept {
  return launch_grid(f, nullptr, 1, 1, [&] { return HEDDLE_REAL(cuLaunch)(f); });
}
CUresult cuLaunchGrid(CUfunction f, int width, int height) noexcept {
  return launch_grid(f, nullptr, width, height,
                     [&] { return HEDDLE_REAL(cuLaunchGrid)(f, width, height); });
}
CUresult cuLaunchGridAsync(CUfunction f, int width, int height, CUstream stream) noexcept {
  return launch_grid(f, stream, width, height,
                     [&] { return HEDDLE_REAL(cuLaunchGridAsync)(f, width, height, stream); });
}

// Its ranks wait for each other, so none is held back. The launches are recorded before the call:
// if the driver refuses it, they count as outstanding until the next evidence.
CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS* launches, unsigned count,
                                              unsigned flags) noexcept {
  for (unsigned i = 0; launches != nullptr && i < count; ++i) {
    const CUDA_LAUNCH_PARAMS& p = launches[i];
    note_launch({{p.hStream, false},
                 p.function,
                 {{p.gridDimX, p.gridDimY, p.gridDimZ},
                  {p.blockDimX, p.blockDimY, p.blockDimZ},
                  p.sharedMemBytes,
                  1}});
  }
  return HEDDLE_REAL(cuLaunchCooperativeKernelMultiDevice)(launches, count, flags);
}

}  // extern "C"
