#include "shim/admission/node_counts.h"

#include <sys/mman.h>

#include <algorithm>

namespace heddle::shim {

NodeCounts::~NodeCounts() {
  if (places_ != nullptr) munmap(places_, kPlaces * sizeof(NodeCount));
}

void NodeCounts::add(void* handle, CUcontext context, const ipc::LaunchShape& shape) {
  ++total_;
  if (places_ == nullptr) {
    void* memory = mmap(nullptr, kPlaces * sizeof(NodeCount), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return;
    places_ = static_cast<NodeCount*>(memory);
  }
  const uint64_t home =
      XXH3_64bits_withSeed(&shape, sizeof shape, reinterpret_cast<uint64_t>(handle));
  for (size_t probe = 0; probe < kProbes; ++probe) {
    NodeCount& place = places_[(home + probe) % kPlaces];
    if (place.count == 0) {
      place = {handle, context, shape, 1};
      return;
    }
    if (place.handle == handle && place.shape == shape) {
      ++place.count;
      return;
    }
  }
}

std::span<const NodeCount> NodeCounts::most_frequent(size_t most) {
  if (places_ == nullptr) return {};
  NodeCount* const end = places_ + kPlaces;
  NodeCount* const chosen = places_ + std::min(most, kPlaces);
  std::partial_sort(places_, chosen, end,
                    [](const NodeCount& a, const NodeCount& b) { return a.count > b.count; });
  const auto free = [](const NodeCount& place) { return place.count == 0; };
  return {places_, std::find_if(places_, chosen, free)};
}

}  // namespace heddle::shim
