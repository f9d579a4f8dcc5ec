#include "commit.inc"

// For `heddle doctor`, which names a shim of another build than its own.
extern "C" {
extern __attribute__((visibility("default"))) const char heddle_shim_commit[];
const char heddle_shim_commit[] = HEDDLE_COMMIT;
}
