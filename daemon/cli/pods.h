// Which pod a container belongs to, by the links that the kubelet keeps for log collectors:
// POD_NAMESPACE_CONTAINER-ID.log. Nobody has to be asked, and the kubelet removes what is gone.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace heddle::cli {

inline constexpr const char* kContainerLogs = "/var/log/containers";

// Gives each of `processes` whose `cgroup` names a container that is there {"namespace", "pod",
// "container"} as `pod`.
void name_pods(nlohmann::json& processes, const std::string& directory = kContainerLogs);

}  // namespace heddle::cli
