// A scenario file that holds many: its keys are of all of them, [pair.NAME] and [variant.NAME] have
// what one has instead, and [program.NAME] what a job runs. Tables of a pair and its variant add
// up. For scenario.cc alone.
//
//   [[job]]                                   [pair.detector]
//   name = "H"                                programs = { H = "maskrcnn", L = "vgg16" }
//   role = "latency"                          [variant.rare]
//   ...                                       jobs.H.arrivals = "open 5"
//
// are the scenarios "detector" and "detector_rare".
#pragma once

#include <string>

#include "daemon/base/toml.h"

namespace heddle::scenario {

// Makes the scenario `name` of the file's tables. The error is "" or one line, as of load(). `text`
// is what `root` was parsed from.
std::string choose_pair(toml::table& root, const std::string& text, const std::string& file,
                        const std::string& name);

}  // namespace heddle::scenario
