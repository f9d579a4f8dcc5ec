// What the programs say of themselves.
#pragma once

namespace heddle {

// "0.1.0+git20261129.033045.24ad65a": the release, and the commit that was built, its time in UTC
// first, so that later builds sort behind; ".dirty" where the tree differed from it, "+unknown"
// where there was no git. Programs, messages and packages all say this one.
const char* version_text();

}  // namespace heddle
