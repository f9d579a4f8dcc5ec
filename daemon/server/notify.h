// sd_notify(3) in a few lines, so that the daemon needs no libsystemd.
#pragma once

namespace heddle::server {

// Sends `state` ("READY=1", "STOPPING=1") to the service manager; does nothing without one.
void notify_service_manager(const char* state);

}  // namespace heddle::server
