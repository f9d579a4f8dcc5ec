// bench/scenario: what a file means, and that every mistake is named by line with its remedy.
#include "bench/scenario/scenario.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "daemon/base/toml.h"

namespace heddle::scenario {
namespace {

constexpr const char* kJob = "[[job]]\nname = \"a\"\ncommand = [\"x\", \"-y\"]\n";

std::string error_of(const std::string& text) {
  const auto scenario = parse(text, "dir/s.toml");
  return scenario ? "" : scenario.error().message;
}

TEST(Scenario, FillsInWhatIsLeftOut) {
  const auto s = parse(kJob, "dir/pair.toml");
  ASSERT_TRUE(s) << s.error().message;
  EXPECT_EQ(s->name, "pair");
  EXPECT_EQ(s->repetitions, 5U);
  EXPECT_EQ(s->block_s, 2.0);
  EXPECT_FALSE(s->seed);
  EXPECT_EQ(s->policies.size(), 2U);
  EXPECT_EQ(s->baselines.size(), 3U);
  EXPECT_EQ(s->text, kJob);
  const Job& job = s->jobs.at(0);
  EXPECT_EQ(job.role, Role::kBatch);
  EXPECT_EQ(job.priority, 9);
  EXPECT_EQ(job.command, (std::vector<std::string>{"x", "-y"}));
  EXPECT_EQ(job.arrivals.kind, ArrivalKind::kClosed);
  EXPECT_FALSE(job.sim);
}

TEST(Scenario, ReadsEveryKey) {
  const auto s = parse(R"(
name = "two"
about = "Two."
repetitions = 3
block_s = 0.5
settle_s = 1.5
policies = ["gapfill:share_pct=60,quantum_us=200@mps+priority"]
baselines = ["timeslice", "mps:30", "split:60/25", "split:30"]
seed = 7
[[job]]
name = "d"
role = "latency"
workload = "torchvision"
model = "alexnet"
batch = 64
arrivals = "poisson 30.5"
slo_ms = 50
slowdown_max = 1.1
slowdown_p99_max = 1.3
[job.sim]
kernels = 120
kernel_us = { median = 60, sigma = 0.6 }
gap_us = 15
tokens = 16
blocks = 264
[[job]]
name = "b"
priority = 7
workload = "torchvision"
[job.sim]
trace = "x.trace"
)",
                       "s.toml");
  ASSERT_TRUE(s) << s.error().message;
  EXPECT_EQ(s->settle_s, 1.5);
  EXPECT_EQ(s->name, "two");
  EXPECT_EQ(s->seed, 7U);
  const PolicyRow& policy = s->policies.at(0);
  EXPECT_EQ(policy.policy, "gapfill");
  EXPECT_EQ(policy.params,
            (std::map<std::string, std::string>{{"share_pct", "60"}, {"quantum_us", "200"}}));
  EXPECT_TRUE(policy.mps && policy.client_priority && !policy.timeslice);
  EXPECT_EQ(s->baselines.at(1).parts, (std::vector<uint32_t>{100, 30}));
  EXPECT_EQ(s->baselines.at(2).kind, BaselineKind::kSplit);
  EXPECT_EQ(s->baselines.at(2).shares, (std::vector<SmShare>{{0, 60}, {60, 85}}));
  EXPECT_EQ(s->baselines.at(3).shares, (std::vector<SmShare>{{30, 100}, {0, 30}}));
  const Job& d = s->jobs.at(0);
  EXPECT_EQ(d.priority, 0);
  EXPECT_EQ(d.params.at("model"), "alexnet");
  EXPECT_EQ(d.params.at("batch"), "64");
  EXPECT_EQ(d.arrivals.kind, ArrivalKind::kPoisson);
  EXPECT_EQ(d.arrivals.per_s, 30.5);
  EXPECT_EQ(d.slo_ms, 50);
  EXPECT_EQ(d.slowdown_max, 1.1);
  EXPECT_EQ(d.slowdown_p99_max, 1.3);
  EXPECT_EQ(d.sim->kernels, 120U);
  EXPECT_EQ(d.sim->tokens, 16U);
  EXPECT_EQ(d.sim->kernel.sigma, 0.6);
  EXPECT_EQ(d.sim->gap.median_us, 15);
  EXPECT_EQ(d.sim->gap.sigma, 0);
  EXPECT_EQ(s->jobs.at(1).sim->trace, "x.trace");
  EXPECT_EQ(s->jobs.at(1).priority, 7);
  EXPECT_EQ(s->jobs.at(1).slowdown_max, 0) << "nothing is promised where nothing is said";
}

TEST(Scenario, ARateMayBeAShareOfWhatTheJobAloneServes) {
  const auto half = parse_arrivals("onoff 50%");
  ASSERT_TRUE(half) << half.error().message;
  EXPECT_EQ(half->kind, ArrivalKind::kOnOff);
  EXPECT_EQ(half->load, 0.5);
  EXPECT_EQ(half->per_s, 0);
  EXPECT_EQ(parse_arrivals("poisson 30")->load, 0);
  EXPECT_FALSE(parse_arrivals("burst 2 50%"));
  EXPECT_FALSE(parse_arrivals("poisson 0%"));
}

TEST(Scenario, ASyntheticIterationNeedsNoWorkload) {
  const auto s = parse("[[job]]\nname = \"a\"\n[job.sim]\nkernel_us = 100\n", "s.toml");
  ASSERT_TRUE(s) << s.error().message;
  EXPECT_EQ(s->jobs.at(0).workload, "synthetic");
}

// 10 us blocks: what lasts 10 us is one wave of 264, what lasts 25 is two and a half.
TEST(Scenario, KernelsWithBlocksOfALengthAreTheSameEachTimeAndAddUp) {
  const auto s = parse(
      "[[job]]\nname = \"a\"\n[job.sim]\nkernels = 200\nsyncs = 4\nblock_us = 10\n"
      "kernel_us = { median = 20, sigma = 0.5 }\n",
      "s.toml");
  ASSERT_TRUE(s) << s.error().message;
  const SimJob& sim = *s->jobs.at(0).sim;
  EXPECT_EQ(sim.syncs, 4U);
  const std::vector<SimLaunch> launches = launches_of(sim), again = launches_of(sim);
  ASSERT_EQ(launches.size(), 200U);
  double sum = 0;
  for (size_t i = 0; i < launches.size(); ++i) {
    sum += launches[i].us;
    EXPECT_NEAR(launches[i].blocks, launches[i].us / 10 * 264, 0.5);
    EXPECT_EQ(launches[i].us, again[i].us);
  }
  EXPECT_NEAR(sum, 200 * 20 * 1.1331, 1);  // exp(0.5 * 0.5 / 2)
  EXPECT_NE(launches[0].blocks, launches[1].blocks);
}

struct Mistake {
  const char* text;
  const char* message;  // all of it, after the file's name
};

TEST(Scenario, NamesLineAndRemedyOfEveryMistake) {
  const std::string job = kJob;
  const Mistake mistakes[] = {
      {"repetitons = 3\n%", ":1: unknown key repetitons; did you mean 'repetitions'?"},
      {"repetitions = 0\n%", ":1: repetitions must be a number from 1 to 10000"},
      {"repetitions = 1.5\n%", ":1: repetitions must be a whole number"},
      {"block_s = \"2\"\n%", ":1: block_s must be a number from 0.05 to 600"},
      {"seed = -1\n%", ":1: seed must be a number from 0 to 9.0072e+15"},
      {"name = \"a b\"\n%", ":1: name must be 1 to 40 letters, digits, '-', '_' or '.'"},
      {"policies = \"fifo\"\n%", ":1: policies must be a list of strings"},
      {"policies = [\n\"fifo\",\n\"x:y\"]\n%",
       ":3: policies: 'x:y': 'y' is not NAME=VALUE, as in share_pct=60"},
      {"policies = [\"fifo\", \"fifo\"]\n%", ":1: policies: 'fifo' twice"},
      {"policies = [\"fifo@cloud\"]\n%",
       ":1: policies: 'fifo@cloud': after '@' comes timeslice, mps or mps+priority, and /JOB"},
      {"apart = 1\n%", ":1: apart must be true or false"},
      {"expect = [\"fast enough\"]\n%",
       ":1: expect: 'fast enough' must be ROW: FIGURE [/ ROW] <= NUMBER [x idle JOB] (SOURCE), as "
       "in "
       "\"gapfill@mps: service mean / mps <= 0.8 (us)\"; >= likewise"},
      {"%copies = 0\n", ":1: a scenario needs at least one [[job]]"},
      {"%copies = 99\n", ":4: job.copies must be a number from 0 to 47"},
      {"baselines = [\"timeslices\"]\n%",
       ":1: baselines: no baseline 'timeslices'; did you mean 'timeslice'?"},
      {"baselines = [\"split:10/20\"]\n%",
       ":1: baselines: 'split:10/20': '10/20' has 2 parts for 1 jobs; write one for each, with '/' "
       "between"},
      {"baselines = [\"split:101/1\"]\n%",
       ":1: baselines: 'split:101/1': '101' must be a whole number from 1 to 100"},
      {"baselines = [\"split:100\"]\n%",
       ":1: baselines: 'split:100': '100' must be a whole number from 1 to 99"},
      {"baselines = [\"mps:101\"]\n%",
       ":1: baselines: 'mps:101': '101' must be a whole number from 1 to 100"},
      {"", ":1: a scenario needs at least one [[job]]"},
      {"[job]\nname = \"a\"\n", ":1: a scenario needs at least one [[job]]"},
      {"[[job]]\ncommand = [\"x\"]\n", ":1: a job needs a name, such as name = \"detector\""},
      {"[[job]]\nname = \"a\"\n",
       ":1: job a needs either workload or command, such as workload = "
       "\"torchvision\" or command = [\"./service\"]"},
      {"%workload = \"torchvision\"\n",
       ":1: job a needs either workload or command, such as workload = "
       "\"torchvision\" or command = [\"./service\"]"},
      {"%%", ":4: two jobs are called 'a'; give each a name of its own"},
      {"%dimensions = 1\n",
       ":4: unknown key job.dimensions; there are: name copies role priority workload command "
       "arrivals paired slo_ms slowdown_max slowdown_p99_max sim"},
      {"%slo = 1\n", ":4: unknown key job.slo; did you mean 'slo_ms'?"},
      {"[[job]]\nname = \"a\"\nworkload = \"w\"\nrolle = 1\n",
       ":4: unknown key job.rolle; did you mean 'role'?"},
      {"[[job]]\nname = \"a\"\nworkload = \"w\"\nlayers = [1]\n",
       ":4: job.layers must be a string, a number or a boolean"},
      {"%role = \"best\"\n", ":4: job.role must be \"latency\" or \"batch\""},
      {"%priority = 10\n", ":4: job.priority must be a number from 0 to 9"},
      {"%arrivals = \"open\"\n",
       ":4: job.arrivals: 'open' must be \"closed\", \"open 30\", \"poisson 30\", \"onoff 30\" (a "
       "second) or \"poisson 50%\" (of what the job alone serves), \"burst 20 0.5\" (20 requests "
       "at "
       "once, 0.5 times a second) or \"recorded FILE\""},
      {"p99_requests = 0\n%", ":1: p99_requests must be a number from 1 to 1e+06"},
      {"%arrivals = \"open 3\"\npaired = true\n",
       ":5: job.paired must be left out of a job with arrivals: pairs are of a closed loop"},
      {"%slo_ms = 0\n", ":4: job.slo_ms must be a number from 0.001 to 1e+06"},
      {"%slowdown_max = 1\n", ":4: job.slowdown_max must be a number from 1.01 to 100"},
      {"%sim = 1\n", ":4: write what stands in as [job.sim]"},
      {"%[job.sim]\nblocks = 3\n",
       ":4: job.sim needs a trace or kernel_us, such as { median = 60, sigma = 0.6 }"},
      {"%[job.sim]\nkernel_us = 9\nblocks = 3\nblock_us = 4\n",
       ":4: job.sim has blocks and block_us; leave one out"},
      {"%[job.sim]\nkernel_us = 9\nkernels = 3\nsyncs = 4\n",
       ":7: job.sim.syncs must be a number from 1 to 3"},
      {"%[job.sim]\ntrace = \"t\"\nkernels = 3\n",
       ":4: job.sim needs a trace or kernel_us, such as { median = 60, sigma = 0.6 }"},
      {"%[job.sim]\nkernel_us = { mean = 60 }\n",
       ":5: unknown key job.sim.kernel_us.mean; did you mean 'median'?"},
      {"%[job.sim]\nkernel_us = \"60\"\n",
       ":5: job.sim.kernel_us must be a number of microseconds or { median = 60, sigma = 0.6 }"},
  };
  for (const Mistake& m : mistakes) {
    std::string text = m.text;
    for (size_t at; (at = text.find('%')) != std::string::npos;) text.replace(at, 1, job);
    EXPECT_EQ(error_of(text), std::string("dir/s.toml") + m.message) << text;
  }
  EXPECT_EQ(error_of("name = \n").rfind("dir/s.toml:1: ", 0), 0U);
}

constexpr const char* kPairs = R"(block_s = 3
[[job]]
name = "H"
role = "latency"
[[job]]
name = "L"
slo_ms = 9
[pair.two]
about = "Two."
block_s = 4
programs = { H = "x", L = "x" }
[pair.two_rare]
programs = { H = "x", L = "y" }
[variant.rare]
about = "H is rare."
block_s = 5
jobs.H = { arrivals = "burst 20 0.5", slo_ms = 5 }
programs.L = "z"
[program.x]
command = ["x"]
slo_ms = 7
[program.z]
command = ["z"]
[program.y]
workload = "w"
slow_ms = 1
)";

