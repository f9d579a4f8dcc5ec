// Memory for the length of a slow call: a mapping of its own, because the thread's stack may be
// small, and the heap is the application's.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <span>

namespace heddle::shim {

class Pages {
 public:
  explicit Pages(size_t bytes) : bytes_(bytes) {
    void* const got =
        bytes > 0 ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                  : MAP_FAILED;
    memory_ = got != MAP_FAILED ? static_cast<std::byte*>(got) : nullptr;
  }
  ~Pages() {
    if (memory_ != nullptr) munmap(memory_, bytes_);
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  explicit operator bool() const { return memory_ != nullptr; }

  // The next `count` objects, all zeros. The caller takes those of the largest alignment first.
  template <class T>
  std::span<T> take(size_t count) {
    const std::span<T> taken{reinterpret_cast<T*>(memory_ + used_), count};
    used_ += taken.size_bytes();
    return taken;
  }

 private:
  std::byte* memory_ = nullptr;
  const size_t bytes_;
  size_t used_ = 0;
};

}  // namespace heddle::shim
