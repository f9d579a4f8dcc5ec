#include "daemon/cli/pods.h"

#include <filesystem>
#include <map>
#include <optional>

#include "daemon/base/container_id.h"

namespace heddle::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr size_t kIdDigits = 64;

// Kubernetes' names have no underscore. A long link is cut, which takes digits of the ID.
std::optional<json> pod_of(const std::string& link) {
  const size_t pod = link.find('_');
  const size_t space = link.find('_', pod + 1);
  const size_t id = link.rfind('-');
  if (pod == link.npos || space == link.npos || id == link.npos || id <= space) return {};
  return json{{"pod", link.substr(0, pod)},
              {"namespace", link.substr(pod + 1, space - pod - 1)},
              {"container", link.substr(space + 1, id - space - 1)}};
}

}  // namespace

void name_pods(json& processes, const std::string& directory) {
  std::multimap<std::string, json*> by_container;
  for (json& process : processes) {
    const std::string id = container_id_of(process.value("cgroup", ""));
    if (!id.empty()) by_container.emplace(id, &process);
  }
  if (by_container.empty()) return;
  std::error_code error;
  for (auto entry = fs::directory_iterator(directory, error);
       !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string link = entry->path().stem().string();
    if (link.size() <= kIdDigits) continue;
    const auto [first, last] = by_container.equal_range(link.substr(link.size() - kIdDigits));
    if (first == last) continue;
    const std::optional<json> pod = pod_of(link);
    for (auto found = first; pod && found != last; ++found) (*found->second)["pod"] = *pod;
  }
}

}  // namespace heddle::cli
