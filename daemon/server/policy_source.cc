#include "daemon/server/policy_source.h"

namespace heddle::server {

Result<Prepared> prepare(Generation generation, size_t instances) {
  Prepared prepared{std::move(generation), {}};
  for (size_t i = 0; prepared.generation.make && i < instances; ++i) {
    Result<std::unique_ptr<core::Policy>> made = prepared.generation.make();
    if (!made) return tl::unexpected<Error>(std::move(made.error()));
    prepared.instances.push_back(std::move(*made));
  }
  return prepared;
}

Result<std::unique_ptr<core::Policy>> take_instance(const Generation& generation,
                                                    Instances& spare) {
  if (spare.empty()) return generation.make();
  std::unique_ptr<core::Policy> taken = std::move(spare.back());
  spare.pop_back();
  return taken;
}

}  // namespace heddle::server
