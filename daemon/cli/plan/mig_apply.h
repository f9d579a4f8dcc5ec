// Makes a plan's MIG slices through NVML: `heddle plan jobs --apply --allow-mig`.
#pragma once

#include "daemon/cli/daemon.h"
#include "daemon/plan/mig.h"

namespace heddle::cli {

// What is there goes, and the layout's slices are made, each with one compute instance. Refused
// while any process runs on the GPU, by NVML's word, or is attached to heddled. Nothing is touched
// if the slices are there already, or if the layout is the whole GPU and MIG is off. `gpu`: NVML's
// index; -1: the only one.
//
// The answer's json: {gpu, changed, mig, slices: [{profile, start, uuid}]}.
Answer make_slices(const plan::Layout& layout, int gpu, size_t attached);

}  // namespace heddle::cli
