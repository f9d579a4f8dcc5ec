#include "bench/runner/job.h"

#include <signal.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>

namespace heddle::bench {
namespace {

constexpr double kReadyS = 240;  // a cold PyTorch start beside seventeen others
constexpr double kReplyS = 45;   // beyond the end of a block
constexpr double kHintS = 10;    // a program without the job protocol never says `ready`

uint32_t whole_us(double seconds) {
  return static_cast<uint32_t>(std::clamp(std::llround(seconds * 1e6), 0LL, 0xffffffffLL));
}

// As many threads as it will have CPUs, which it cannot see yet.
Spawn unpinned(Spawn spawn) {
  if (!spawn.cpus.empty() && getenv("OMP_NUM_THREADS") == nullptr) {
    spawn.environment["OMP_NUM_THREADS"] = std::to_string(spawn.cpus.size());
  }
  spawn.cpus.clear();
  return spawn;
}

}  // namespace

std::vector<double> parse_iteration(const std::string& line) {
  std::istringstream words(line);
  std::vector<double> times;
  for (double time; words >> time;) times.push_back(time);
  const bool whole = words.eof() && times.size() > 1;
  return whole ? times : std::vector<double>();
}

Samples within(const std::vector<std::vector<double>>& iterations, const Window& window) {
  Samples out;
  double first = 0, last = 0;
  for (const std::vector<double>& times : iterations) {
    const double begin = times.front(), end = times.back();
    if (begin < window.start_s || begin >= window.start_s + window.seconds) continue;
    first = out.us.empty() ? begin : std::min(first, begin);
    last = std::max(last, end);
    out.us.push_back(whole_us(end - begin));
    if (times.size() > 2) out.ttft_us.push_back(whole_us(times[1] - begin));
    for (size_t i = 2; i < times.size(); ++i) {
      out.tbt_us.push_back(whole_us(times[i] - times[i - 1]));
    }
  }
  out.span_s = last - first;
  return out;
}

Job::Job(Loop& loop, std::string name, const Spawn& spawn)
    : loop_(loop),
      name_(std::move(name)),
      log_(spawn.log),
      cpus_(spawn.cpus),
      process_(loop, unpinned(spawn)) {}

void Job::fail(const std::string& what) {
  give_up();
  throw HostError(name_ + what + ": " + tail(log_));
}

bool Job::speaks_by(double deadline_s) {
  return loop_.wait(std::max(0.0, deadline_s - monotonic_s()),
                    [&] { return !process_.lines().empty() || !process_.talking(); });
}

std::string Job::line(double deadline_s) {
  auto& lines = process_.lines();
  if (!speaks_by(deadline_s)) fail(" is silent");
  if (lines.empty()) fail(" ended");
  std::string text = std::move(lines.front());
  lines.pop_front();
  return text;
}

// Anything else on stdout is skipped: programs greet.
Json Job::json_answer(double deadline_s) {
  for (;;) {
    const std::string text = line(deadline_s);
    if (text.rfind('{', 0) != 0) continue;
    Json answer = Json::parse(text, nullptr, false);
    if (answer.is_discarded()) fail(" sent a line that is no JSON");
    return answer;
  }
}

bool Job::can(const std::string& word) const {
  const Json words = about_.value("can", Json::array());
  return std::find(words.begin(), words.end(), word) != words.end();
}

void Job::wait_ready() {
  read_ready();
  if (!cpus_.empty()) pin(process_.pid(), cpus_);
}

void Job::read_ready() {
  const double began = monotonic_s(), deadline = began + kReadyS;
  for (bool hinted = false;;) {
    if (!hinted && !speaks_by(began + kHintS)) {
      hinted = true;
      std::cerr << name_ << " has not printed `ready` in " << kHintS << " s, and is waited for "
                << kReadyS << " s; share/doc/heddle/bench/METHOD.md has the job protocol\n";
    }
    const std::string text = line(deadline);
    if (text.rfind("ready", 0) == 0) {
      std::istringstream words(text.substr(5));
      for (std::string word; words >> word;) about_["can"].push_back(word);
      return;
    }
    if (text.rfind('{', 0) != 0) continue;
    const Json json = Json::parse(text, nullptr, false);
    if (!json.is_object() || json.value("ready", Json()) != true) continue;
    about_ = json;
    return;
  }
}

void Job::go(const Window& window) {
  char numbers[128];
  snprintf(numbers, sizeof numbers, "go %.6f %g %g %g", window.start_s, window.seconds,
           window.lead_s, window.tail_s);
  // A closed loop is what every program can do; the others are said. Pairs too are "arrivals".
  if (window.arrivals != "closed" && !can("arrivals")) {
    fail(
        " runs in a closed loop only, and the scenario gives it arrivals; see "
        "share/doc/heddle/bench/README.md");
  }
  process_.send(numbers + (window.arrivals == "closed" ? "" : " " + window.arrivals));
  window_ = window;
  owes_ = Owes::kSamples;
}

Samples Job::samples() {
  const double deadline = window_.start_s + window_.seconds + window_.tail_s + kReplyS;
  std::vector<std::vector<double>> iterations;
  for (;;) {
    const std::string text = line(deadline);
    if (auto one = parse_iteration(text); !one.empty()) {
      iterations.push_back(std::move(one));
    } else if (text == "done") {
      owes_ = Owes::kNothing;
      return within(iterations, window_);
    } else if (text.rfind('{', 0) == 0) {
      owes_ = Owes::kNothing;
      return samples_from(text);
    }
  }
}

Samples Job::samples_from(const std::string& text) {
  try {
    const Json answer = Json::parse(text);
    return {answer.at("us").get<std::vector<uint32_t>>(),
            answer.at("span_s"),
            answer.value("unserved", 0U),
            answer.value("tbt_us", std::vector<uint32_t>()),
            answer.value("bypassed_us", std::vector<uint32_t>()),
            answer.value("ttft_us", std::vector<uint32_t>())};
  } catch (const Json::exception&) {
    fail(" answered " + text.substr(0, 80) + ", which is no block");
  }
}

void Job::tell(const std::string& text) {
  process_.send(text);
  owes_ = Owes::kAnswer;
}

Json Job::answer() {
  Json json = json_answer(monotonic_s() + kReplyS);
  owes_ = Owes::kNothing;
  if (json.contains("error")) throw HostError(name_ + ": " + json["error"].dump());
  return json;
}

void Job::give_up() {
  broken_ = true;
  owes_ = Owes::kNothing;
  process_.kill(SIGKILL);
}

void Job::drain() {
  try {
    if (owes_ == Owes::kSamples) samples();
    if (owes_ == Owes::kAnswer) answer();
  } catch (const HostError&) {  // broken now: its rows are lost, which is said where it is missed
  }
}

void Job::ask_to_quit() {
  if (!broken_ && process_.running()) process_.send("quit");
}

}  // namespace heddle::bench
