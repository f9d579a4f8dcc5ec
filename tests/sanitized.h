// HEDDLE_SANITIZED: this build runs under a sanitizer, by gcc's macros or by clang's.
#pragma once

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HEDDLE_SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HEDDLE_SANITIZED
#endif
#endif
