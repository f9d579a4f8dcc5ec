#include "commit.inc"

// `heddle doctor` compares this with its own commit, and reports a shim of another build.
extern "C" {
extern __attribute__((visibility("default"))) const char heddle_shim_commit[];
const char heddle_shim_commit[] = HEDDLE_COMMIT;
}