TEST(Scenario, APairHasWhatTheFileSaysOfAllAndOfIt) {
  const auto s = parse(kPairs, "f.toml", "two");
  ASSERT_TRUE(s) << s.error().message;
  EXPECT_EQ(s->name, "two");
  EXPECT_EQ(s->about, "Two.");
  EXPECT_EQ(s->block_s, 4);
  ASSERT_EQ(s->jobs.size(), 2U);
  EXPECT_EQ(s->jobs[0].role, Role::kLatency);
  EXPECT_EQ(s->jobs[0].command, s->jobs[1].command) << "two jobs may run one program";
  EXPECT_EQ(s->jobs[0].slo_ms, 7);
  EXPECT_EQ(s->jobs[1].slo_ms, 9) << "what the job says itself";
  const auto again = parse(s->text, "f.toml");
  ASSERT_TRUE(again) << "a result keeps the pair alone: " << again.error().message;
  EXPECT_EQ(again->name, "two");
}

TEST(Scenario, AVariantChangesAPair) {
  std::string text = kPairs;
  text.erase(text.find("[pair.two_rare]"), text.find("[variant") - text.find("[pair.two_rare]"));
  const auto s = parse(text, "f.toml", "two_rare");
  ASSERT_TRUE(s) << s.error().message;
  EXPECT_EQ(s->name, "two_rare");
  EXPECT_EQ(s->about, "two: H is rare.");
  EXPECT_EQ(s->block_s, 5);
  EXPECT_EQ(s->jobs.at(0).arrivals.kind, ArrivalKind::kBurst);
  EXPECT_EQ(s->jobs.at(0).command, std::vector<std::string>{"x"});
  EXPECT_EQ(s->jobs.at(0).slo_ms, 5) << "instead of the program's";
  EXPECT_EQ(s->jobs.at(1).command, std::vector<std::string>{"z"}) << "instead of the pair's";
}

