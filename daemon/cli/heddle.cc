// The heddle command line. Exit codes: daemon/cli/daemon.h, and `heddle --help`.
#include <CLI/CLI.hpp>
#include <iostream>
#include <string_view>

#include "daemon/base/printable_output.h"
#include "daemon/base/version.h"
#include "daemon/cli/command_line.h"
#include "daemon/cli/daemon.h"
#include "daemon/cli/doctor/doctor.h"
#include "daemon/cli/doctor/probe.h"
#include "daemon/cli/look/look.h"
#include "daemon/cli/look/print.h"
#include "daemon/cli/park/park.h"
#include "daemon/cli/plan/plan.h"
#include "daemon/cli/policy/policy.h"
#include "daemon/cli/profile/ncu.h"
#include "daemon/cli/profile/profile.h"
#include "daemon/cli/run/cdi.h"
#include "daemon/cli/run/run.h"
#include "daemon/cli/trace/trace.h"
#include "daemon/policy/reference.h"
#include "ipc/limits.h"
#include "ipc/memory.h"
#include "ipc/sm_set.h"

namespace heddle::cli {
namespace {

using nlohmann::json;
using server::Request;

constexpr const char* kFooter =
    "Exit codes: 0 done; 1 failed; 2 bad usage; 3 no daemon; 4 refused;\n"
    "  5 the program's loader would not take the shim; `run` gives the program's own,\n"
    "  or 126/127 if it cannot be run.";

struct Options {
  std::string socket;
  bool as_json = false;
  RunOptions run;
  StopOptions stop;
  SweepOptions sweep;
  std::string class_name, policy;
  std::vector<std::string> params;
  std::vector<std::string> tests;
  std::string only;
  std::string client;
  bool strict = false, as_lua = false, verbose = false, reset = false, unchecked = false;
  double for_s = 0, wait_s = 1;
  uint64_t generation = 0;
  std::string on_off, output;
  RecordOptions record;
  TraceOptions trace;
  ProfileOptions profile;
  MetricsOptions metrics;
  TopOptions top;
  NcuOptions ncu;
  ProbeOptions probe;
  PlanOptions plan;
  ShadowOptions shadow;
  ReplayOptions replay;
  int exit_code = kOk;
};

using Printer = void (*)(std::ostream&, const json&);

int show(const Options& options, Answer answer, Printer print) {
  if (answer.code != kOk) return show_error(options.as_json, answer);
  if (options.as_json) {
    write_json(answer.json);
  } else {
    print(std::cout, answer.json);
  }
  return kOk;
}

Request request_of(Request::Kind kind) {
  Request request;
  request.kind = kind;
  return request;
}

int query(const Options& options, const Request& request, Printer print) {
  const bool lists = request.kind == Request::Kind::kPs;
  Answer answer = lists ? ask_ps(options.socket) : ask(options.socket, request);
  if (answer.code == kOk && lists) {
    // Whoever is not on a list that was cut may be attached all the same.
    answer.json["unattached"] = knows_all_pids(answer.json)
                                    ? probe_holders(attached_pids(answer.json))["processes"]
                                    : json::array();
  }
  return show(options, std::move(answer), print);
}

int run_program(Options& options) {
  options.run.socket = options.socket;
  options.run.as_json = options.as_json;
  if (options.class_name == "latency") options.run.priority = ipc::kPriorityLatency;
  if (options.class_name == "batch") options.run.priority = ipc::kPriorityBatch;
  if (options.run.command.empty()) return usage("run: which program? heddle run -- PROGRAM ...");
  return run(options.run);
}

int set_params(const Options& options) {
  Request request = request_of(Request::Kind::kPolicySet);
  request.policy = options.policy;
  request.reset = options.reset;
  if (!options.reset && options.params.empty()) {
    return usage("policy set: which parameter? NAME=VALUE, or --reset");
  }
  for (const std::string& param : options.params) {
    if (options.reset) {
      request.params.emplace_back(param, "");
      continue;
    }
    const size_t equals = param.find('=');
    if (equals == std::string::npos || equals == 0) {
      return usage("policy set: '" + param + "' is not NAME=VALUE");
    }
    request.params.emplace_back(param.substr(0, equals), param.substr(equals + 1));
  }
  return change_policy({options.socket, request, options.wait_s, options.as_json});
}

void add_run(CLI::App& app, Options& o) {
  CLI::App* command = app.add_subcommand("run", "Run a program under heddle: run [...] -- CMD");
  auto* by_class = command->add_option("--class", o.class_name, "latency (Q0) or batch (Q9)")
                       ->check(CLI::IsMember({"latency", "batch"}));
  command->add_option("--priority", o.run.priority, "0 (highest) to 9 (lowest)")
      ->check(CLI::Range(0, ipc::kPriorities - 1))
      ->excludes(by_class);
  command->add_option("--label", o.run.label, "what heddle ps and policies call it");
  command
      ->add_option("--sms", o.run.sms,
                   "keep its kernels on these SMs: 32 (the first), 32-131, 25%, 25%-100%")
      ->check([](const std::string& text) {
        return ipc::parse_sms(text) ? "" : "--sms takes " + std::string(ipc::kSmRangeForm);
      });
  const char* most = "most of that channel beside others, as a mean over 10 ms: 0.3";
  const auto part_of_peak = CLI::Range(0.01, 1.0);
  command->add_option("--issue-max", o.run.issue_max, most)->check(part_of_peak);
  command->add_option("--l2-max", o.run.l2_max, most)->check(part_of_peak);
  command->add_option("--dram-max", o.run.dram_max, most)->check(part_of_peak);
  command
      ->add_option("--memory", o.run.memory,
                   "most device memory of it and all that it starts, on each GPU: 20GiB, 25%")
      ->check([](const std::string& text) {
        return ipc::parse_memory(text) ? "" : "--memory takes 20GiB, 512MiB or 25% of the GPU";
      });
  command->add_flag("--park", o.run.park,
                    "idle, its memory may go to the host where others need the room");
  command->add_flag("--sim", o.run.sim,
                    "on the simulated GPU: it has the kernels of heddle-demo alone");
  command->add_flag("-q,--quiet", o.run.quiet, "do not print the effective priority");
  command->add_flag("--children", o.run.children,
                    "the program is static, 32-bit or privileged, and starts others that are not");
  command->callback([&o] { o.exit_code = run_program(o); });
}

void add_queries(CLI::App& app, Options& o) {
  CLI::App* ps = app.add_subcommand("ps", "List clients")->footer(ps_help() + kFooter);
  ps->add_flag("-v,--verbose", o.verbose, "and say of each its rule, limits and what is wrong");
  ps->callback([&o] {
    o.exit_code = query(o, request_of(Request::Kind::kPs), o.verbose ? print_ps_notes : print_ps);
  });
  app.add_subcommand("status", "What the daemon does, and what went wrong")
      ->footer(status_help() + kFooter)
      ->callback(
          [&o] { o.exit_code = query(o, request_of(Request::Kind::kStatus), print_status); });
  add_doctor(app, o.stop, o.socket, o.as_json, o.exit_code);
  CLI::App* cdi =
      app.add_subcommand("cdi", "A CDI specification that puts containers under heddle");
  cdi->add_option("--output", o.output, "write it there, such as /etc/cdi/heddle.json");
  cdi->callback([&o] { o.exit_code = run_cdi(o.socket, o.output); });
  app.add_subcommand("cdi-hook", "for container runtimes")->group("")->callback([&o] {
    o.exit_code = run_cdi_hook(std::cin);
  });
  CLI::App* bypass = app.add_subcommand(
      "bypass", "on: every launch runs freely, no policy is asked, until off or a restart");
  bypass->add_option("state", o.on_off, "on or off")
      ->required()
      ->check(CLI::IsMember({"on", "off"}));
  bypass->callback([&o] {
    Request request = request_of(Request::Kind::kBypass);
    request.bypass = o.on_off == "on";
    o.exit_code = query(o, request, [](std::ostream& out, const json& answer) {
      out << "bypass is " << (answer["bypass"] ? "on: every gate is open" : "off") << '\n';
    });
  });
}

void add_watching(CLI::App& app, Options& o) {
  CLI::App* top = app.add_subcommand("top", "Who has the GPU now: shares, launches, waits")
                      ->footer(top_help() + kFooter);
  top->add_flag("--once", o.top.once, "print it once, of one interval");
  top->add_option("--interval", o.top.interval_s, "seconds between two looks (1)")
      ->check(between(0.1, 3600));
  top->add_option("--sort", o.top.sort, "gpu, priority or wait; keys g, p and w change it")
      ->check(CLI::IsMember({"gpu", "priority", "wait"}));
  top->callback([&o] {
    o.top.socket = o.socket;
    o.top.as_json = o.as_json;
    o.exit_code = run_top(o.top);
  });
  CLI::App* why = app.add_subcommand("explain", "Why a client waits now, and why it waited");
  why->add_option("client", o.client, "its PID, its ID in heddle ps, or its label")->required();
  why->callback([&o] { o.exit_code = explain(o.socket, o.client, o.as_json); });
  CLI::App* metrics = app.add_subcommand(
      "metrics", "All counters in Prometheus' text format, printed, written or served");
  metrics
      ->add_option("--listen", o.metrics.listen,
                   "serve them at http://ADDRESS:PORT/metrics, such as 127.0.0.1:9410; as root it "
                   "becomes nobody first")
      ->excludes(metrics->add_option("--textfile", o.metrics.textfile,
                                     "write them to FILE, all or nothing, for node exporter"));
  metrics->add_flag("--all-users", o.metrics.all_users,
                    "as root, stay root: the page names labels, containers and pods of all users");
  metrics->callback([&o] {
    o.metrics.socket = o.socket;
    o.exit_code = run_metrics(o.metrics);
  });
}

void add_mps(CLI::App& app, Options& o) {
  CLI::App* mps = app.add_subcommand("mps", "The MPS that heddled manages ([mps] manage = true)");
  mps->require_subcommand(1)->fallthrough();
  const auto add = [&](const char* name, const char* about, Request::MpsOrder order) {
    mps->add_subcommand(name, about)->fallthrough()->callback([&o, order] {
      Request request = request_of(Request::Kind::kMps);
      request.mps = order;
      constexpr int kPatienceMs = 60'000;  // heddled's own is shorter, and says what happened
      o.exit_code = show(o, ask(o.socket, request, kPatienceMs), print_mps);
    });
  };
  add("status", "MPS servers, their clients, and waiting programs", Request::MpsOrder::kStatus);
  add("start", "Start it, and again whenever it dies", Request::MpsOrder::kStart);
  add("stop", "End it until `start` or the next heddled; not under its clients",
      Request::MpsOrder::kStop);
}

void add_traces(CLI::App& app, Options& o) {
  CLI::App* rec = app.add_subcommand(
      "record", "Write what the scheduler sees and decides into FILE, until Ctrl-C");
  rec->add_option("file", o.record.file, "the trace; what is there is replaced")->required();
  rec->add_option("--seconds", o.record.seconds, "end by itself after so long")
      ->check(between(0.001, 30 * kDayS));
  rec->callback([&o] {
    o.record.socket = o.socket;
    o.record.as_json = o.as_json;
    o.exit_code = record(o.record);
  });
  CLI::App* trace = app.add_subcommand("trace", "Look at what `record` wrote; needs no daemon");
  trace->require_subcommand(1)->fallthrough();
  const auto add = [&](const char* name, const char* about, int (*run)(const TraceOptions&)) {
    CLI::App* sub = trace->add_subcommand(name, about);
    sub->add_option("file", o.trace.file, "a trace")->required();
    sub->callback([&o, run] {
      o.trace.as_json = o.as_json;
      o.exit_code = run(o.trace);
    });
    return sub;
  };
  add("show", "Clients, kernels, durations, gaps and waits", trace_show);
  add("export", "Clients, streams, gaps and decisions as tracks of a timeline", trace_export)
      ->add_option("--perfetto,out", o.trace.perfetto,
                   "the file that it writes: JSON for ui.perfetto.dev or chrome://tracing")
      ->required();
  add("replay", "", trace_replay)->group("");  // heddle replay
  add_replay(app, o.replay, o.as_json, o.exit_code);
  CLI::App* predict = trace->add_subcommand(
      "predict", "How well the core predicts them: durations, gaps, ends of queues");
  predict->add_option("files", o.trace.files, "traces")->required();
  predict->callback([&o] {
    o.trace.as_json = o.as_json;
    o.exit_code = trace_predict(o.trace);
  });
  CLI::App* cut = add("cut", "Its first seconds as a trace of their own", trace_cut);
  cut->add_option("out", o.trace.out, "the new trace; what is there is replaced")->required();
  cut->add_option("--seconds", o.trace.seconds, "how many")->check(between(1e-6, 1e9))->required();
  cut->add_option("--client", o.trace.client,
                  "only what this client (show names them) did and got");
  for (CLI::App* sub : trace->get_subcommands({})) sub->fallthrough();
}

void add_sweep(CLI::App& profile, Options& o) {
  CLI::App* command = profile.add_subcommand(
      "sweep", "Measure a program's kernels on fewer SMs: sweep [...] -- CMD");
  command->add_option("--groups", o.sweep.groups, "sizes in groups of SMs (1,2,4,8,12)")
      ->delimiter(',')
      ->check(CLI::Range(1, 31));
  command->add_option("--group-sms", o.sweep.group_sms, "SMs of a group (8)")
      ->check(CLI::Range(1, 64));
  command->add_option("--runs", o.sweep.runs, "runs that are measured at each size (20)")
      ->check(CLI::Range(10, 1000));
  command->add_option("--timeout", o.sweep.timeout_s, "seconds for a run at one size (300)")
      ->check(between(1, kDayS));
  command->add_option("--output", o.sweep.output, "the directory for the profiles (.)")
      ->check(CLI::ExistingDirectory);
  command->add_flag("--sim", o.run.sim, "on the simulated GPU");
  command->callback([&o] {
    if (o.run.command.empty()) throw CLI::ValidationError("sweep", "say what to run: -- CMD");
    o.sweep.program = o.run;
    o.sweep.as_json = o.as_json;
    o.exit_code = sweep(o.sweep);
  });
}

void add_profiles(CLI::App& app, Options& o) {
  ProfileOptions& p = o.profile;
  CLI::App* profile = app.add_subcommand("profile",
                                         "How long a task's kernels take, and the gaps behind them "
                                         "(share/doc/heddle/daemon/profile/README.md)");
  profile->require_subcommand(1)->fallthrough();
  const auto add = [&](const char* name, const char* about, int (*run)(const ProfileOptions&)) {
    CLI::App* sub = profile->add_subcommand(name, about);
    sub->callback([&o, run] {
      o.profile.socket = o.socket;
      o.profile.as_json = o.as_json;
      o.exit_code = run(o.profile);
    });
    return sub;
  };
  CLI::App* record = add("record", "Write what was measured of a client's task", profile_record);
  record->add_option("client", p.client, "its ID or label in heddle ps")->required();
  record->add_option("file", p.output, "the profile; what is there is replaced")->required();
  CLI::Option* from =
      record->add_option("--trace", p.trace, "measure it in what `heddle record` wrote");
  record->add_option("--gpu", p.gpu, "if the trace does not say it")->needs(from);
  record->add_option("--driver", p.driver, "if the trace does not say it")->needs(from);
  CLI::App* show =
      add("show", "Profiles, or all of a directory; without: the daemon's", profile_show);
  show->add_option("paths", p.paths, "files or directories");
  show->add_flag("--neighbours", p.neighbours,
                 "also which limit of an SM forbids company to each kernel");
  CLI::App* diff =
      add("diff", "What two profiles say differently; exit 1 if anything", profile_diff);
  diff->add_option("profiles", p.paths, "A and B")->required()->expected(2);
  diff->add_option("--within", p.within_pct, "means so many percent apart are alike (10)")
      ->check(between(0, 1e6));
  diff->add_option("--least-us", p.least_us, "and so are means so many microseconds apart (1)")
      ->check(between(0, 1e9));
  CLI::App* merge = add("merge",
                        "One profile of several of one task, GPU and driver: of each "
                        "kernel what has more samples",
                        profile_merge);
  merge->add_option("profiles", p.paths)->required();
  merge->add_option("--output", p.output, "where to; may be one of them")->required();
  CLI::App* prune = add("prune",
                        "Remove old profiles and rare kernels; a running daemon keeps "
                        "what it knows",
                        profile_prune);
  prune->add_option("paths", p.paths, "files or directories")->required();
  prune->add_option("--days", p.days, "profiles measured longer ago; 0: all")
      ->check(between(0, 1e6));
  prune->add_option("--samples", p.samples, "kernels with fewer samples")
      ->check(CLI::PositiveNumber);
  prune->add_flag("--dry-run", p.dry_run, "only say what would be removed");
  add_sweep(*profile, o);
  add_probe(*profile, o.probe, o.run.command, o.as_json, o.exit_code);
  add_ncu(*profile, o.ncu, o.run.command, o.as_json, o.exit_code);
  for (CLI::App* sub : profile->get_subcommands({})) sub->fallthrough();
}

void add_policy_history(CLI::App& policy, Options& o) {
  policy.add_subcommand("history", "Past generations: loaded by whom and when, and how each ended")
      ->callback([&o] {
        o.exit_code = query(o, request_of(Request::Kind::kPolicyHistory), print_history);
      });
  CLI::App* rollback = policy.add_subcommand(
      "rollback", "Back to what ran before, until its file is saved again or heddled restarts");
  rollback->add_option("generation", o.generation, "a number of the history; none: the one before")
      ->check(CLI::PositiveNumber);
  rollback->add_option("--wait", o.wait_s, "as for load")->check(between(0, 3600));
  rollback->callback([&o] {
    Request request = request_of(Request::Kind::kPolicyRollback);
    request.generation = o.generation;
    o.exit_code = change_policy({o.socket, request, o.wait_s, o.as_json});
  });
  policy.add_subcommand("keep", "What was loaded with --for stays")->callback([&o] {
    o.exit_code = query(o, request_of(Request::Kind::kPolicyKeep), print_policy);
  });
  CLI::App* reference =
      policy.add_subcommand("reference", "All that a policy may use: hooks, objects, functions");
  reference->add_flag("--lua", o.as_lua, "as definitions for language servers");
  reference->callback(
      [&o] { std::cout << (o.as_lua ? policy::reference_lua() : policy::reference_markdown()); });
  policy.add_subcommand("show", "The text and parameters of what runs")->callback([&o] {
    o.exit_code = show_policy(o.socket, o.as_json);
  });
  CLI::App* diff =
      policy.add_subcommand("diff", "What the file would change of what runs; exit 1 if anything");
  diff->add_option("file", o.output, "another file than the policy's own");
  diff->callback([&o] { o.exit_code = diff_policy(o.socket, o.output, o.as_json); });
}

void add_policy(CLI::App& app, Options& o) {
  CLI::App* policy =
      app.add_subcommand("policy", "Check, load, try, compare and roll back policies");
  policy->require_subcommand(1)->fallthrough();
  policy->add_subcommand("list", "What the policy directory holds")->callback([&o] {
    o.exit_code = query(o, request_of(Request::Kind::kPolicyList), print_policies);
  });
  CLI::App* load =
      policy->add_subcommand("load", "Make a policy live until heddled restarts; builtin unloads");
  load->add_option("policy", o.policy, "a name of the policy directory, or a path")->required();
  load->add_option("--wait", o.wait_s, "seconds that its first decisions are waited for (1)")
      ->check(between(0, 3600));
  load->add_option("--for", o.for_s,
                   "and back to what runs now after so long (90s, 10m, 8h), unless policy keep")
      ->transform(as_seconds())
      ->check(between(0.1, 30 * kDayS));
  load->add_flag("--unchecked", o.unchecked, "whatever `heddle policy check` finds in the file");
  load->callback([&o] {
    Request request = request_of(Request::Kind::kPolicyLoad);
    request.for_s = o.for_s;
    request.policy = policy_named(o.policy);
    o.exit_code = change_policy({o.socket, request, o.wait_s, o.as_json, o.unchecked});
  });
  CLI::App* set = policy->add_subcommand(
      "set", "Change the running policy's parameters until heddled restarts");
  set->add_option("policy", o.policy)->required();
  set->add_option("params", o.params, "NAME=VALUE; with --reset NAME");
  set->add_flag("--reset", o.reset,
                "these, or all, are as the file and the configuration have them");
  set->add_option("--wait", o.wait_s, "as for load")->check(between(0, 3600));
  set->callback([&o] { o.exit_code = set_params(o); });
  CLI::App* test = policy->add_subcommand("test", "Run the tests beside policies; needs no daemon");
  test->add_option("paths", o.tests, "test files, policies or directories");
  test->add_option("--only", o.only, "the tests of this name");
  test->callback([&o] { o.exit_code = run_policy_tests(o.tests, o.only, o.as_json); });
  add_policy_history(*policy, o);
  add_policy_shadow(*policy, o.shadow, o.socket, o.as_json, o.exit_code);
  CLI::App* check = policy->add_subcommand(
      "check", "Load, lint and test policies as they would run; silent if all is good; no daemon");
  check->add_option("files", o.tests, "policies, or directories of them")->required();
  check->add_flag("--strict", o.strict, "exit 1 for warnings too, as in CI");
  check->callback([&o] { o.exit_code = run_policy_check(o.tests, o.strict, o.as_json); });
  for (CLI::App* sub : policy->get_subcommands({})) sub->fallthrough();
}

}  // namespace
}  // namespace heddle::cli

