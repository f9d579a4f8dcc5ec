#include "bench/workloads/stop_requests.h"

#include <errno.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>

#include "shim/driver/import.h"
#include "shim/link/log.h"

// What the table of objects takes from the shim besides.
namespace heddle::shim {
FileId file_id(int fd) {
  struct stat file;
  if (fstat(fd, &file) != 0) return {};
  return {file.st_dev, file.st_ino};
}
void log_line(const char*, ...) {}
}  // namespace heddle::shim

namespace heddle::workloads {
namespace {

using shim::Objects;

constexpr uint32_t kNoPermission = 0x1B;  // NV_ERR_INSUFFICIENT_PERMISSIONS

using Ioctl = int (*)(int, unsigned long, void*);
Ioctl driver_ioctl = nullptr;
Objects objects;

int seen_ioctl(int fd, unsigned long request, void* argument) {
  const int result = driver_ioctl(fd, request, argument);
  const int before = errno;
  if (result == 0 && _IOC_TYPE(request) == rm::kType) objects.observe(fd, request, argument);
  errno = before;
  return result;
}

// The driver's status, 0 is OK.
uint32_t ask(const Objects::Target& target, uint32_t command, void* parameters, uint32_t bytes) {
  rm::Control control{
      target.client, target.object, command, 0, reinterpret_cast<uint64_t>(parameters), bytes, ~0u};
  const int result = driver_ioctl(target.fd, rm::request_of<rm::Control>(rm::kControl), &control);
  return result == 0 ? control.status : ~0u;
}

uint32_t switch_channels(bool off) {
  Objects::Cursor at;
  Objects::Target subdevice;
  uint32_t status = 0;
  for (;;) {
    rm::DisableChannels request{};
    if (!objects.next_channels(at, subdevice, request)) return status;
    request.disable = off;
    if (const uint32_t s = ask(subdevice, rm::kDisableChannels, &request, sizeof request)) {
      status = s;
    }
  }
}

const char* why_not(ipc::StopAble able) {
  switch (able) {
    case ipc::kStopNoChannels:
      return "no channels of the driver were seen";
    case ipc::kStopUnknownClass:
      return "the driver has objects that this build does not know";
    case ipc::kStopShared:
      return "the driver shares its channels with other processes";
    case ipc::kStopTooMany:
      return "the driver has more channels than one call takes";
    default:
      return "the driver's objects are not what this build expects";
  }
}

}  // namespace

// As shim/stop/hook.cc does, which says why it is called once before.
void watch_requests(const void* inside) {
  void** places[4];
  const size_t found = std::min<size_t>(shim::find_imports(inside, "ioctl", places, 4), 4);
  for (size_t i = 0; i < found; ++i) {
    reinterpret_cast<Ioctl> (*places[i])(-1, 0, nullptr);
    driver_ioctl = reinterpret_cast<Ioctl>(*places[i]);
    if (!shim::replace_import(places[i], reinterpret_cast<void*>(seen_ioctl)))
      driver_ioctl = nullptr;
  }
  if (driver_ioctl == nullptr) no("the driver's requests cannot be seen");
}

void expect_channels() {
  if (const ipc::StopAble able = objects.able(); able != ipc::kStopYes) no(why_not(able));
}

void expect_ok(uint32_t status) {
  if (status == 0) return;
  char text[80];
  snprintf(text, sizeof text, "%s (status %#x)",
           status == kNoPermission ? "no rights" : "the driver refuses", status);
  no(text);
}

Standing::Standing() : status_(switch_channels(true)) {}

Standing::~Standing() {
  if (off_) switch_channels(false);
}

uint32_t Standing::on() {
  off_ = false;
  return switch_channels(false);
}

Slice::Slice(uint64_t us) {
  Objects::Target group;
  uint64_t own_us = 0;
  for (size_t at = 0; status_ == 0 && objects.next_group(at, group, own_us);) {
    rm::Timeslice own{own_us}, wanted{us};
    if (own_us == 0) status_ = ask(group, rm::kGetTimeslice, &own, sizeof own);
    if (status_ != 0) return;
    before_.emplace_back(group, own);
    status_ = ask(group, rm::kSetTimeslice, &wanted, sizeof wanted);
  }
}

Slice::~Slice() {
  for (auto& [group, own] : before_) ask(group, rm::kSetTimeslice, &own, sizeof own);
}

}  // namespace heddle::workloads
