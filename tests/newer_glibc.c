// What the static libstdc++ and libgcc of today's g++ take from a C library newer than bullseye's:
// tests/setup.sh adds this to the sysroot's libc_nonshared.a, so that the linker takes it from there
// and only if something wants it. A newer g++ that wants more ends as an undefined symbol.
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#pragma GCC visibility push(hidden)

// "There may be other threads", which is always safe.
char __libc_single_threaded = 0;

uint32_t arc4random(void) {
  uint32_t value;
  if (getentropy(&value, sizeof value) != 0) abort();
  return value;
}

// glibc 2.38's, which know binary numbers too; libstdc++ 13 is built against it.
long __isoc23_strtol(const char* text, char** end, int base) { return strtol(text, end, base); }

unsigned long __isoc23_strtoul(const char* text, char** end, int base) {
  return strtoul(text, end, base);
}

unsigned long long __isoc23_strtoull(const char* text, char** end, int base) {
  return strtoull(text, end, base);
}
