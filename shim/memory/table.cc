#include "shim/memory/table.h"

#include <sys/mman.h>

namespace heddle::shim {
namespace {

constexpr size_t kFirstCapacity = 1024;

}  // namespace

size_t HoldingTable::place_of(Holds kind, uint64_t key) const {
  const uint64_t mixed = (key ^ static_cast<uint64_t>(kind) << 56) * 0x9e3779b97f4a7c15ULL;
  return static_cast<size_t>(mixed >> 20) & (capacity_ - 1);
}

Holding* HoldingTable::find(Holds kind, uint64_t key) {
  if (capacity_ == 0) return nullptr;
  for (size_t i = place_of(kind, key);; i = (i + 1) & (capacity_ - 1)) {
    Holding& at = places_[i];
    if (at.kind == Holds::kNothing) return nullptr;
    if (at.kind == kind && at.key == key) return &at;
  }
}

Holding* HoldingTable::add(Holds kind, uint64_t key) {
  if (Holding* known = find(kind, key)) return known;
  // A quarter stays free, so that searches end soon. If the table cannot grow, one place stays
  // free, so that they end at all.
  if (4 * (size_ + 1) > 3 * capacity_ && !grow() && size_ + 1 >= capacity_) return nullptr;
  size_t i = place_of(kind, key);
  while (places_[i].kind != Holds::kNothing) i = (i + 1) & (capacity_ - 1);
  places_[i] = {};
  places_[i].kind = kind;
  places_[i].key = key;
  ++size_;
  return &places_[i];
}

// Later entries that a search would not find across the gap move up into it.
void HoldingTable::remove(Holding* holding) {
  size_t gap = static_cast<size_t>(holding - places_);
  for (size_t i = (gap + 1) & (capacity_ - 1); places_[i].kind != Holds::kNothing;
       i = (i + 1) & (capacity_ - 1)) {
    const size_t home = place_of(places_[i].kind, places_[i].key);
    if (((i - home) & (capacity_ - 1)) < ((i - gap) & (capacity_ - 1))) continue;
    places_[gap] = places_[i];
    gap = i;
  }
  places_[gap].kind = Holds::kNothing;
  --size_;
}

void HoldingTable::clear() {
  for (size_t i = 0; i < capacity_; ++i) places_[i].kind = Holds::kNothing;
  size_ = 0;
}

bool HoldingTable::grow() {
  HoldingTable larger;
  larger.capacity_ = capacity_ == 0 ? kFirstCapacity : 2 * capacity_;
  void* memory = mmap(nullptr, larger.capacity_ * sizeof(Holding), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  larger.places_ = static_cast<Holding*>(memory);
  for_each([&](const Holding& holding) { *larger.add(holding.kind, holding.key) = holding; });
  if (places_ != nullptr) munmap(places_, capacity_ * sizeof(Holding));
  *this = larger;
  return true;
}

}  // namespace heddle::shim
