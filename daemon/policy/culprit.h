// Which policy the process dies of: written down as it dies, so that the next start can tell.
#pragma once

#include <atomic>
#include <string>

namespace heddle::policy {

// Content hash of the policy that runs at this moment; nullptr: none does. One for the process,
// because a signal handler reads it.
inline std::atomic<const char*> running_hash{nullptr};

// From now on a fatal signal that comes while a policy runs appends "HASH why" to the file `path`.
// A policy that ran at another moment is not to blame: kill -9 and a power cut leave no line.
void name_culprit_in(const std::string& path);

}  // namespace heddle::policy
