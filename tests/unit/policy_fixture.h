// A Lua policy under test, on a fake core.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "daemon/policy/lua_policy.h"
#include "tests/unit/fake_gpu.h"

namespace heddle::policy {

using core::HookResult;

inline Source text(std::string body) { return {std::move(body), "test.lua", ""}; }

// A policy with the given hooks.
inline std::string with_hooks(const std::string& hooks, const std::string& before = "") {
  return before + "\nreturn policy { name = \"test\", api = 1, version = \"1\", hooks = { " +
         hooks + " } }";
}

inline void expect_contains(const std::string& whole, std::string_view part) {
  EXPECT_NE(whole.find(part), whole.npos) << "'" << whole << "' lacks '" << part << "'";
}

class PolicyTest : public ::testing::Test {
 protected:
  PolicyTest() {
    LaunchView k;
    k.client = 1;
    k.predicted_us = 100;
    k.priority = 9;
    std::strcpy(facts_.name, "gemm");
    k.facts = &facts_;
    k.metrics = &facts_.metrics;
    gpu_.launches[7] = k;
  }

  void load(const std::string& body, const ParamValues& values = {}) {
    auto loaded = load_policy(text(body), values, limits_);
    ASSERT_TRUE(loaded) << loaded.error().message;
    policy_ = std::move(*loaded);
    ASSERT_EQ(policy_->init(gpu_), HookResult::kDefault);
  }

  // Loads a policy whose dispatch is `body`, and calls it.
  core::DispatchVerdict dispatch(const std::string& body, const std::string& before = "") {
    load(with_hooks("dispatch = function(g, p) " + body + " end", before));
    return policy_ ? policy_->dispatch(gpu_) : core::DispatchVerdict{};
  }

  void expect_fault(std::string_view kind, std::string_view message) {
    ASSERT_NE(policy_, nullptr);
    EXPECT_EQ(policy_->last_fault().kind, kind);
    expect_contains(policy_->last_fault().message, message);
  }

  FakeGpu gpu_;
  ipc::KernelFacts facts_{};
  Limits limits_;
  std::unique_ptr<LuaPolicy> policy_;
};

}  // namespace heddle::policy
