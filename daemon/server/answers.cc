// Answers that are too long for a packet, or that go on for a while: each is sent as a memfd.
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/server/requests.h"

namespace heddle::server {
namespace {

Reply in_memory(const std::string& text, Descriptor& memory) {
  memory = Descriptor(memfd_create("heddle-answer", MFD_CLOEXEC));
  if (write(memory.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return {false, "no memory for the answer; raise the daemon's limits", "{}"};
  }
  return {true, "", "{}"};
}

}  // namespace

Reply show_profile(const Engine& engine, const ProfileStore& profiles, core::ClientId id,
                   Descriptor& memory) {
  const Client* client = engine.roster.find(id);
  core::TaskProfile task =
      client != nullptr ? engine.devices.profile(*client) : core::TaskProfile{};
  if (task.kernels.empty()) {
    return {false,
            client == nullptr ? "profile: no such client; see heddle ps"
                              : "profile: nothing of the client was measured yet; wait for its "
                                "kernels to run while nobody else's do",
            "{}"};
  }
  const Identity& identity = client->identity();
  if (!profiles.is_of(identity.gpu_name)) {
    return {false,
            "profile: the client's GPU is of another model than that whose profiles are kept; "
            "see profiles.gpu of heddle status --json",
            "{}"};
  }
  const profiles::Profile profile =
      profiles.describe(std::move(task), identity.uid, identity.label, identity.command);
  return in_memory(profiles::format(profile), memory);
}

Reply show_policy(const Engine& engine, const PolicyStore& store, Descriptor& memory) {
  nlohmann::json all = store.show();
  const auto& faulted = engine.policy.quarantined();
  all["last_exit"] = nlohmann::json::parse(faulted ? faulted->exit : "null");
  return in_memory(all.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), memory);
}

Reply show_shadow(const Engine& engine, Descriptor& memory) {
  return in_memory(engine.policy.candidate().json().dump(-1, ' ', false,
                                                         nlohmann::json::error_handler_t::replace),
                   memory);
}

}  // namespace heddle::server
