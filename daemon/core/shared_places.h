// A table that users share: each user has keys of its own, and a share of the places. A held value
// does not move, so that clients can keep pointers. An unheld value is dropped when a place is
// needed: the one that has been unheld for longest, of the user itself if it has used up its share,
// otherwise of the user with the most unheld values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <unordered_map>

namespace heddle::core {

template <class Value>
class SharedPlaces {
 public:
  SharedPlaces(size_t places, size_t of_user) : places_(places), of_user_(of_user) {}

  // The user's value of that key, made if there is none. nullptr: the user holds its whole share,
  // or all users together hold all places. Each hold() needs a release().
  Value* hold(uint32_t user, uint64_t key) {
    Entry* entry = find(user, key);
    if (entry != nullptr && entry->holders++ == 0) entry->user->unheld.erase(entry->place);
    return entry;
  }
  void release(Value& value) {
    Entry& entry = static_cast<Entry&>(value);
    if (--entry.holders == 0) put_last(entry);
  }
  // The same without holding the value: valid until the next call.
  Value* peek(uint32_t user, uint64_t key) {
    Entry* entry = find(user, key);
    if (entry == nullptr || entry->holders > 0) return entry;
    entry->user->unheld.erase(entry->place);
    put_last(*entry);
    return entry;
  }
  size_t size() const { return size_; }

 private:
  struct Entry;
  struct User {
    std::unordered_map<uint64_t, Entry> entries;
    std::list<Entry*> unheld;  // the longest unheld first
  };
  struct Entry : Value {
    User* user = nullptr;
    uint64_t key = 0;
    uint32_t holders = 0;
    typename std::list<Entry*>::iterator place;  // in `unheld`, while there are no holders
  };

  void put_last(Entry& entry) {
    entry.place = entry.user->unheld.insert(entry.user->unheld.end(), &entry);
  }

  Entry* find(uint32_t user, uint64_t key) {
    User& own = users_[user];
    if (const auto it = own.entries.find(key); it != own.entries.end()) return &it->second;
    if (own.entries.size() >= of_user_ ? !forget_of(own) : size_ >= places_ && !forget_any()) {
      return nullptr;
    }
    Entry& entry = own.entries[key];
    entry.user = &own;
    entry.key = key;
    put_last(entry);
    ++size_;
    return &entry;
  }

  bool forget_of(User& user) {
    if (user.unheld.empty()) return false;
    const uint64_t key = user.unheld.front()->key;
    user.unheld.pop_front();
    user.entries.erase(key);
    --size_;
    return true;
  }

  bool forget_any() {
    const auto fewer = [](const auto& a, const auto& b) {
      return a.second.unheld.size() < b.second.unheld.size();
    };
    return forget_of(std::max_element(users_.begin(), users_.end(), fewer)->second);
  }

  const size_t places_, of_user_;
  size_t size_ = 0;
  std::unordered_map<uint32_t, User> users_;
};

}  // namespace heddle::core
