// What the programs say of themselves.
#pragma once

namespace heddle {

// "0.1.0+git20261129.033045.24ad65a": the release, and the commit that was built, its time in UTC
// first, so that later builds sort behind; ".dirty" where the tree differed from it, "+unknown"
// where there was no git. Programs, messages and packages all say this one.
const char* version_text();

// Git's tree hashes of the launch path's folders at that commit, "shim 1f0c... ipc 77ab... ...";
// empty where there was no git. A result keeps them: whether a launch takes the same path today is
// seen.
const char* tree_hashes();

}  // namespace heddle
