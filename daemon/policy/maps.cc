#include "daemon/policy/maps.h"

#ifndef XXH_INLINE_ALL
#define XXH_INLINE_ALL
#endif
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <utility>

namespace heddle::policy {

Map::Map(const MapForm& form) : form_(form), entries_(form.max) {
  if (form_.kind == MapForm::Kind::kArray) return;
  buckets_.assign(std::bit_ceil(form.max), kNone);
  for (uint32_t at = form.max; at-- > 0; free_ = at) entries_[at].chain = free_;
}

// A number's bits differ from another's in a few places alone: a multiplication mixes too little.
uint32_t& Map::bucket(uint64_t key) {
  return buckets_[XXH3_64bits(&key, sizeof key) & (buckets_.size() - 1)];
}

uint32_t Map::place(uint64_t key) {
  uint32_t at = bucket(key);
  while (at != kNone && entries_[at].key != key) at = entries_[at].chain;
  return at;
}

void Map::link(uint32_t at) {
  entries_[at].newer = kNone;
  entries_[at].older = newest_;
  (newest_ != kNone ? entries_[newest_].newer : oldest_) = at;
  newest_ = at;
}

void Map::unlink(uint32_t at) {
  const Entry& e = entries_[at];
  (e.newer != kNone ? entries_[e.newer].older : newest_) = e.older;
  (e.older != kNone ? entries_[e.older].newer : oldest_) = e.newer;
}

const double* Map::find(uint64_t key) { return lookup(key); }

double* Map::lookup(uint64_t key) {
  if (form_.kind == MapForm::Kind::kArray) {
    return key - 1 < form_.max ? &entries_[key - 1].value : nullptr;
  }
  const uint32_t at = place(key);
  if (at == kNone) return nullptr;
  if (form_.kind == MapForm::Kind::kLru) {
    unlink(at);
    link(at);
  }
  return &entries_[at].value;
}

bool Map::set(uint64_t key, double value) {
  if (double* there = lookup(key)) {
    *there = value;
    return true;
  }
  const bool lru = form_.kind == MapForm::Kind::kLru;
  if (lru && free_ == kNone) erase(entries_[oldest_].key);
  if (free_ == kNone) return false;  // an array has none
  const uint32_t at = free_;
  free_ = entries_[at].chain;
  entries_[at] = {key, value, bucket(key), kNone, kNone};
  bucket(key) = at;
  if (lru) link(at);
  ++size_;
  return true;
}

bool Map::erase(uint64_t key) {
  if (form_.kind == MapForm::Kind::kArray) return set(key, 0);
  for (uint32_t* from = &bucket(key); *from != kNone; from = &entries_[*from].chain) {
    const uint32_t at = *from;
    if (entries_[at].key != key) continue;
    *from = entries_[at].chain;
    if (form_.kind == MapForm::Kind::kLru) unlink(at);
    entries_[at].chain = free_;
    free_ = at;
    --size_;
    return true;
  }
  return false;
}

uint32_t Map::longest_chain() const {
  uint32_t longest = 0;
  for (uint32_t at : buckets_) {
    uint32_t length = 0;
    for (; at != kNone; at = entries_[at].chain) ++length;
    longest = std::max(longest, length);
  }
  return longest;
}

int Maps::add(std::string_view name, const MapForm& form) {
  const auto same = [&](const Named& map) { return map.name == name; };
  if (std::any_of(all_.begin(), all_.end(), same)) return -1;
  all_.push_back({std::string(name), Map(form)});
  entries_ += form.max;
  return static_cast<int>(all_.size()) - 1;
}

std::string Maps::take_over(const Maps& before) {
  std::vector<std::pair<Map*, const Map*>> kept;
  for (Named& mine : all_) {
    for (const Named& old : before.all_) {
      if (old.name != mine.name || !old.map.form().keep || !mine.map.form().keep) continue;
      if (!(old.map.form() == mine.map.form())) return mine.name;
      kept.emplace_back(&mine.map, &old.map);
    }
  }
  for (const auto& [mine, old] : kept) *mine = *old;
  return {};
}

void Maps::forget(core::ClientId client) {
  for (Named& named : all_) {
    if (named.map.form().key == MapForm::Key::kClient) named.map.erase(client);
  }
}

}  // namespace heddle::policy