TEST(Scenario, CopiesOfAJobAreJobs) {
  const std::string text =
      std::string(kJob) + "copies = 3\n[[job]]\nname = \"b\"\ncommand = [\"y\"]\n";
  const auto s = parse(text + "[[job]]\nname = \"c\"\ncommand = [\"z\"]\ncopies = 0\n", "f.toml");
  ASSERT_TRUE(s) << s.error().message;
  ASSERT_EQ(s->jobs.size(), 4U);
  EXPECT_EQ(s->jobs[0].name, "a1");
  EXPECT_EQ(s->jobs[2].name, "a3");
  EXPECT_EQ(s->jobs[2].command, s->jobs[0].command);
  EXPECT_EQ(s->jobs[3].name, "b") << "and none of c";
}

TEST(Scenario, MistakesInPairsAreNamedWithTheRemedy) {
  const auto error = [](const std::string& text, const std::string& pair) {
    const auto s = parse(text, "f.toml", pair);
    return s ? "" : s.error().message;
  };
  const std::string there = "give --pair one of two, two_rare, or PAIR_VARIANT of rare";
  EXPECT_EQ(error(kPairs, ""), "f.toml: has pairs; " + there);
  EXPECT_EQ(error(kPairs, "three"), "f.toml: has no pair 'three'; " + there);
  EXPECT_EQ(error(kPairs, "three_rare"), "f.toml: has no pair 'three_rare'; " + there);
  EXPECT_EQ(error(kPairs, "two_rare"), "f.toml:26: unknown key job.slow_ms; did you mean 'slo_ms'?")
      << "the pair of that name goes before the variant, and keys keep their lines";
  EXPECT_EQ(error(kJob, "two"), "f.toml: has no [pair.NAME]; leave out --pair");
  const std::string one = std::string(kJob) + "[pair.p]\nprograms = ";
  EXPECT_EQ(error(one + "3\n", "p"), "f.toml:5: programs: write { JOB = \"PROGRAM\" }");
  EXPECT_EQ(error(one + "{ a = \"z\" }\n[program.x]\n", "p"),
            "f.toml:5: programs: no such [program.NAME]; there are: x");
  EXPECT_EQ(error(one + "{ b = \"x\" }\n[program.x]\n", "p"),
            "f.toml:5: programs: no [[job]] is called 'b'");
  const std::string jobs = std::string(kJob) + "[pair.p]\njobs.";
  EXPECT_EQ(error(jobs + "a = 1\n", "p"), "f.toml:5: jobs: write { JOB = { KEY = VALUE } }");
  EXPECT_EQ(error(jobs + "b.slo_ms = 1\n", "p"), "f.toml:5: jobs: no [[job]] is called 'b'");
  EXPECT_EQ(error(std::string(kJob) + "[pair.p]\nblok_s = 1\n", "p"),
            "f.toml:5: unknown key blok_s; did you mean 'block_s'?");
}

