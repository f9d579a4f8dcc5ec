// The few pieces of the C++ run-time library that Cap'n Proto refers to. libstdc++'s own would
// bring an emergency pool with a constructor into every program that the shim is loaded into.
//
// None of this runs: the shim allocates nothing when it builds its messages, and has no guarded
// function-local statics. The linker needs these definitions, and they are correct all the same.
#include <sched.h>
#include <stdlib.h>

#include <cstddef>
#include <cstdint>

void* operator new(size_t bytes) {
  void* memory = malloc(bytes);
  if (memory == nullptr) abort();
  return memory;
}
void operator delete(void* memory) noexcept { free(memory); }
void operator delete(void* memory, size_t) noexcept { free(memory); }

extern "C" {

// Guards of function-local statics. Byte 0: initialized; byte 1: a thread is initializing.
int __cxa_guard_acquire(uint8_t* guard) {
  while (__atomic_load_n(&guard[0], __ATOMIC_ACQUIRE) == 0) {
    if (__atomic_exchange_n(&guard[1], 1, __ATOMIC_ACQUIRE) == 0) {
      if (__atomic_load_n(&guard[0], __ATOMIC_ACQUIRE) == 0) return 1;
      __atomic_store_n(&guard[1], 0, __ATOMIC_RELEASE);
    }
    sched_yield();
  }
  return 0;
}
void __cxa_guard_release(uint8_t* guard) {
  __atomic_store_n(&guard[0], 1, __ATOMIC_RELEASE);
  __atomic_store_n(&guard[1], 0, __ATOMIC_RELEASE);
}

// Type descriptions (RTTI) point at these vtables. The shim never uses a type at run time.
extern const void* const heddle_class_type[11] __asm__("_ZTVN10__cxxabiv117__class_type_infoE");
extern const void* const heddle_si_class_type[11] __asm__(
    "_ZTVN10__cxxabiv120__si_class_type_infoE");
const void* const heddle_class_type[11] = {};
const void* const heddle_si_class_type[11] = {};

}  // extern "C"
