#include "daemon/server/keeper.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

namespace heddle::server {
namespace {

// As a unit heddled sees no GPU, and ends with all that it has begun. So a keeper is a unit of its
// own.
std::vector<std::string> command(const std::string& heddle) {
  std::vector<std::string> words;
  if (geteuid() == 0 && getenv("INVOCATION_ID") != nullptr &&
      access("/run/systemd/system", F_OK) == 0) {
    words = {"systemd-run", "--quiet", "--collect", "--pipe", "--wait"};
    for (const char* name : {"HEDDLE_REAL_LIBCUDA", "LD_LIBRARY_PATH"}) {
      if (const char* value = getenv(name)) {
        words.push_back(std::string("--setenv=") + name + '=' + value);
      }
    }
  }
  words.push_back(heddle);
  words.push_back("keeper");
  return words;
}

}  // namespace

Keeper::Keeper(Said said)
    : said_(std::move(said)), process_([this] {
        const Said said = said_;  // outlives this object, which the call may end
        said("ended", "");
      }) {}

Result<std::unique_ptr<Keeper>> Keeper::begin(uv_loop_t* loop, pid_t pid, uint64_t bytes,
                                              Said said) {
  std::error_code unread;
  const std::filesystem::path own = std::filesystem::read_symlink("/proc/self/exe", unread);
  const std::string heddle = own.parent_path() / "heddle";
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return fail(std::string("no socket for a keeper: ") + strerror(errno));
  }
  const Descriptor theirs(ends[1]);
  std::unique_ptr<Keeper> keeper(new Keeper(std::move(said)));
  keeper->line_ = Descriptor(ends[0]);
  std::vector<std::string> words = command(heddle);
  for (const std::string& word : {std::to_string(pid), std::to_string(bytes)}) {
    words.push_back(word);
  }
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  uv_stdio_container_t files[3] = {};
  files[0].flags = files[1].flags = files[2].flags = UV_INHERIT_FD;
  files[0].data.fd = files[1].data.fd = theirs.get();
  files[2].data.fd = 2;
  uv_process_options_t options{};
  options.file = arguments[0];
  options.args = arguments.data();
  options.stdio = files;
  options.stdio_count = 3;
  options.exit_cb = [](uv_process_t* process, int64_t, int) {
    Handle<uv_process_t>::call(process->data);
  };
  const int error = uv_spawn(loop, keeper->process_.get(), &options);
  if (error != 0) return fail(heddle + ": " + uv_strerror(error));
  keeper->watch_ =
      std::make_unique<FdWatch>(loop, keeper->line_.get(), [k = keeper.get()] { k->hear(); });
  return keeper;
}

void Keeper::bring_back() { (void)send(line_.get(), "back", 4, MSG_DONTWAIT | MSG_NOSIGNAL); }

// Its end is told by its process.
void Keeper::hear() {
  char text[512];
  const ssize_t length = recv(line_.get(), text, sizeof text, MSG_DONTWAIT);
  if (length <= 0) return watch_.reset();
  const std::string line(text, static_cast<size_t>(length));
  const size_t space = line.find(' ');
  said_(line.substr(0, space), space == std::string::npos ? "" : line.substr(space + 1));
}

}  // namespace heddle::server
