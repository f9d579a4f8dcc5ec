// The fault campaign: rounds of daemon, clients and faults on the simulated GPU, each drawn from
// the seed and its number.
//
//   fault_campaign [--seed S] [--rounds N] [--seconds T] [--round N]
//
// Ends when N rounds are done, T seconds are over, and at every fault point something has happened.
// --round repeats one. Exit status 1: an invariant did not hold, and the line says which, and how
// to repeat it; or nothing happened at some point for many rounds more.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <random>

#include "tests/fault/round.h"

namespace heddle::fault {
namespace {

// So many rounds more are played of fault points at which nothing has happened.
constexpr uint64_t kLateRounds = 100;

struct Options {
  uint64_t seed = std::random_device{}();
  uint64_t rounds = 0;
  double seconds = 60;
  int64_t only = -1;
};

Options parse(int argc, char** argv) {
  Options options;
  if (const char* seed = getenv("HEDDLE_SEED")) options.seed = strtoull(seed, nullptr, 10);
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--seed") options.seed = strtoull(argv[i + 1], nullptr, 10);
    if (name == "--rounds") options.rounds = strtoull(argv[i + 1], nullptr, 10);
    if (name == "--seconds") options.seconds = strtod(argv[i + 1], nullptr);
    if (name == "--round") options.only = strtoll(argv[i + 1], nullptr, 10);
  }
  return options;
}

bool play(Stage& stage, const Options& options, uint64_t number, Tally& tally) {
  const Plan plan = draw_plan(options.seed, number);
  const std::string problem = Round(stage, plan).run(tally);
  if (problem.empty()) return true;
  std::cout << "FAILED in round " << number << ": " << problem << '\n'
            << describe(plan) << '\n'
            << std::ifstream(stage.at("log")).rdbuf() << "repeat: fault_campaign --seed "
            << options.seed << " --round " << number << std::endl;
  return false;
}

std::vector<std::string> silent_points(const Tally& tally) {
  std::vector<std::string> silent = fault_points();
  std::erase_if(silent, [&](const std::string& point) { return tally.fired.count(point) != 0; });
  return silent;
}

int run(const Options& options) {
  std::cout << "HEDDLE_SEED=" << options.seed << std::endl;
  Stage stage;
  Tally tally;
  if (options.only >= 0) {
    const auto number = static_cast<uint64_t>(options.only);
    std::cout << describe(draw_plan(options.seed, number)) << std::endl;
    const bool held = play(stage, options, number, tally);
    for (const std::string& point : tally.fired) std::cout << "happened: " << point << '\n';
    return held ? 0 : 1;
  }
  const auto start = std::chrono::steady_clock::now();
  uint64_t done = 0, number = 0;
  const auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  for (uint64_t late = 0; late < kLateRounds; ++done, ++number) {
    if (done >= options.rounds && elapsed() >= options.seconds) {
      const std::vector<std::string> silent = silent_points(tally);
      if (silent.empty()) break;
      while (!std::ranges::count(silent, theme_of(number))) ++number;
      ++late;
    }
    if (!play(stage, options, number, tally)) return 1;
  }
  std::printf(
      "%llu rounds in %.0f s: %llu launches, each once; %llu kills, %llu stops, %llu threads "
      "ended, "
      "%llu forks, %llu daemons; latest launch %.0f ms beyond its bound\n",
      static_cast<unsigned long long>(done), elapsed(),
      static_cast<unsigned long long>(tally.launches), static_cast<unsigned long long>(tally.kills),
      static_cast<unsigned long long>(tally.stops),
      static_cast<unsigned long long>(tally.threads_ended),
      static_cast<unsigned long long>(tally.forks), static_cast<unsigned long long>(tally.daemons),
      static_cast<double>(tally.latest_ns) / 1e6);
  const std::vector<std::string> silent = silent_points(tally);
  for (const std::string& point : silent) {
    std::printf("FAILED: nothing happened at '%s'\n", point.c_str());
  }
  return silent.empty() ? 0 : 1;
}

}  // namespace
}  // namespace heddle::fault

int main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  return heddle::fault::run(heddle::fault::parse(argc, argv));
}
