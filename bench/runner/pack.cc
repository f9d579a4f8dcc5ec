#include "bench/runner/pack.h"

#include <algorithm>
#include <stdexcept>

namespace heddle::bench {
namespace {

constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr int kCharacterBits = 6, kHeadBits = 30, kTimeBits = 32;
constexpr uint64_t kUnaryMax = 20;  // ones before a time that is written as it is

class Writer {
 public:
  void put(uint64_t value, int bits) {
    while (bits-- > 0) {
      held_ = held_ << 1 | (value >> bits & 1);
      if (++count_ % kCharacterBits != 0) continue;
      text_ += kAlphabet[held_];
      held_ = 0;
    }
  }
  std::string text() {
    while (count_ % kCharacterBits != 0) put(0, 1);
    return text_;
  }

 private:
  std::string text_;
  size_t held_ = 0, count_ = 0;
};

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  uint64_t take(int bits) {
    uint64_t value = 0;
    while (bits-- > 0) {
      if (at_ / kCharacterBits >= text_.size()) fail("ends too early");
      const size_t character = kAlphabet.find(text_[at_ / kCharacterBits]);
      if (character == kAlphabet.npos) fail("is none of base64's");
      value = value << 1 | (character >> (kCharacterBits - 1 - at_ % kCharacterBits) & 1);
      ++at_;
    }
    return value;
  }
  bool ended() const { return (at_ + kCharacterBits - 1) / kCharacterBits == text_.size(); }

  [[noreturn]] void fail(const std::string& what) const {
    throw std::runtime_error("character " + std::to_string(at_ / kCharacterBits + 1) + " " + what);
  }

 private:
  const std::string_view text_;
  size_t at_ = 0;  // in bits
};

// What writer and reader know of the times so far.
class Model {
 public:
  int64_t mean() const { return mean_ / kShare; }
  int rice_bits() const {
    int bits = 0;
    while (seen_ << bits < size_) ++bits;
    return bits;
  }
  void learn(uint32_t time) {
    if (mean_ == 0) {
      mean_ = int64_t{time} * kShare;
      return;
    }
    // One that is far off moves little.
    const auto most = static_cast<int64_t>(kShare * (size_ / seen_ + 1));
    const int64_t off = std::clamp(int64_t{time} - mean(), -most, most);
    mean_ += off;
    size_ += static_cast<uint64_t>(std::abs(off));
    if (++seen_ < kMemory) return;
    seen_ /= 2;
    size_ /= 2;
  }

 private:
  static constexpr int64_t kShare = 8;  // of a time in the mean: one in so many
  static constexpr uint64_t kMemory = 32;
  int64_t mean_ = 0;  // times kShare
  uint64_t size_ = 64, seen_ = 1;
};

uint64_t check_sum(const std::vector<uint32_t>& times) {  // FNV-1a
  uint64_t sum = 14695981039346656037U;
  for (const uint32_t time : times) sum = (sum ^ time) * 1099511628211U;
  return sum >> (64 - kHeadBits);
}

}  // namespace

std::string pack(const std::vector<uint32_t>& times) {
  if (times.size() >> kHeadBits != 0) throw std::runtime_error("has too many times for a block");
  Writer out;
  Model model;
  out.put(times.size(), kHeadBits);
  out.put(check_sum(times), kHeadBits);
  for (const uint32_t time : times) {
    const int64_t off = int64_t{time} - model.mean();
    const auto folded = static_cast<uint64_t>(off < 0 ? -2 * off - 1 : 2 * off);
    const int bits = model.rice_bits();
    if (folded >> bits < kUnaryMax) {
      for (uint64_t i = folded >> bits; i > 0; --i) out.put(1, 1);
      out.put(0, 1);
      out.put(folded, bits);
    } else {
      for (uint64_t i = 0; i < kUnaryMax; ++i) out.put(1, 1);
      out.put(time, kTimeBits);
    }
    model.learn(time);
  }
  return out.text();
}

std::vector<uint32_t> unpack(std::string_view text) {
  Reader in(text);
  Model model;
  std::vector<uint32_t> times;
  const uint64_t count = in.take(kHeadBits), sum = in.take(kHeadBits);
  while (times.size() < count) {
    uint64_t ones = 0;
    while (ones < kUnaryMax && in.take(1) == 1) ++ones;
    if (ones == kUnaryMax) {
      times.push_back(static_cast<uint32_t>(in.take(kTimeBits)));
    } else {
      const int bits = model.rice_bits();
      const auto folded = static_cast<int64_t>(ones << bits | in.take(bits));
      const int64_t off = folded % 2 != 0 ? -(folded + 1) / 2 : folded / 2;
      times.push_back(static_cast<uint32_t>(model.mean() + off));
    }
    model.learn(times.back());
  }
  if (!in.ended()) in.fail("is more than its " + std::to_string(count) + " times take");
  if (check_sum(times) != sum) in.fail("ends times that have another check sum");
  return times;
}

}  // namespace heddle::bench
