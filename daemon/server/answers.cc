// Answers that are too long for a packet, or that go on: they come with a memory of their own.
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/server/server.h"

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

Reply Server::make_profile(core::ClientId id, Descriptor& memory) {
  const Client* client = engine_.roster.find(id);
  core::TaskProfile task =
      client != nullptr ? engine_.devices.profile(*client) : core::TaskProfile{};
  if (task.kernels.empty()) {
    return {false,
            client == nullptr ? "profile: no such client; see heddle ps"
                              : "profile: nothing of the client was measured yet; wait for its "
                                "kernels to run while nobody else's do",
            "{}"};
  }
  const Identity& identity = client->identity();
  if (!profiles_.is_of(identity.gpu_name)) {
    return {false,
            "profile: the client's GPU is of another model than that whose profiles are kept; "
            "see profiles.gpu of heddle status --json",
            "{}"};
  }
  const profiles::Profile profile =
      profiles_.describe(std::move(task), identity.uid, identity.label, identity.command);
  return in_memory(profiles::format(profile), memory);
}

Reply Server::show_policy(Descriptor& memory) {
  nlohmann::json all = store_.show();
  const auto& faulted = engine_.policy.quarantined();
  all["last_exit"] = nlohmann::json::parse(faulted ? faulted->exit : "null");
  return in_memory(all.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), memory);
}

Reply Server::show_shadow(Descriptor& memory) const {
  return in_memory(engine_.policy.candidate().json().dump(-1, ' ', false,
                                                          nlohmann::json::error_handler_t::replace),
                   memory);
}

Reply Server::start_recording(const Connection& connection, const Reply& reply) {
  if (recording_) {
    return {false, "record: another heddle record runs; wait for it, or end it", "{}"};
  }
  Result<std::unique_ptr<Recording>> made = Recording::make();
  if (!made) return {false, made.error().message, "{}"};
  recording_ = std::move(*made);
  recording_for_ = connection.fd.get();
  engine_.record(&recording_->recorder(), monotonic_now());
  log_.info("recording", {{"pid", connection.peer.pid}, {"uid", connection.peer.uid}});
  return reply;
}

}  // namespace heddle::server
