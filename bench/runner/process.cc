#include "bench/runner/process.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <set>

extern char** environ;

namespace heddle::bench {
namespace {

constexpr uint64_t kNsPerS = 1'000'000'000;
constexpr double kReapS = 10;  // a killed process that does not go hangs in the driver

struct Write {
  uv_write_t request;
  std::string text;
};

// Our environment with `more` on top, as execve wants it.
std::vector<std::string> environment(const Environment& more) {
  std::vector<std::string> out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (more.count(text.substr(0, text.find('='))) == 0) out.push_back(text);
  }
  for (const auto& [key, value] : more) out.push_back(key + "=" + value);
  return out;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

cpu_set_t set_of(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(cpu, &set);
  return set;
}

// A child inherits the affinity of the thread that starts it.
class Pinned {
 public:
  explicit Pinned(const std::vector<int>& cpus) {
    if (cpus.empty()) return;
    const cpu_set_t set = set_of(cpus);
    pinned_ = sched_getaffinity(0, sizeof before_, &before_) == 0 &&
              sched_setaffinity(0, sizeof set, &set) == 0;
  }
  ~Pinned() {
    if (pinned_) sched_setaffinity(0, sizeof before_, &before_);
  }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

 private:
  cpu_set_t before_;
  bool pinned_ = false;
};

}  // namespace

double monotonic_s() { return static_cast<double>(uv_hrtime()) / static_cast<double>(kNsPerS); }

Loop::Loop() {
  signal(SIGPIPE, SIG_IGN);
  uv_loop_init(&loop_);
  uv_timer_init(&loop_, &timer_);
  const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
  for (size_t i = 0; i < 3; ++i) {
    uv_signal_init(&loop_, &signals_[i]);
    signals_[i].data = this;
    uv_signal_start(
        &signals_[i], [](uv_signal_t* s, int) { static_cast<Loop*>(s->data)->interrupted_ = true; },
        numbers[i]);
  }
}

Loop::~Loop() {
  uv_close(reinterpret_cast<uv_handle_t*>(&timer_), nullptr);
  for (uv_signal_t& watch : signals_) uv_close(reinterpret_cast<uv_handle_t*>(&watch), nullptr);
  uv_run(&loop_, UV_RUN_DEFAULT);
  uv_loop_close(&loop_);
}

bool Loop::wait(double seconds, const std::function<bool()>& done) {
  const bool reached = settle(seconds, [&] { return interrupted_ || done(); });
  if (interrupted_) throw Interrupted();
  return reached;
}

bool Loop::settle(double seconds, const std::function<bool()>& done) {
  const double deadline = monotonic_s() + seconds;
  for (;;) {
    if (done()) return true;
    const double left_s = deadline - monotonic_s();
    if (left_s <= 0) return false;
    uv_update_time(&loop_);
    uv_timer_start(
        &timer_, [](uv_timer_t*) {}, static_cast<uint64_t>(left_s * 1e3) + 1, 0);
    uv_run(&loop_, UV_RUN_ONCE);
    uv_timer_stop(&timer_);
  }
}

void Loop::sleep(double seconds) {
  wait(seconds, [] { return false; });
}

struct Process::State {
  uv_process_t process{};
  uv_pipe_t in{}, out{};
  int open = 0;  // handles whose close callback is still to come
  bool owned = true;
  bool running = false;
  bool talks = false;
  bool ended = false;  // nothing more comes from stdout
  int pid = 0;
  int status = 0;
  char buffer[1 << 16];
  std::string partial;
  std::deque<std::string> lines;

  void close(uv_handle_t* handle) {
    if (uv_is_closing(handle) != 0) return;
    uv_close(handle, [](uv_handle_t* h) {
      auto* state = static_cast<State*>(h->data);
      if (--state->open == 0 && !state->owned) delete state;
    });
  }

