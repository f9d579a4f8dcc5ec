// Words of device memory and streams that use them, in an order that the host knows.
//
// A thread's own. Every word has a value that the host computes as well, and a stream that used it
// last. Another stream that is to use it is ordered behind that one, in one of the ways that CUDA
// has. So the words depend on that order alone, whatever else holds the launches back.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <random>
#include <vector>

#include "tests/fault/gate_program.h"

namespace heddle::fault {

inline constexpr size_t kCells = 20, kCreated = 4, kStreams = kCreated + 2;
inline constexpr size_t kPinned = 2048;  // words for copies, each used once between two waits
inline constexpr size_t kFlags = 1024;   // words that streams wait for

class OrderedWords {
 public:
  OrderedWords(uint64_t seed, bool writes_words) : random_(seed), writes_words_(writes_words) {}
  bool right() const { return right_; }
  uint64_t digest() const { return digest_; }

 protected:
  struct Cell {
    uint64_t value = 0;
    size_t stream = 0;  // that used it last
  };
  struct Read {
    size_t pinned;
    uint64_t value;
  };

  uint32_t draw(size_t below) { return static_cast<uint32_t>(random_() % below); }
  CUdeviceptr at(size_t cell) const { return words_ + cell * sizeof(uint64_t); }
  CUdeviceptr flag(size_t stream) { return address(&flags_[flag_of_[stream]]); }

  void begin() {
    DO(cu.cuMemAlloc_v2(&words_, kCells * sizeof(uint64_t)));
    DO(cu.cuMemsetD8_v2(words_, 0, kCells * sizeof(uint64_t)));
    void* pinned = nullptr;
    DO(cu.cuMemHostAlloc(&pinned, kPinned * sizeof(uint64_t), 0));
    pinned_ = static_cast<uint64_t*>(pinned);
    void* const page = mmap(nullptr, kFlags * sizeof *flags_, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    flags_ = static_cast<std::atomic<uint32_t>*>(page);
    DO(more.enlist(page, kFlags * sizeof *flags_, kHostRegisterPortable | kHostRegisterDeviceMap));
    DO(cu.cuEventCreate(&event_, draw(2) * CU_EVENT_DISABLE_TIMING));
    streams_[kCreated] = CU_STREAM_LEGACY;
    streams_[kCreated + 1] = CU_STREAM_PER_THREAD;
    for (size_t i = 0; i < kCreated; ++i) create(i);
    for (size_t i = 0; i < kStreams; ++i) flag_of_[i] = next_flag_++;
  }

  void create(size_t i) {
    blocking_[i] = draw(2) == 0;
    DO(cu.cuStreamCreateWithPriority(&streams_[i], blocking_[i] ? 0 : 1,
                                     -static_cast<int>(draw(3))));
  }

  void compare(uint64_t found, uint64_t expected, const char* what) {
    digest_ = digest_ * kStateFactor + found;
    if (found == expected) return;
    right_ = false;
    fprintf(stderr, "operation %llu: %s is %016llx, not %016llx\n",
            static_cast<unsigned long long>(place->done.load()), what,
            static_cast<unsigned long long>(found), static_cast<unsigned long long>(expected));
  }

  // All is done, and what was read is looked at.
  void settle() {
    DO(cu.cuCtxSynchronize());
    for (const Read& read : reads_) compare(pinned_[read.pinned], read.value, "what was read");
    reads_.clear();
    next_pinned_ = 0;
  }
  size_t pinned(size_t count) {
    if (next_pinned_ + count > kPinned) settle();
    next_pinned_ += count;
    return next_pinned_ - count;
  }

  // ---- order ----

  bool in_order_anyhow(size_t one, size_t other) const {
    constexpr size_t kLegacy = kCreated;
    const auto blocks = [&](size_t i) { return i > kLegacy || blocking_[i]; };
    return (one == kLegacy && blocks(other)) || (other == kLegacy && blocks(one));
  }

  // What `to` gets from now on comes after all that `from` has.
  void follow(size_t from, size_t to) {
    if (from == to || (in_order_anyhow(from, to) && draw(2) == 0)) return;
    switch (draw(12)) {
      case 0:
        DO(cu.cuStreamSynchronize(streams_[from]));
        return;
      case 1:
        DO(cu.cuEventRecord(event_, streams_[from]));
        DO(cu.cuEventSynchronize(event_));
        return;
      case 2:
        while (cu.cuStreamQuery(streams_[from]) == CUDA_ERROR_NOT_READY) {
          place->call = "cuStreamQuery";
          usleep(50);
        }
        return;
      case 3:
        if (!writes_words_) break;
        DO(more.write(streams_[from], flag(from), ++passed_[from], 0));
        DO(more.wait(streams_[to], flag(from), passed_[from], CU_STREAM_WAIT_VALUE_GEQ));
        return;
      default:
        break;
    }
    DO(cu.cuEventRecord(event_, streams_[from]));
    DO(cu.cuStreamWaitEvent(streams_[to], event_, 0));
  }
  void use(size_t cell, size_t stream) {
    follow(cells_[cell].stream, stream);
    cells_[cell].stream = stream;
  }

  // The handle may be another stream's next, and its work goes on.
  void renew(size_t i) {
    const size_t heir = (i + 1) % kStreams;
    DO(cu.cuEventRecord(event_, streams_[i]));
    DO(cu.cuStreamWaitEvent(streams_[heir], event_, 0));
    for (Cell& cell : cells_) cell.stream = cell.stream == i ? heir : cell.stream;
    DO(cu.cuStreamDestroy_v2(streams_[i]));
    create(i);
    passed_[i] = 0;
    if (next_flag_ < kFlags) {
      flag_of_[i] = next_flag_++;
    } else {
      settle();
      flags_[flag_of_[i]] = 0;
    }
  }

  // Looks at all of them.
  void finish() {
    settle();
    for (size_t i = 0; i < kCells; ++i) {
      uint64_t found = 0;
      DO(cu.cuMemcpyDtoH_v2(&found, at(i), sizeof found));
      compare(found, cells_[i].value, "a word");
    }
  }

  std::mt19937_64 random_;
  const bool writes_words_;
  CUdeviceptr words_ = 0;
  uint64_t* pinned_ = nullptr;
  size_t next_pinned_ = 0;
  std::atomic<uint32_t>* flags_ = nullptr;
  size_t next_flag_ = 1;  // the first is the host's
  size_t flag_of_[kStreams] = {};
  uint32_t passed_[kStreams] = {};  // what a stream's flag gets next, less one
  CUstream streams_[kStreams] = {};
  bool blocking_[kCreated] = {};
  CUevent event_ = nullptr;
  Cell cells_[kCells];
  std::vector<Read> reads_;
  uint64_t digest_ = 0;
  bool right_ = true;
};

}  // namespace heddle::fault