TEST(Scenario, AnExpectationNamesRowFigureBoundAndSource) {
  const auto plain = parse_expectation("gapfill@mps: H jct_ms mean <= 1.5 (every pair)");
  ASSERT_TRUE(plain) << plain.error().message;
  EXPECT_EQ(plain->row, "gapfill@mps");
  EXPECT_EQ(plain->figure, "H jct_ms mean");
  EXPECT_TRUE(plain->at_most && plain->over.empty() && plain->idle_of.empty());
  EXPECT_EQ(plain->bound, 1.5);
  EXPECT_EQ(plain->source, "every pair");
  const auto idle = parse_expectation("mps:25: L per_s / static >= 0.5 x idle H (us)");
  ASSERT_TRUE(idle) << idle.error().message;
  EXPECT_EQ(idle->row, "mps:25");
  EXPECT_EQ(idle->figure, "L per_s");
  EXPECT_EQ(idle->over, "static");
  EXPECT_EQ(idle->idle_of, "H");
  EXPECT_FALSE(idle->at_most);
  for (const char* wrong : {"", "a: b <= 1", "a b <= 1 (c)", "a: b < 1 (c)", "a: b <= x (c)",
                            "a:  <= 1 (c)", "a:   <= 1 (c)", "a: b <= 1 x idle (c)"}) {
    EXPECT_FALSE(parse_expectation(wrong)) << wrong;
  }
}

