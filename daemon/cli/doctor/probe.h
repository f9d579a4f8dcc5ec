// What `heddle doctor` looks at, gathered without judging it: one JSON document.
//
// The GPU's side is asked in a child process, so that a driver that hangs or dies costs one answer.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>

namespace heddle::cli {

// The driver as the shim finds it, and NVML's GPUs and processes:
//   driver: {path, version (cuDriverGetVersion) or error}
//   shim:   {path, protocol or error}
//   nvml:   {driver_version, memory_limits (it has limits by cgroup), gpus: [{index, name, uuid,
//            mig (it is divided into instances), memory (bytes; 0: unknown), compute_mode or
//            null, pids: [...], listed (NVML gave its processes)} or {index, error, pids: [],
//            listed: false}] or error}
// HEDDLE_NVML names another library than libnvidia-ml.so.1.
nlohmann::json probe_gpu();

// {directory, uid, pid (0: no process), shares_cgroup_with: pid or 0, static (it was started with
// static parts of the SMs), default_percentage (of the SMs; null: it does not say)} of the MPS
// control daemon whose pipes are in `directory`, or if that is "", where this environment names
// them; null where there is none.
nlohmann::json probe_mps(const std::string& directory, int daemon_pid);

// {NAME: value} of what MPS and the driver read in a process's environment and what changes how
// heddle can share the GPU: what the caller may see.
nlohmann::json probe_variables(int pid);

// {path, exists, mode, uid, writable, directory_mode, directory_uid} of the daemon's socket.
nlohmann::json probe_socket(const std::string& path);

// {ld_preload: [...], system_preload: [...], disabled, real_libcuda, mps_memory_limit,
// visible_devices}: entries are {path, exists}.
nlohmann::json probe_environment();

// {root, dmem (its processes may be held to device memory)} of the control groups, version 2.
// HEDDLE_CGROUP names another root than /sys/fs/cgroup.
nlohmann::json probe_cgroup();

// {processes: [{pid, exe}], mps: [pid], view}: who has a GPU open for CUDA without being attached
// or a child of such a one (a forked worker keeps its parent's descriptors), and without being
// known to compute nothing; `mps` are MPS' own processes. `view` says how far /proc shows who there
// is:
//   {host (this is the host's PID namespace), hidden (/proc leaves processes out),
//    unreadable: {count, uids} (of those whose descriptors the caller may not see)}
nlohmann::json probe_holders(const std::set<int>& attached);

// {pid, exe, service (known to compute nothing, or MPS), uid (null: no such process here), holds (a
// GPU is open; null: not to be seen), cgroup (the text of its /proc/PID/cgroup)}: what the caller
// may see.
nlohmann::json probe_process(int pid);

// Which entry points the installed driver has that the shim does not stand in for, by what the two
// files export; neither is run. For `heddle doctor`.
//
// A program finds those through cuGetProcAddress, whose answers the shim passes on if it knows no
// better, and through nothing else: dlsym asks the shim. The shim exports what it wraps as global
// symbols and what it passes on as weak ones (shim/driver/trampolines.S).

// {table (CUDA version of the shim's table, as cuDriverGetVersion has it), known (how many of the
// driver's the shim has), unknown: [names], past: [those that by their names launch, or are a newer
// version of what the shim wraps]}; {error} if one of the files cannot be read.
nlohmann::json probe_entry_points(const std::string& shim, const std::string& driver);

}  // namespace heddle::cli
