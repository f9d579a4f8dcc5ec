// Containers: `heddle cdi`, the Container Device Interface specification that puts a container
// under heddle, and `heddle cdi-hook`, which it has the container runtime call.
//
// The specification mounts the shim and the daemon's socket. How the shim gets in front of the
// driver is the hook's part: LD_PRELOAD or LD_LIBRARY_PATH in a specification would replace the
// image's own, and end every program of an image whose loader cannot take the shim (musl, a C
// library before the shim's floor). The hook sees the image's files: it adds the shim to its
// /etc/ld.so.preload, which musl never reads, or leaves everything as it is.
#pragma once

#include <filesystem>
#include <istream>
#include <nlohmann/json.hpp>
#include <string>

namespace heddle::cli {

// Where a container finds the shim, the socket, and the pipes of a managed MPS.
inline constexpr const char* kContainerLibraries = "/usr/lib/heddle";
inline constexpr const char* kContainerRun = "/run/heddle";
inline constexpr const char* kContainerMps = "/run/heddle-mps";

// The specification: devices `default`, `latency` and `batch` of the kind heddle/client.
// `mps_pipes`: the pipe directory of an MPS whose clients the containers are to be, "" if there is
// none.
nlohmann::json cdi_specification(const std::filesystem::path& heddle,
                                 const std::filesystem::path& libraries,
                                 const std::filesystem::path& socket,
                                 const std::filesystem::path& mps_pipes);

// Prints it, or writes it to `output` if that is not empty. Returns the exit code.
int run_cdi(const std::string& socket, const std::string& output);

// A createContainer hook: the container's state comes as JSON. It never fails, because then the
// container would not start: what is in the way goes to the system log and to standard error.
int run_cdi_hook(std::istream& state);

// Adds the shim to /etc/ld.so.preload below `root`, unless it would not load there or is there
// already. "", or why nothing was changed. No link of the image leads out of `root`, and what
// is mounted there is not written.
std::string preload_in(const std::filesystem::path& root, const std::filesystem::path& shim);

}  // namespace heddle::cli