TEST(Scenario, AFileThatIsNotThereSaysWhereSomeAre) {
  const auto s = load("/nonexistent/s.toml");
  ASSERT_FALSE(s);
  EXPECT_NE(s.error().message.find("/nonexistent/s.toml: cannot be read"), std::string::npos);
}

// All pairs of a file, each alone and in all variants; "" of a file without.
std::vector<std::string> pairs_of(const std::string& path) {
  const toml::table root = toml::parse_file(path);
  if (!root.contains("pair")) return {""};
  std::vector<std::string> out;
  for (const auto& [pair, node] : *root["pair"].as_table()) {
    out.emplace_back(pair.str());
    if (!root.contains("variant")) continue;
    for (const auto& [variant, other] : *root["variant"].as_table()) {
      out.push_back(std::string(pair.str()) + "_" + std::string(variant.str()));
    }
  }
  return out;
}

TEST(Scenario, EveryShippedOneIsRight) {
  size_t count = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(HEDDLE_SCENARIOS)) {
    if (entry.path().extension() != ".toml") continue;
    for (const std::string& pair : pairs_of(entry.path().string())) {
      const auto s = load(entry.path().string(), pair);
      EXPECT_TRUE(s) << s.error().message;
      EXPECT_EQ(s ? s->name : "", pair.empty() ? entry.path().stem().string() : pair)
          << "a name of its own hides the file";
      ++count;
    }
  }
  EXPECT_GE(count, 100U);
}

