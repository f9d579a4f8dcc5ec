// How the command line asks the daemon.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "daemon/server/messages.h"

namespace heddle::cli {

// Exit codes of every command but a successful `heddle run`, which becomes the program.
enum ExitCode : int {
  kOk = 0,
  kFailed = 1,        // the daemon could not do it, or the program cannot be prepared
  kUsage = 2,         // bad command line
  kNoDaemon = 3,      // nobody listens on the socket
  kRefused = 4,       // the caller may not do this
  kNotPreloaded = 5,  // `run`: the program's loader would not take the shim
  kCannotRun = 126,   // `run`: the program cannot be executed
  kNotFound = 127,    // `run`: there is no such program
};

struct Answer {
  ExitCode code = kOk;
  std::string error;  // one line: place and remedy
  nlohmann::json json;
};

// `socket`: empty for the default one.
inline constexpr int kAnswerMs = 5'000;
Answer ask(const std::string& socket, const server::Request& request, int patience_ms = kAnswerMs);

// The same for a request whose answer is the beginning: the connection stays open, and `memory` is
// the descriptor that came with the answer. Both are the caller's; -1 if there is none.
Answer ask(const std::string& socket, const server::Request& request, int& connection, int& memory,
           int patience_ms = kAnswerMs);

// Every client, in as many pieces as it takes, with its pod's names; `truncated` where an older
// daemon has but one.
Answer ask_ps(const std::string& socket);

// The same where the answer is a document in a memory, which becomes its `json`.
Answer ask_for_document(const std::string& socket, server::Request::Kind kind);

// On standard output, in ASCII: names of programs and files may be any bytes, a terminal obeys some
// characters beyond it, and JSON can escape them all.
void write_json(const nlohmann::json& document);

// Says it on standard error, as JSON on standard output too if wanted; returns the exit status.
int show_error(bool as_json, const Answer& answer);

}  // namespace heddle::cli
