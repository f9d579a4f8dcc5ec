// The MIG calls of the library that stands in for NVML: an H100 whose mode and slices are in the
// file FAKE_NVML_MIG, the mode in its first line, then one slice a line: profile, start, size, ID,
// compute instances. Without it the GPU has no MIG. FAKE_NVML_FAIL=N: the Nth slice of a process is
// not made. FAKE_NVML_RESET: the mode changes after a reset only.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define FAKE extern "C" __attribute__((visibility("default")))

namespace {

constexpr int kNotSupported = 3, kNotFound = 6, kReset = 16, kInUse = 19, kNoRoom = 23;
struct Profile {
  unsigned number, id, compute, memory, megabytes;
};
constexpr Profile kH100[] = {{0, 19, 1, 1, 9984}, {9, 15, 1, 2, 20224}, {1, 14, 2, 2, 20224},
                             {2, 9, 3, 4, 40448}, {3, 5, 4, 4, 40448},  {4, 0, 7, 8, 80896}};
struct Slice {
  unsigned profile, start, size, id, computes;
};

struct State {
  int mode = -1;
  std::vector<Slice> slices;

  State() {
    const char* path = getenv("FAKE_NVML_MIG");
    FILE* file = path != nullptr ? fopen(path, "r") : nullptr;
    if (file == nullptr) return;
    if (fscanf(file, "%d", &mode) != 1) mode = 0;
    Slice s{};
    while (fscanf(file, "%u %u %u %u %u", &s.profile, &s.start, &s.size, &s.id, &s.computes) == 5)
      slices.push_back(s);
    fclose(file);
  }
  void save() const {
    FILE* file = fopen(getenv("FAKE_NVML_MIG"), "w");
    if (file == nullptr) abort();
    fprintf(file, "%d\n", mode);
    for (const Slice& s : slices)
      fprintf(file, "%u %u %u %u %u\n", s.profile, s.start, s.size, s.id, s.computes);
    fclose(file);
  }
  Slice* of(void* handle) {
    for (Slice& s : slices)
      if (s.id == (reinterpret_cast<uintptr_t>(handle) & 0xff)) return &s;
    return nullptr;
  }
};
void* handle_of(unsigned id, unsigned kind) {
  return reinterpret_cast<void*>(uintptr_t{kind} << 8 | id);
}

}  // namespace

