// Maps: what a policy remembers outside Lua. Typed and bounded; their memory is taken when they are
// made, so that a hook call allocates nothing. The generation that takes the policy's place begins
// with what those with `keep` have. A client's entries go with the client.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/core/event.h"

namespace heddle::policy {

struct MapForm {
  enum class Kind : uint8_t { kHash, kLru, kArray };
  enum class Key : uint8_t { kNumber, kString, kClient };
  Kind kind = Kind::kHash;
  Key key = Key::kNumber;  // of an array: its places, from 1
  uint32_t max = 0;        // entries
  bool keep = false;
  bool operator==(const MapForm&) const = default;
};

// Numbers by 64-bit keys: what a key stands for is the caller's.
class Map {
 public:
  explicit Map(const MapForm& form);

  const MapForm& form() const { return form_; }
  size_t size() const { return size_; }
  const double* find(uint64_t key);      // nullptr: there is none. In an lru it is the newest now
  bool set(uint64_t key, double value);  // false: full
  bool erase(uint64_t key);
  uint32_t longest_chain() const;  // entries of one bucket; for tests

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Entry {
    uint64_t key = 0;
    double value = 0;
    uint32_t chain = kNone;                 // the next one of its bucket, or free one
    uint32_t newer = kNone, older = kNone;  // of an lru
  };
  double* lookup(uint64_t key);
  uint32_t& bucket(uint64_t key);
  uint32_t place(uint64_t key);
  void link(uint32_t at);  // as the newest
  void unlink(uint32_t at);

  MapForm form_;
  std::vector<Entry> entries_;
  std::vector<uint32_t> buckets_;  // a power of two
  uint32_t free_ = kNone, newest_ = kNone, oldest_ = kNone;
  size_t size_ = 0;
};

// The maps of one policy, by name.
class Maps {
 public:
  struct Named {
    std::string name;
    Map map;
  };
  // The map's number, or -1 if there is one of that name.
  int add(std::string_view name, const MapForm& form);
  Map& at(size_t number) { return all_[number].map; }
  const std::vector<Named>& all() const { return all_; }
  uint32_t entries() const { return entries_; }  // there is room for

  // Copies what `before` keeps, which goes on with its own. Returns the name of the first map that
  // has another form there; then nothing was copied.
  std::string take_over(const Maps& before);
  void forget(core::ClientId client);

 private:
  std::vector<Named> all_;
  uint32_t entries_ = 0;
};

}  // namespace heddle::policy
