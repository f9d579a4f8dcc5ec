#include "daemon/base/version.h"

#include "commit.inc"

namespace heddle {

const char* version_text() { return HEDDLE_VERSION "+" HEDDLE_COMMIT; }

const char* tree_hashes() { return HEDDLE_TREES; }

}  // namespace heddle
