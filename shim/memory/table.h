// The table of this process's device memory: an entry for each allocation, found by handle or
// address, because the calls that free memory are told no size.
//
// Open addressing in a mapping of its own, which doubles and never shrinks. The caller locks.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle::shim {

enum class Holds : uint8_t {
  kNothing,   // a free place
  kPointer,   // cuMemAlloc and its like: freed by address, and with its context
  kArray,     // freed by handle, and with its context
  kHandle,    // cuMemCreate and its like: names a kPhysical
  kMapping,   // an address at which a kPhysical is mapped
  kExport,    // a file that a kPhysical was exported as
  kPhysical,  // memory of a cuMemCreate, by a number of its own: the driver reuses a handle while
              // the memory that it named is still mapped
  kPool,      // a pool by its reserved size
  kGraphs,    // the graphs of a device, likewise
};

struct Holding {
  Holds kind = Holds::kNothing;
  uint8_t device = 0;
  uint32_t handles = 0;   // references: of a kHandle, and to a kPhysical by all its handles
  uint32_t mappings = 0;  // of a kPhysical
  uint64_t key = 0;
  uint64_t bytes = 0;
  uint64_t pooled = 0;  // of a kPointer: bytes that count with its pool, which is the owner
  uint64_t owner = 0;   // the context; of kHandle, kMapping and kExport the key of the kPhysical
};

class HoldingTable {
 public:
  // The entry, or nullptr. Valid until the next add() or remove().
  Holding* find(Holds kind, uint64_t key);
  // The entry, or a new one; nullptr: there is no memory for it.
  Holding* add(Holds kind, uint64_t key);
  void remove(Holding* holding);
  void clear();
  size_t size() const { return size_; }

  // `visit(Holding&)` for each. It must neither add nor remove.
  template <class Visit>
  void for_each(Visit&& visit) {
    for (size_t i = 0; i < capacity_; ++i) {
      if (places_[i].kind != Holds::kNothing) visit(places_[i]);
    }
  }
  // Removes those of which `gone(const Holding&)` is true.
  template <class Gone>
  void remove_if(Gone&& gone) {
    for (size_t i = 0; i < capacity_;) {
      // remove() may move another entry to this place, so the place is looked at again.
      if (places_[i].kind != Holds::kNothing && gone(places_[i])) {
        remove(&places_[i]);
      } else {
        ++i;
      }
    }
  }

 private:
  size_t place_of(Holds kind, uint64_t key) const;
  bool grow();

  Holding* places_ = nullptr;
  size_t capacity_ = 0;  // a power of two, or 0
  size_t size_ = 0;
};

}  // namespace heddle::shim
