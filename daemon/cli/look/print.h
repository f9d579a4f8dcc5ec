// The daemon's answers as people read them.
#pragma once

#include <nlohmann/json.hpp>
#include <ostream>
#include <set>
#include <string>
#include <vector>

namespace heddle::cli {

inline constexpr size_t kColumns = 80;  // of a terminal

// Text of others, made safe for a terminal and never empty.
std::string printable(std::string text);

// One number by printf's format.
std::string fixed(const char* format, double value);

// The rule of a client, or of the answer to `effective`, with what it gives besides the priority.
std::string rule_text(const nlohmann::json& grade);

// Columns as wide as their longest cell, so many spaces between.
using Row = std::vector<std::string>;
void print_table(std::ostream& out, const std::vector<Row>& rows, size_t spaces = 2);

// Of a device of a client: what others may add to one of its gaps, and how often it was more.
std::string added_text(const nlohmann::json& device);
// The same: GiB that it uses, or its group of that group's limit.
std::string memory_text(const nlohmann::json& device);
std::string clock_text(const nlohmann::json& client);
// Its pod and container as name_pods() found them; "": none.
std::string pod_text(const nlohmann::json& process);
// Whether what runs of it can be stopped, and how often it was; "" under MPS.
std::string stops_text(const nlohmann::json& client, const nlohmann::json& device);
// Where its launches wait, and why there; "" if the daemon does not say so.
std::string held_text(const nlohmann::json& client, const nlohmann::json& device);

// Its promises and how they are kept: "promise 1.10: now 1.25, 6 of 6 blocks broken, by slots",
// "promise p99 1.20: ..."; none, or an older daemon does not say. `broken`: by the last block.
struct PromiseText {
  std::string text, by;
  bool broken = false;
};
std::vector<PromiseText> promise_texts(const nlohmann::json& device);
// What it uses of the channels that a rule limits: "uses dram 0.28 of 0.30 beside others"; "": none
// is.
std::string ceilings_text(const nlohmann::json& device);

// A line of 80 columns at most for each client and GPU. Clients that the reader may see in full
// come first, and of these the most important.
void print_ps(std::ostream& out, const nlohmann::json& answer);
// The same, and below what no column has.
void print_ps_notes(std::ostream& out, const nlohmann::json& answer);
// What the columns of ps, the lines of status are, for --help.
std::string ps_help();
std::string status_help();
void print_mps(std::ostream& out, const nlohmann::json& answer);
// Of a rule whose user or group is not known: status's config.unresolved.
std::string unresolved_text(const nlohmann::json& rule);
// A kept answer of a GPU: "yes, 0.63 ms to stop and go on, asked 2026-11-29", "no: ...".
std::string stop_text(const nlohmann::json& answer);
// What a status says of all; none: an older daemon says nothing.
std::vector<std::string> stop_texts(const nlohmann::json& status);
void print_status(std::ostream& out, const nlohmann::json& answer);
void print_policies(std::ostream& out, const nlohmann::json& answer);
void print_policy(std::ostream& out, const nlohmann::json& answer);

// The clients' PIDs in an answer of `ps`; and whether these are all, which older daemons do not say
// of many clients.
std::set<int> attached_pids(const nlohmann::json& answer);
bool knows_all_pids(const nlohmann::json& answer);

}  // namespace heddle::cli
