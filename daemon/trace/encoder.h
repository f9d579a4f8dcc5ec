// Writes the records of a trace (trace.h). No input or output: bytes go to whoever asks. The bytes
// of a record are valid until the next one is made; one that could not be stored is simply not
// kept(), and the next then counts its time from the last that was.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "daemon/trace/trace.h"

namespace heddle::trace {

// The longest record that is an event or a decision; text of devices and policies may be longer.
inline constexpr size_t kRecordMax = 512;

class Encoder {
 public:
  std::span<const std::byte> event(const core::Event& event, bool introduced = false);
  std::span<const std::byte> decision(const core::Decision& decision);
  std::span<const std::byte> device(const core::Config& config, core::TimeNs at, bool fresh);
  std::span<const std::byte> policy(const PolicyRecord& policy);
  std::span<const std::byte> bypass(const BypassRecord& bypass);
  std::span<const std::byte> lost(uint64_t count);
  std::span<const std::byte> end(uint64_t records, uint64_t lost);

  // Any of them.
  std::span<const std::byte> record(const Record& record);

  void kept() { last_at_ = at_; }

  // The file's beginning.
  static std::string header(const Header& header);

 private:
  void begin(uint8_t kind, core::TimeNs at, uint8_t device);
  std::span<const std::byte> finish();
  void u8(uint8_t value) { body_.push_back(static_cast<char>(value)); }
  void varint(uint64_t value) { varint(body_, value); }
  void zigzag(int64_t value);
  void f32(float value);
  void u64(uint64_t value);
  void text(const char* chars, size_t length);
  void channel_max(const core::ChannelMax& max);
  void metrics(const ipc::KernelMetrics& metrics);
  static void varint(std::string& out, uint64_t value);

  std::string body_, record_;
  uint8_t kind_ = 0;
  core::TimeNs at_ = 0, last_at_ = 0;
};

}  // namespace heddle::trace
