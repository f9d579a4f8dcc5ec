// Finds and replaces the imports of one loaded library. Other libraries keep theirs.
#pragma once

#include <cstddef>

namespace heddle::shim {

// Finds the places where the library that contains `address` keeps the address of the imported
// `symbol`, and writes up to `most` of them. Returns how many there are. Takes the loader's lock.
size_t find_imports(const void* address, const char* symbol, void*** places, size_t most);

// Stores `function` there, and gives the pages back the protection that they had. False: it could
// not, and nothing changed.
bool replace_import(void** place, void* function);

}  // namespace heddle::shim
