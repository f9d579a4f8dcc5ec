// The kernel module under the simulated driver: what it knows of this process, and its answers. It
// refuses what a real one would: unknown handles, a descriptor that is not the client's, commands
// that nobody here needs. A child of fork has no objects.
//
// Slices of the compute group and channels that are switched off reach the owner of the GPU
// (CommandKind::kSlice and following), who answers one such call at a time, whoever asks. One
// disabled compute channel stops the process, as one channel costs as much as all on an H200.
// HEDDLE_SIM_STOPS=0 makes a driver that does not switch channels off.
#pragma once

namespace heddle::sim {

// Stands in the import of `ioctl`. Any thread.
int answer_ioctl(int descriptor, unsigned long request, void* argument);

}  // namespace heddle::sim
