// A driver for shim/stop/ that keeps what it was asked, and the objects of a process, made by
// requests as libcuda makes them.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "shim/link/inside.h"
#include "shim/stop/hook.h"
#include "shim/stop/lever.h"

namespace heddle::shim {

// One request of the lever's.
struct Asked {
  int fd;
  rm::Handle client, object;
  uint32_t command;
  bool off = false;                    // kDisableChannels
  std::vector<rm::Handle> channels{};  // the same
  uint64_t us = 0;                     // kSetTimeslice
};

constexpr uint32_t kGr0 = 1, kCopy0 = 9;  // engines
constexpr uint32_t kHopperChannel = 0xc86f;

class Stops : public ::testing::Test {
 protected:
  Stops();
  ~Stops() override;

  // What libcuda asks and the driver answers.
  template <class Request>
  void observe(rm::Escape escape, const Request& request) {
    objects().observe(fd_, rm::request_of<Request>(escape), &request);
  }
  void alloc(rm::Handle client, rm::Handle parent, rm::Handle object, uint32_t of_class,
             const void* parameters = nullptr, uint32_t size = 0, uint32_t status = 0);
  void make_device(rm::Handle client, rm::Handle device, uint32_t number);
  void make_group(rm::Handle device, rm::Handle group, uint32_t engine);
  void free(rm::Handle object);
  void set_slice(rm::Handle group, uint64_t us, uint32_t status = 0);
  // Client 1, device 2, subdevice 3, compute group 4 with channels 5 and 6, another group 7 with
  // channel 8; a slice of 2 048 us.
  void make_context();

  Lever::Next look() { return lever_.look(control_.get(), client_.get(), now_ns_); }
  void order(ipc::StopOrder order, uint32_t device = 0);
  // Those since the last call.
  static std::vector<Asked> asked();
  static void refuse(int requests);  // the next ones of the lever
  void beat() { control_->header.heartbeat_ns = now_ns_; }
  uint32_t able() const { return client_->threads[0].stop_able; }
  uint32_t done() const { return client_->threads[0].stop_done; }

  int fd_ = -1;
  int64_t now_ns_ = 1'000'000'000;
  Lever lever_;
  std::unique_ptr<ipc::ControlMemory> control_ = std::make_unique<ipc::ControlMemory>();
  std::unique_ptr<ipc::ClientMemory> client_ = std::make_unique<ipc::ClientMemory>();
};

}  // namespace heddle::shim
