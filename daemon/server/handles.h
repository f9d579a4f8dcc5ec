// Owners for descriptors and libuv handles. The only place that knows how libuv wants a handle
// closed: its memory must outlive the close callback, also when the owner dies inside the handle's
// own callback.
#pragma once

#include <unistd.h>
#include <uv.h>

#include <functional>
#include <string>
#include <utility>

namespace heddle::server {

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

// A libuv handle of type H with the function that it calls.
template <class H, class... Args>
class Handle {
 public:
  explicit Handle(std::function<void(Args...)> ready) : block_(new Block{{}, std::move(ready)}) {
    block_->handle.data = block_;
  }
  ~Handle() {
    uv_close(reinterpret_cast<uv_handle_t*>(&block_->handle),
             [](uv_handle_t* handle) { delete static_cast<Block*>(handle->data); });
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  H* get() { return &block_->handle; }
  static void call(void* data, Args... args) { static_cast<Block*>(data)->ready(args...); }

 private:
  struct Block {
    H handle;
    std::function<void(Args...)> ready;
  };
  Block* block_;
};

// Calls `ready` while `fd` is readable. Must die before the descriptor is closed.
class FdWatch {
 public:
  FdWatch(uv_loop_t* loop, int fd, std::function<void()> ready) : poll_(std::move(ready)) {
    uv_poll_init(loop, poll_.get(), fd);
    uv_poll_start(poll_.get(), UV_READABLE,
                  [](uv_poll_t* poll, int, int) { Handle<uv_poll_t>::call(poll->data); });
  }
  ~FdWatch() { uv_poll_stop(poll_.get()); }

 private:
  Handle<uv_poll_t> poll_;
};

class Timer {
 public:
  Timer(uv_loop_t* loop, std::function<void()> ready) : timer_(std::move(ready)) {
    uv_timer_init(loop, timer_.get());
  }
  // Fires once, `ms` from now; started again it waits anew.
  void start(uint64_t ms) {
    uv_update_time(timer_.get()->loop);
    uv_timer_start(
        timer_.get(), [](uv_timer_t* timer) { Handle<uv_timer_t>::call(timer->data); }, ms, 0);
  }
  bool started() { return uv_is_active(reinterpret_cast<uv_handle_t*>(timer_.get())) != 0; }

 private:
  Handle<uv_timer_t> timer_;
};

// Calls `changed` with the name of a changed entry of a directory. The directory's own name: it may
// have been moved or removed, and then there are no more calls.
class DirectoryWatch {
 public:
  DirectoryWatch(uv_loop_t* loop, const std::string& path, std::function<void(const char*)> changed)
      : event_(std::move(changed)) {
    uv_fs_event_init(loop, event_.get());
    error_ = uv_fs_event_start(
        event_.get(),
        [](uv_fs_event_t* event, const char* name, int, int) {
          Event::call(event->data, name == nullptr ? "" : name);
        },
        path.c_str(), 0);
  }
  int error() const { return error_; }  // 0, or libuv's error

 private:
  using Event = Handle<uv_fs_event_t, const char*>;
  Event event_;
  int error_;
};

class SignalWatch {
 public:
  SignalWatch(uv_loop_t* loop, int number, std::function<void()> caught)
      : signal_(std::move(caught)) {
    uv_signal_init(loop, signal_.get());
    uv_signal_start(
        signal_.get(), [](uv_signal_t* signal, int) { Handle<uv_signal_t>::call(signal->data); },
        number);
  }

 private:
  Handle<uv_signal_t> signal_;
};

}  // namespace heddle::server
