#include "daemon/cli/plan/plan.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

namespace heddle::cli {
namespace {

using nlohmann::json;

// NVML's own structures and numbers (nvml.h).
using Handle = void*;
struct Placement {
  unsigned start, size;  // memory slices
};
struct ProfileInfo {
  unsigned id, p2p, slices, instances, sms, copy, decoders, encoders, jpeg, ofa;
  unsigned long long memory_mb;
};
struct InstanceInfo {
  Handle device;
  unsigned id, profile;
  Placement placement;
};
struct ComputeProfileInfo {
  unsigned id, slices, instances, sms, copy, decoders, encoders, jpeg, ofa;
};
struct Process {
  unsigned pid;
  unsigned long long memory;
  unsigned gpu_instance, compute_instance;
};
constexpr unsigned kProfiles = 0x12, kComputeProfiles = 9, kSharedEngines = 0;
constexpr unsigned kWide = 9;  // one compute slice with the memory of two
constexpr int kResetRequired = 16, kNotSupported = 3, kInsufficientSize = 7;
constexpr size_t kInstancesMost = 16;  // of one profile
constexpr double kMemoryWithin = 0.1;  // of the plan's, so that another GPU model is told

unsigned profile_of(uint32_t compute) { return compute == 7 ? 4 : compute - 1; }

// The calls, found by name: a host without NVIDIA's driver has no NVML.
struct Nvml {
  int (*init)();
  const char* (*error_string)(int);
  int (*count)(unsigned*);
  int (*device)(unsigned, Handle*);
  int (*mode)(Handle, unsigned*, unsigned*);
  int (*set_mode)(Handle, unsigned, int*);
  int (*profile)(Handle, unsigned, ProfileInfo*);
  int (*instances)(Handle, unsigned, Handle*, unsigned*);
  int (*create)(Handle, unsigned, const Placement*, Handle*);
  int (*destroy)(Handle);
  int (*info)(Handle, InstanceInfo*);
  int (*compute_profile)(Handle, unsigned, unsigned, ComputeProfileInfo*);
  int (*compute_instances)(Handle, unsigned, Handle*, unsigned*);
  int (*create_compute)(Handle, unsigned, Handle*);
  int (*destroy_compute)(Handle);
  int (*mig_count)(Handle, unsigned*);
  int (*mig_device)(Handle, unsigned, Handle*);
  int (*mig_instance)(Handle, unsigned*);
  int (*uuid)(Handle, char*, unsigned);
  std::array<int (*)(Handle, unsigned*, Process*), 3> processes;  // compute, MPS, graphics
};

Result<Nvml> load() {
  const char* named = getenv("HEDDLE_NVML");
  void* library = dlopen(named != nullptr ? named : "libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return fail(std::string("MIG slices need NVML: ") + dlerror());
  std::string missing;
  const auto find = [&](auto& call, const char* name) {
    call = reinterpret_cast<std::remove_reference_t<decltype(call)>>(dlsym(library, name));
    if (call == nullptr && missing.empty()) missing = name;
  };
  Nvml n{};
  find(n.init, "nvmlInit_v2");
  find(n.error_string, "nvmlErrorString");
  find(n.count, "nvmlDeviceGetCount_v2");
  find(n.device, "nvmlDeviceGetHandleByIndex_v2");
  find(n.mode, "nvmlDeviceGetMigMode");
  find(n.set_mode, "nvmlDeviceSetMigMode");
  find(n.profile, "nvmlDeviceGetGpuInstanceProfileInfo");
  find(n.instances, "nvmlDeviceGetGpuInstances");
  find(n.create, "nvmlDeviceCreateGpuInstanceWithPlacement");
  find(n.destroy, "nvmlGpuInstanceDestroy");
  find(n.info, "nvmlGpuInstanceGetInfo");
  find(n.compute_profile, "nvmlGpuInstanceGetComputeInstanceProfileInfo");
  find(n.compute_instances, "nvmlGpuInstanceGetComputeInstances");
  find(n.create_compute, "nvmlGpuInstanceCreateComputeInstance");
  find(n.destroy_compute, "nvmlComputeInstanceDestroy");
  find(n.mig_count, "nvmlDeviceGetMaxMigDeviceCount");
  find(n.mig_device, "nvmlDeviceGetMigDeviceHandleByIndex");
  find(n.mig_instance, "nvmlDeviceGetGpuInstanceId");
  find(n.uuid, "nvmlDeviceGetUUID");
  find(n.processes[0], "nvmlDeviceGetComputeRunningProcesses_v3");
  find(n.processes[1], "nvmlDeviceGetMPSComputeRunningProcesses_v3");
  find(n.processes[2], "nvmlDeviceGetGraphicsRunningProcesses_v3");
  if (!missing.empty()) return fail("NVML has no " + missing + "; it is too old for MIG slices");
  return n;
}

class Slicer {
 public:
  Slicer(const Nvml& nvml, unsigned gpu, size_t attached)
      : nvml_(nvml), gpu_(gpu), attached_(attached) {}

  Result<json> make(const plan::Layout& layout) {
    unsigned mode = 0, pending = 0;
    if (int e = nvml_.device(gpu_, &device_); e != 0) return no("the GPU is not to be had", e);
    if (int e = nvml_.mode(device_, &mode, &pending); e != 0) {
      return no("the GPU has no MIG", e);
    }
    const bool whole = layout.size() == 1 && layout[0].profile->compute == plan::kComputeSlices;
    if (mode == 0 && whole) return told(false, false, json::array());
    if (mode != 0) {
      auto there = look();
      if (!there) return fail(there.error().message);
      if (same(layout)) return slices(layout, false);
    }
    if (auto idle = check_idle(); !idle) return fail(idle.error().message);
    if (mode == 0) {
      if (auto on = switch_on(); !on) return fail(on.error().message);
      if (auto there = look(); !there) return fail(there.error().message);
    }
    std::vector<unsigned> profiles;
    for (const plan::Slice& slice : layout) {
      const auto id = planned(slice);
      if (!id) return fail(id.error().message);
      profiles.push_back(*id);
    }
    if (auto gone = remove_all(); !gone) return fail(gone.error().message);
    for (size_t i = 0; i < layout.size(); ++i) {
      if (auto made = add(layout[i], profiles[i]); !made) {
        const bool clean = remove_all().has_value();
        return fail(made.error().message + (clean ? "; the GPU has no slices now"
                                                  : "; some slices are left: nvidia-smi mig -lgi"));
      }
    }
    return slices(layout, true);
  }

 private:
  struct Instance {
    Handle handle;
    InstanceInfo info;
  };

  tl::unexpected<Error> no(const std::string& what, int error) const {
    return fail("GPU " + std::to_string(gpu_) + ": " + what + ": " + nvml_.error_string(error));
  }

  Result<json> told(bool mig, bool changed, const json& list) const {
    return json{{"gpu", gpu_}, {"mig", mig}, {"changed", changed}, {"slices", list}};
  }

  // What is on the GPU, into instances_.
  Result<void> look() {
    instances_.clear();
    for (unsigned p = 0; p < kProfiles; ++p) {
      ProfileInfo info{};
      if (nvml_.profile(device_, p, &info) != 0) continue;
      std::array<Handle, kInstancesMost> found{};
      unsigned count = kInstancesMost;
      if (int e = nvml_.instances(device_, info.id, found.data(), &count); e != 0) {
        return no("its slices are not to be seen", e);
      }
      for (unsigned i = 0; i < std::min<size_t>(count, found.size()); ++i) {
        Instance instance{found[i], {}};
        if (int e = nvml_.info(found[i], &instance.info); e != 0) {
          return no("a slice is not to be seen", e);
        }
        const bool known = std::any_of(instances_.begin(), instances_.end(), [&](const auto& o) {
          return o.info.id == instance.info.id;
        });
        if (!known) instances_.push_back(instance);
      }
    }
    return {};
  }

  bool same(const plan::Layout& layout) const {
    if (instances_.size() != layout.size()) return false;
    return std::all_of(layout.begin(), layout.end(), [&](const plan::Slice& slice) {
      return at(slice) != nullptr && planned(slice).value_or(~0U) == at(slice)->info.profile;
    });
  }

  const Instance* at(const plan::Slice& slice) const {
    for (const Instance& i : instances_) {
      if (i.info.placement.start == slice.start && i.info.placement.size == slice.profile->memory)
        return &i;
    }
    return nullptr;
  }

  Result<void> check_idle() const {
    if (attached_ > 0) {
      return fail("programs are attached to heddled (" + std::to_string(attached_) +
                  "): slices change only while nothing runs; end these first");
    }
    for (const auto& list : nvml_.processes) {
      std::vector<Process> found(64);
      auto count = static_cast<unsigned>(found.size());
      const int e = list(device_, &count, found.data());
      if (e == kNotSupported) continue;
      if (e != 0 && e != kInsufficientSize) return no("its processes are not to be seen", e);
      if (count == 0) continue;
      return fail("GPU " + std::to_string(gpu_) + " is in use (PID " +
                  std::to_string(found[0].pid) +
                  "): slices change only while nothing runs; end all programs on it, and the MPS "
                  "server (`heddle mps stop`), first");
    }
    return {};
  }

  Result<void> switch_on() {
    int activation = 0;
    if (int e = nvml_.set_mode(device_, 1, &activation); e != 0) {
      return no("MIG does not switch on; run this as root", e);
    }
    if (activation == kResetRequired) {
      return fail("GPU " + std::to_string(gpu_) +
                  ": MIG will be on after a reset: nvidia-smi --gpu-reset -i " +
                  std::to_string(gpu_) + ", or a reboot; then run this again");
    }
    if (activation != 0) return no("MIG does not switch on", activation);
    if (int e = nvml_.device(gpu_, &device_); e != 0) return no("it is gone", e);
    return {};
  }

  // NVML's number of the slice's profile on this GPU, if it is what the plan counts on.
  Result<unsigned> planned(const plan::Slice& slice) const {
    ProfileInfo info{};
    const plan::SliceProfile& profile = *slice.profile;
    const unsigned number = profile.wide ? kWide : profile_of(profile.compute);
    if (int e = nvml_.profile(device_, number, &info); e != 0) {
      return no("it has no slice " + std::string(profile.name) + "; name its model with --gpu", e);
    }
    const double gib = static_cast<double>(info.memory_mb) / 1024;
    if (std::abs(gib - profile.memory_gib) > kMemoryWithin * profile.memory_gib) {
      return fail("GPU " + std::to_string(gpu_) + ": a slice like " + std::string(profile.name) +
                  " has " + std::to_string(std::lround(gib)) +
                  " GiB there; name its model with --gpu (" + plan::gpu_names() + ")");
    }
    return info.id;
  }

  Result<void> remove_all() {
    if (auto there = look(); !there) return there;
    for (const Instance& i : instances_) {
      for (unsigned p = 0; p < kComputeProfiles; ++p) {
        ComputeProfileInfo info{};
        if (nvml_.compute_profile(i.handle, p, kSharedEngines, &info) != 0) continue;
        std::array<Handle, kInstancesMost> found{};
        unsigned count = kInstancesMost;
        if (nvml_.compute_instances(i.handle, info.id, found.data(), &count) != 0) continue;
        for (unsigned c = 0; c < std::min<size_t>(count, found.size()); ++c) {
          if (int e = nvml_.destroy_compute(found[c]); e != 0) {
            return no("a compute instance stays", e);
          }
        }
      }
      if (int e = nvml_.destroy(i.handle); e != 0) return no("a slice stays", e);
    }
    return {};
  }

  Result<void> add(const plan::Slice& slice, unsigned profile) {
    const std::string name(slice.profile->name);
    const Placement placement{slice.start, slice.profile->memory};
    Handle instance = nullptr, compute = nullptr;
    if (int e = nvml_.create(device_, profile, &placement, &instance); e != 0) {
      return no("slice " + name + " is not made", e);
    }
    ComputeProfileInfo info{};
    int e =
        nvml_.compute_profile(instance, profile_of(slice.profile->compute), kSharedEngines, &info);
    if (e == 0) e = nvml_.create_compute(instance, info.id, &compute);
    if (e != 0) return no("slice " + name + " gets no compute instance", e);
    return {};
  }

  // With the UUIDs that programs name in CUDA_VISIBLE_DEVICES.
  Result<json> slices(const plan::Layout& layout, bool changed) {
    if (auto there = look(); !there) return fail(there.error().message);
    json list = json::array();
    for (const plan::Slice& slice : layout) {
      const Instance* instance = at(slice);
      if (instance == nullptr)
        return fail("slice " + std::string(slice.profile->name) + " is gone");
      list.push_back({{"profile", slice.profile->name},
                      {"start", slice.start},
                      {"uuid", uuid_of(instance->info.id)}});
    }
    return told(true, changed, list);
  }

  std::string uuid_of(unsigned instance) const {
    unsigned count = 0;
    if (nvml_.mig_count(device_, &count) != 0) return "";
    for (unsigned i = 0; i < count; ++i) {
      Handle mig = nullptr;
      unsigned id = 0;
      char text[96] = {};
      if (nvml_.mig_device(device_, i, &mig) != 0 || nvml_.mig_instance(mig, &id) != 0) continue;
      if (id == instance && nvml_.uuid(mig, text, sizeof text) == 0) return text;
    }
    return "";
  }

  const Nvml& nvml_;
  unsigned gpu_;
  size_t attached_;
  Handle device_ = nullptr;
  std::vector<Instance> instances_;
};

Answer no_slices(const std::string& what) { return {kFailed, "plan: " + what, {}}; }

}  // namespace

Answer make_slices(const plan::Layout& layout, int gpu, size_t attached) {
  const auto nvml = load();
  if (!nvml) return no_slices(nvml.error().message);
  if (int e = nvml->init(); e != 0) {
    return no_slices(std::string("NVML does not start: ") + nvml->error_string(e));
  }
  unsigned count = 0;
  if (int e = nvml->count(&count); e != 0 || count == 0) return no_slices("NVML knows no GPU");
  if (gpu < 0 && count > 1) {
    return no_slices("there are " + std::to_string(count) + " GPUs; name one with --device");
  }
  if (gpu >= static_cast<int>(count)) {
    return no_slices("there is no GPU " + std::to_string(gpu) + "; there are " +
                     std::to_string(count));
  }
  auto made = Slicer(*nvml, static_cast<unsigned>(std::max(gpu, 0)), attached).make(layout);
  if (!made) return no_slices(made.error().message);
  return {kOk, "", std::move(*made)};
}

}  // namespace heddle::cli
