// What a loaded library imports, and putting something else there: for that library alone.
#pragma once

#include <cstddef>

namespace heddle::shim {

// The places in which the library that holds `address` keeps the address of `symbol`, which it
// imports; as many as `places` has room for. Returns how many there are. Takes the loader's lock.
size_t find_imports(const void* address, const char* symbol, void*** places, size_t most);

// Stores `function` there, and gives the pages back the protection that they had. False: it could
// not, and nothing changed.
bool replace_import(void** place, void* function);

}  // namespace heddle::shim
