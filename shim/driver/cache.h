// The loader's cache of libraries, /etc/ld.so.cache: it knows the driver's place on any
// distribution, forward-compatibility directories included.
#pragma once

#include <cstddef>

namespace heddle::shim {

// Finds the path of a 64-bit x86 library in an image of the cache; false if it lists none. `skip`
// counts the matches to pass over. `path` points into the image. Any image is safe.
bool find_in_cache(const char* image, size_t size, const char* library, unsigned skip,
                   const char*& path);

}  // namespace heddle::shim