int main(int argc, char** argv) {
  using namespace heddle::cli;
  heddle::keep_output_printable();
  Options options;
  // What follows `--` is the program's, options and all.
  int own = 1;
  bool runs = false;
  for (; own < argc && !(runs && std::string_view(argv[own]) == "--"); ++own) {
    const std::string_view word = argv[own];
    runs = runs || word == "run" || word == "try" || word == "sweep" || word == "probe" ||
           word == "collect-metrics";
  }
  for (int i = own + 1; i < argc; ++i) options.run.command.emplace_back(argv[i]);
  CLI::App app("heddle: shares one GPU between programs that know nothing of each other");
  app.footer(kFooter);
  app.formatter(std::make_shared<UsageFormatter>());
  app.set_version_flag("--version", std::string("heddle ") + heddle::version_text());
  app.require_subcommand(1);
  app.add_option("--socket", options.socket, "the daemon's socket (default: HEDDLE_SOCKET)");
  app.add_flag("--json", options.as_json, "answer as JSON");
  add_run(app, options);
  add_queries(app, options);
  add_watching(app, options);
  add_mps(app, options);
  add_policy(app, options);
  add_traces(app, options);
  add_profiles(app, options);
  add_park(app, options.socket, options.as_json, options.exit_code);
  add_plan(app, options.plan, options.socket, options.as_json, options.exit_code);
  for (CLI::App* sub : app.get_subcommands({})) sub->fallthrough();
  add_try(app, options.run.command, options.exit_code);
  try {
    app.parse(own, argv);
  } catch (const CLI::ParseError& error) {
    const std::string unknown = unknown_command(app, std::span(argv + 1, argv + own));
    if (error.get_exit_code() != 0 && !unknown.empty()) return usage(unknown, "");
    if (app.exit(error) == 0) return kOk;
    const bool left_over = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
    if (left_over && runs && own == argc)
      std::cerr << "What is run stands behind --: heddle run -- CMD\n";
    return kUsage;
  } catch (const json::exception& error) {
    std::cerr << "heddle: the daemon's answer is not what this heddle expects (" << error.what()
              << "); install both from the same release, and restart heddled\n";
    return kFailed;
  } catch (const std::exception& error) {
    std::cerr << "heddle: " << error.what() << '\n';
    return kFailed;
  }
  return options.exit_code;
}
