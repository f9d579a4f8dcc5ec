// The policy loader: any text is a policy, or an error of one line that names the file. A policy
// that loads decides about two clients for a while.
#include <cstdint>

#include "daemon/core/scheduler.h"
#include "daemon/policy/lua_policy.h"

namespace {

using namespace heddle;

void use(core::Policy& policy) {
  core::Scheduler scheduler{core::Config{}};
  bool ok = false;
  scheduler.set_policy(&policy, 0, ok);
  if (!ok) return;
  core::TimeNs now = 0;
  for (const core::ClientId id : {1u, 2u}) {
    core::Event event(core::EventKind::kAttached, now, id);
    event.attached = {};
    event.attached.priority = static_cast<uint8_t>(4 * id);
    event.attached.share = 1;
    scheduler.step(event);
  }
  for (uint32_t i = 1; i <= 8; ++i) {
    core::Event event(core::EventKind::kAsked, now += 1'000'000, 1 + i % 2);
    event.launch = {};
    event.launch.stream_seq = event.launch.ask_seq = i;
    scheduler.step(event);
  }
  scheduler.step(core::Event(core::EventKind::kTick, now + 5'000'000, 0));
  scheduler.set_policy(nullptr, now, ok);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  policy::Source source;
  source.text.assign(reinterpret_cast<const char*>(data), size);
  source.chunk = "fuzz.lua";
  auto loaded = policy::load_policy(source, {});
  if (loaded) {
    use(**loaded);
  } else if (loaded.error().message.empty()) {
    __builtin_trap();
  }
  return 0;
}