FAKE const char* nvmlErrorString(int error) {
  static char text[32];
  snprintf(text, sizeof text, "fake error %d", error);
  return text;
}
FAKE int nvmlDeviceGetMPSComputeRunningProcesses_v3(void*, unsigned* count, void*) {
  return *count = 0, 0;
}
FAKE int nvmlDeviceGetGraphicsRunningProcesses_v3(void*, unsigned*, void*) { return kNotSupported; }
FAKE int nvmlDeviceGetMigMode(void*, unsigned* mode, unsigned* pending) {
  const State state;
  if (state.mode < 0) return kNotSupported;
  return *mode = *pending = static_cast<unsigned>(state.mode), 0;
}
FAKE int nvmlDeviceSetMigMode(void*, unsigned mode, int* activation) {
  State state;
  if (getenv("FAKE_NVML_RESET") != nullptr) return *activation = kReset, 0;
  state.mode = static_cast<int>(mode);
  state.save();
  return *activation = 0, 0;
}
FAKE int nvmlDeviceGetGpuInstanceProfileInfo(void*, unsigned number, unsigned* info) {
  for (const Profile& p : kH100) {
    if (p.number != number) continue;
    memset(info, 0, 48);
    info[0] = p.id, info[2] = p.compute, info[3] = 7 / p.compute;
    const unsigned long long megabytes = p.megabytes;
    memcpy(info + 10, &megabytes, sizeof megabytes);
    return 0;
  }
  return kNotSupported;
}
FAKE int nvmlDeviceGetGpuInstances(void*, unsigned profile, void** out, unsigned* count) {
  State state;
  *count = 0;
  for (const Slice& s : state.slices)
    if (s.profile == profile) out[(*count)++] = handle_of(s.id, 1);
  return 0;
}
FAKE int nvmlDeviceCreateGpuInstanceWithPlacement(void*, unsigned profile, const unsigned* place,
                                                  void** out) {
  static int made = 0;
  State state;
  const char* fail = getenv("FAKE_NVML_FAIL");
  if (fail != nullptr && ++made == atoi(fail)) return kNoRoom;
  if (state.mode != 1) return kNotSupported;
  unsigned id = 1, compute = 0;
  for (const Slice& s : state.slices) {
    if (s.start < place[0] + place[1] && place[0] < s.start + s.size) return kNoRoom;
    id = s.id >= id ? s.id + 1 : id;
  }
  for (const Profile& p : kH100)
    if (p.id == profile && p.memory == place[1]) compute = p.compute;
  if (compute == 0 || place[0] + place[1] > 8) return kNoRoom;
  state.slices.push_back({profile, place[0], place[1], id, 0});
  state.save();
  return *out = handle_of(id, 1), 0;
}
FAKE int nvmlGpuInstanceDestroy(void* instance) {
  State state;
  Slice* s = state.of(instance);
  if (s == nullptr) return kNotFound;
  if (s->computes > 0) return kInUse;
  state.slices.erase(state.slices.begin() + (s - state.slices.data()));
  return state.save(), 0;
}
FAKE int nvmlGpuInstanceGetInfo(void* instance, void* out) {
  State state;
  const Slice* s = state.of(instance);
  if (s == nullptr) return kNotFound;
  const unsigned words[] = {s->id, s->profile, s->start, s->size};
  memcpy(static_cast<char*>(out) + sizeof(void*), words, sizeof words);
  return 0;
}
FAKE int nvmlGpuInstanceGetComputeInstanceProfileInfo(void* instance, unsigned number, unsigned,
                                                      unsigned* info) {
  State state;
  const Slice* s = state.of(instance);
  for (const Profile& p : kH100) {
    if (s == nullptr || p.id != s->profile) continue;
    if (number != (p.compute == 7 ? 4 : p.compute - 1)) return kNotSupported;
    memset(info, 0, 36);
    return info[0] = number, 0;
  }
  return kNotFound;
}
FAKE int nvmlGpuInstanceGetComputeInstances(void* instance, unsigned, void** out, unsigned* count) {
  State state;
  const Slice* s = state.of(instance);
  if (s == nullptr) return kNotFound;
  *count = s->computes;
  if (s->computes > 0) out[0] = handle_of(s->id, 2);
  return 0;
}
FAKE int nvmlGpuInstanceCreateComputeInstance(void* instance, unsigned, void** out) {
  State state;
  Slice* s = state.of(instance);
  if (s == nullptr || s->computes > 0) return kNoRoom;
  s->computes = 1;
  return state.save(), *out = handle_of(s->id, 2), 0;
}
FAKE int nvmlComputeInstanceDestroy(void* compute) {
  State state;
  Slice* s = state.of(compute);
  if (s == nullptr || s->computes == 0) return kNotFound;
  s->computes = 0;
  return state.save(), 0;
}
FAKE int nvmlDeviceGetMaxMigDeviceCount(void*, unsigned* count) { return *count = 7, 0; }
FAKE int nvmlDeviceGetMigDeviceHandleByIndex(void*, unsigned index, void** out) {
  const State state;
  if (index >= state.slices.size()) return kNotFound;
  return *out = handle_of(state.slices[index].id, 3), 0;
}
FAKE int nvmlDeviceGetGpuInstanceId(void* mig, unsigned* id) {
  return *id = reinterpret_cast<uintptr_t>(mig) & 0xff, 0;
}
FAKE int nvmlDeviceGetUUID(void* mig, char* text, unsigned bytes) {
  const auto id = static_cast<unsigned>(reinterpret_cast<uintptr_t>(mig) & 0xff);
  snprintf(text, bytes, "MIG-fake-%u", id);
  return 0;
}
