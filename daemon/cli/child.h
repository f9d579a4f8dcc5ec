// Programs that a command starts for a while, and a heddled for them that serves nobody else.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "daemon/profile/profile.h"

namespace heddle::cli {

double seconds_now();  // of a clock that never goes back
void nap();            // 20 ms

// A process in a group of its own, which is gone with this object.
class Child {
 public:
  // Where its output goes. kTalks: its standard input and output are say() and hear()'s, and only
  // its standard error goes to the log.
  enum class Output : uint8_t { kLog, kTalks };
  Child(const std::vector<std::string>& words, const std::filesystem::path& log,
        Output output = Output::kLog);
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child();

  bool ended();
  bool wait(double patience_s);
  void terminate();
  bool succeeded() const;

  void say(const std::string& line);
  std::optional<std::string> hear(double patience_s);  // the next line; none: it ended, or is late

 private:
  pid_t pid_ = -1;
  int talk_ = -1;
  std::string heard_;
  std::optional<int> status_;
};

// The last line of a file that is not empty, to be printed.
std::string last_line(const std::filesystem::path& file);

// Where this heddle and its heddled are.
std::filesystem::path own_folder();

// A heddled whose socket, profiles and log are in a folder.
class OwnDaemon {
 public:
  // Waits until it answers, or error() says why it does not. `lines` go into its [daemon] table.
  OwnDaemon(const std::filesystem::path& folder, uint32_t runs, const std::string& lines = "");

  const std::string& error() const { return error_; }
  const std::string& socket() const { return socket_; }
  // The words that start a program under it.
  std::vector<std::string> run_words(bool sim) const;
  std::vector<profiles::Profile> profiles() const;  // that it has written
  void stop();

 private:
  std::filesystem::path folder_;
  std::string socket_, error_;
  std::optional<Child> daemon_;
};

}  // namespace heddle::cli
