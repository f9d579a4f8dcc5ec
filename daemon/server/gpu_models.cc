#include "daemon/server/gpu_models.h"

#include <filesystem>

#include "daemon/profile/gpu_model.h"

namespace heddle::server {

std::string installed_gpu_models() {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  return (self.parent_path().parent_path() / "share/heddle/gpu").string();
}

void use_gpu_model(core::Scheduler& scheduler, const std::string& directory, const std::string& gpu,
                   Log& log) {
  Result<core::DeviceModel> model = profiles::find_gpu_model(directory, gpu);
  if (!model) {
    log.info(kSomeClient, "gpu_model_unknown",
             {{"gpu", gpu},
              {"reason", model.error().message},
              {"hint", "until then prices of promises are an H100's"}});
    return;
  }
  log.info(kSomeClient, "gpu_model", {{"gpu", gpu}, {"model", model->gpu}});
  scheduler.set_device_model(*model);
}

}  // namespace heddle::server
