// Packets of the socket, as the daemon and the command line decode them.
#include <cstdint>
#include <cstring>
#include <vector>

#include "daemon/server/messages.h"
#include "ipc/limits.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace heddle;
  if (size == 0 || size > ipc::kMessageBytes) return 0;
  std::vector<uint64_t> aligned((size + 7) / 8);
  std::memcpy(aligned.data(), data, size);
  const std::span packet(reinterpret_cast<const std::byte*>(aligned.data()), size);
  const Result<server::Message> message = server::decode_message(packet);
  if (message) {
    // What the daemon understood, it can say again.
    if (const auto* request = std::get_if<server::Request>(&*message)) {
      const std::vector<std::byte> again = server::encode_request(*request);
      if (again.size() <= ipc::kMessageBytes && !server::decode_message(again)) __builtin_trap();
    }
  }
  (void)server::decode_reply(packet);
  return 0;
}