  void read(ssize_t count) {
    if (count < 0) {
      ended = true;
      return close(reinterpret_cast<uv_handle_t*>(&out));
    }
    const size_t fresh = partial.size();
    partial.append(buffer, static_cast<size_t>(count));
    size_t begin = 0;
    for (size_t at = fresh; (at = partial.find('\n', at)) != std::string::npos;) {
      lines.push_back(partial.substr(begin, at - begin));
      begin = ++at;
    }
    partial.erase(0, begin);
  }
};

Process::Process(Loop& loop, const Spawn& spawn) : loop_(loop), state_(new State) {
  State& s = *state_;
  s.talks = spawn.talks;
  std::vector<std::string> words = spawn.command;
  std::vector<std::string> variables = environment(spawn.environment);
  std::vector<char*> arguments = pointers(words), entries = pointers(variables);
  const int log = open(spawn.log.empty() ? "/dev/null" : spawn.log.c_str(),
                       O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  uv_stdio_container_t stdio[3] = {};
  stdio[2] = {UV_INHERIT_FD, {.fd = log}};
  if (spawn.talks) {
    for (uv_pipe_t* pipe : {&s.in, &s.out}) {
      uv_pipe_init(loop.get(), pipe, 0);
      pipe->data = state_;
      ++s.open;
    }
    const int both = UV_CREATE_PIPE | UV_READABLE_PIPE | UV_WRITABLE_PIPE;
    stdio[0] = {static_cast<uv_stdio_flags>(both),
                {.stream = reinterpret_cast<uv_stream_t*>(&s.in)}};
    stdio[1] = {static_cast<uv_stdio_flags>(both),
                {.stream = reinterpret_cast<uv_stream_t*>(&s.out)}};
  } else {
    stdio[0].flags = UV_IGNORE;
    stdio[1] = stdio[2];
  }
  uv_process_options_t options{};
  options.file = arguments[0];
  options.args = arguments.data();
  options.env = entries.data();
  options.stdio = stdio;
  options.stdio_count = 3;
  options.flags = UV_PROCESS_DETACHED;
  options.exit_cb = [](uv_process_t* process, int64_t status, int signal) {
    auto* state = static_cast<State*>(process->data);
    state->running = false;
    state->status = signal != 0 ? 128 + signal : static_cast<int>(status);
  };
  s.process.data = state_;
  ++s.open;
  int error = 0;
  {
    const Pinned pinned(spawn.cpus);
    error = uv_spawn(loop.get(), &s.process, &options);
  }
  if (log >= 0) ::close(log);
  if (error != 0) {
    release();
    throw HostError(spawn.command[0] + ": cannot be started: " + uv_strerror(error) +
                    "; check that it is installed");
  }
  s.running = true;
  s.pid = s.process.pid;
  if (!spawn.talks) return;
  uv_read_start(
      reinterpret_cast<uv_stream_t*>(&s.out),
      [](uv_handle_t* handle, size_t, uv_buf_t* buffer) {
        auto* state = static_cast<State*>(handle->data);
        *buffer = uv_buf_init(state->buffer, sizeof state->buffer);
      },
      [](uv_stream_t* stream, ssize_t count, const uv_buf_t*) {
        static_cast<State*>(stream->data)->read(count);
      });
}

Process::~Process() {
  kill(SIGKILL);
  loop_.settle(kReapS, [this] { return !state_->running; });
  release();
}

// The handles go when libuv has closed them, and the state with the last one.
void Process::release() {
  State& s = *state_;
  s.owned = false;
  if (s.talks) {
    s.close(reinterpret_cast<uv_handle_t*>(&s.in));
    s.close(reinterpret_cast<uv_handle_t*>(&s.out));
  }
  s.close(reinterpret_cast<uv_handle_t*>(&s.process));
}

bool Process::running() const { return state_->running; }
int Process::exit_status() const { return state_->status; }
int Process::pid() const { return state_->pid; }
std::deque<std::string>& Process::lines() { return state_->lines; }
bool Process::talking() const { return state_->talks && !state_->ended; }

void Process::send(const std::string& line) {
  auto* write = new Write{{}, line + "\n"};
  write->request.data = write;
  uv_buf_t buffer = uv_buf_init(write->text.data(), static_cast<unsigned>(write->text.size()));
  const int error =
      uv_write(&write->request, reinterpret_cast<uv_stream_t*>(&state_->in), &buffer, 1,
               [](uv_write_t* request, int) { delete static_cast<Write*>(request->data); });
  if (error != 0) delete write;
}

void Process::close_input() { state_->close(reinterpret_cast<uv_handle_t*>(&state_->in)); }

void Process::kill(int signal) {
  if (state_->pid > 0) ::kill(-state_->pid, signal);
}

void Process::stop(double seconds) {
  kill(SIGTERM);
  if (!loop_.settle(seconds, [this] { return !state_->running; })) kill(SIGKILL);
  loop_.settle(kReapS, [this] { return !state_->running; });
}

std::optional<double> cpu_s(int pid, const std::string& thread) {
  std::optional<double> total;
  std::error_code none;
  const std::string tasks = "/proc/" + std::to_string(pid) + "/task";
  for (const auto& task : std::filesystem::directory_iterator(tasks, none)) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    double run_ns = 0;
    if (!thread.empty() && name != thread) continue;
    if (std::ifstream(task.path() / "schedstat") >> run_ns) {
      total = total.value_or(0) + run_ns / static_cast<double>(kNsPerS);
    }
  }
  return total;
}

void pin(int pid, const std::vector<int>& cpus) {
  const cpu_set_t set = set_of(cpus);
  std::set<int> moved;
  // Again until it finds none that is new: a thread may start another one meanwhile.
  for (size_t before = std::numeric_limits<size_t>::max(); before != moved.size();) {
    before = moved.size();
    std::vector<int> processes{pid};
    while (!processes.empty()) {
      const std::string tasks = "/proc/" + std::to_string(processes.back()) + "/task";
      processes.pop_back();
      std::error_code none;
      for (const auto& task : std::filesystem::directory_iterator(tasks, none)) {
        const int thread = std::stoi(task.path().filename());
        if (sched_setaffinity(thread, sizeof set, &set) == 0) moved.insert(thread);
        std::ifstream children(task.path() / "children");
        for (int child; children >> child;) processes.push_back(child);
      }
    }
  }
}

std::string run(Loop& loop, Spawn spawn, double seconds, const std::string& input) {
  spawn.talks = true;
  Process process(loop, spawn);
  if (!input.empty()) process.send(input);
  process.close_input();
  const bool ended = loop.settle(seconds, [&] { return !process.running() && !process.talking(); });
  std::string text;
  for (const std::string& line : process.lines()) text += line + "\n";
  if (ended && process.exit_status() == 0) return text;
  std::string words;
  for (const std::string& word : spawn.command) words += (words.empty() ? "" : " ") + word;
  if (!ended) throw HostError(words + ": no answer in " + std::to_string(int(seconds)) + " s");
  throw HostError(words + ": status " + std::to_string(process.exit_status()) + "\n" +
                  tail(spawn.log));
}

std::string tail(const std::string& path, int lines) {
  std::ifstream file(path);
  std::deque<std::string> last;
  for (std::string line; std::getline(file, line);) {
    last.push_back(line);
    if (last.size() > static_cast<size_t>(lines)) last.pop_front();
  }
  std::string text;
  for (const std::string& line : last) text += (text.empty() ? "" : "\n") + line;
  return text.empty() ? "(no log)" : text;
}

}  // namespace heddle::bench
