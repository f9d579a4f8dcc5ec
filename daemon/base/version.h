// What the programs say of themselves.
#pragma once

namespace heddle {

// "0.1.0 (24ad65a)": the version, and the commit that was built; "-dirty" where the tree differed
// from it, "unknown" where there was no git.
const char* version_text();

}  // namespace heddle
