// Pods by the links of the kubelet: in heddle ps, its JSON, the metrics and heddle doctor.
#include "daemon/cli/pods.h"
#include "tests/folder.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>

namespace heddle::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class Pods : public ::testing::Test {
 protected:
  void link(const std::string& name) {
    fs::create_symlink("/var/log/pods/gone", folder_ / (name + ".log"));
  }
  json pod_of(const std::string& cgroup) {
    json all{{{"cgroup", "/user.slice"}}, {{"cgroup", cgroup}}, {{"cgroup", cgroup}}};
    name_pods(all, folder_);
    EXPECT_FALSE(all[0].contains("pod")) << "no container's";
    EXPECT_EQ(all[1], all[2]) << "two programs of one container";
    return all[1].value("pod", json());
  }

  const TestFolder made_;
  const fs::path folder_ = made_.path();
  const std::string id_ = std::string(63, '0') + 'a';
  const std::string cgroup_ = "/kubepods.slice/cri-containerd-" + id_ + ".scope";
};

TEST_F(Pods, ContainerIsNamedByTheKubeletsLink) {
  link("other-7_kube-system_agent-" + std::string(64, 'b'));
  link("api-5d9f_team-a_model-server-" + id_);
  EXPECT_EQ(pod_of(cgroup_),
            (json{{"namespace", "team-a"}, {"pod", "api-5d9f"}, {"container", "model-server"}}));
}

TEST_F(Pods, LinkOfAnotherShapeNamesNobody) {
  EXPECT_TRUE(pod_of(cgroup_).is_null()) << "an empty folder";
  link("api_team-" + id_);
  link("api_team_" + id_);
  link(id_);
  EXPECT_TRUE(pod_of(cgroup_).is_null());
  link("api_team_main-" + id_.substr(0, 60));  // cut, as that of a long name is
  EXPECT_TRUE(pod_of(cgroup_).is_null());
  fs::remove_all(folder_);
  EXPECT_TRUE(pod_of(cgroup_).is_null()) << "no kubelet here";
}

}  // namespace
}  // namespace heddle::cli