TEST(Scenario, RecordedArrivalsAreNumbersThatAscend) {
  Scenario s;
  s.file = "s.toml";
  Job job;
  job.name = "a";
  job.line = 3;
  job.arrivals.file = testing::TempDir() + "arrivals.txt";
  const auto arrivals_of = [&](const char* text) {
    std::ofstream(job.arrivals.file) << text;
    return recorded_arrivals(s, job);
  };
  EXPECT_EQ(arrivals_of("0.1\n0.1\n0.4\n"), (std::vector<double>{0.1, 0.1, 0.4}));
  for (const char* bad : {"", "0\n", "0.4\n0.1\n", "0.1\nsoon\n"}) {
    const auto read = arrivals_of(bad);
    ASSERT_FALSE(read) << bad;
    EXPECT_EQ(read.error().message, "s.toml:3: job a: " + job.arrivals.file +
                                        ": no arrivals; one number of seconds a line, ascending");
  }
  std::filesystem::remove(job.arrivals.file);
  EXPECT_FALSE(recorded_arrivals(s, job));
}

TEST(Scenario, PathsAreLookedForBesideTheFileFirst) {
  Scenario s;
  s.file = std::string(HEDDLE_SCENARIOS) + "/synthetic.toml";
  EXPECT_EQ(resolve(s, "synthetic.toml"), s.file);
  EXPECT_EQ(resolve(s, "no/such"), "no/such");
  EXPECT_EQ(resolve(s, "/abs"), "/abs");
}

}  // namespace
}  // namespace heddle::scenario
