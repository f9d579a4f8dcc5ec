#include "daemon/cli/trace/trace.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <vector>

#include "daemon/cli/daemon.h"
#include "daemon/cli/look/print.h"
#include "daemon/cli/policy/policy.h"
#include "daemon/cli/trace/recorded_policies.h"
#include "daemon/server/shadows.h"
#include "daemon/trace/replay.h"

namespace heddle::cli {
namespace {

using nlohmann::json;

constexpr size_t kSlices = 10;

int failed(const ReplayOptions& options, const std::string& what) {
  return show_error(options.as_json, {kFailed, what, {}});
}

// What keeps the answer from being exact, in words.
json lacks(const trace::Replayed& done) {
  json all = json::array();
  const auto say = [&](uint64_t count, const char* what) {
    if (count > 0) all.push_back(std::to_string(count) + what);
  };
  say(done.introduced,
      " clients were there before it began: what the core had learned of them is not in it, but "
      "for their profiles");
  say(done.lost, " records are missing: the disk was too slow");
  say(done.in_rows, " launches went in rows before it began, without a record each");
  say(done.leased,
      " launches were leased: no policy is asked about them, and they are not "
      "compared");
  return all;
}

// As many as fit on a screen, of those that were noted.
json slices_json(const std::vector<trace::Candidate::Slice>& noted) {
  json all = json::array();
  if (noted.empty()) return all;
  const core::TimeNs from = noted.front().at, to = noted.back().at;
  trace::Candidate::Slice before{};
  for (size_t i = 1; i <= kSlices; ++i) {
    const core::TimeNs until = from + (to - from) * static_cast<core::TimeNs>(i) / kSlices;
    trace::Candidate::Slice here = before;
    for (const trace::Candidate::Slice& s : noted) {
      if (s.at <= until) here = s;
    }
    all.push_back({{"until_ms", static_cast<double>(until - from) / 1e6},
                   {"alike", here.alike - before.alike},
                   {"sooner", here.sooner - before.sooner},
                   {"later", here.later - before.later}});
    before = here;
  }
  return all;
}

json said_json(const std::vector<std::unique_ptr<policy::LuaPolicy>>& policies) {
  json all = json::array();
  for (const auto& policy : policies) {
    for (const policy::Said& said : policy->said()) {
      all.push_back({{"verdict", said.verdict}, {"reason", said.reason}, {"count", said.count}});
    }
  }
  return all;
}

void print_decisions(std::ostream& out, const json& all) {
  out << all.at("events") << " events, " << all.at("decisions") << " decisions, "
      << all.at("differing") << " differ from the recorded ones";
  if (all.at("first") != "") out << "; first: " << all.at("first").get<std::string>();
  out << '\n';
  for (const json& lack : all.at("lacks")) out << "  " << lack.get<std::string>() << '\n';
  for (const json& candidate : all.at("candidates")) {
    out << "launches that asked, recorded policy -> candidate\n";
    print_shadowed_clients(out, candidate.at("clients"));
  }
  if (!all.at("slices").empty()) {
    std::vector<Row> rows{{"UNTIL ms", "ALIKE", "SOONER", "LATER"}};
    for (const json& s : all.at("slices")) {
      rows.push_back({std::to_string(std::llround(s.at("until_ms").get<double>())),
                      s.at("alike").dump(), s.at("sooner").dump(), s.at("later").dump()});
    }
    print_table(out, rows);
  }
  for (const json& said : all.at("said")) {
    out << "  " << said.at("verdict").get<std::string>() << ' '
        << printable(said.at("reason").get<std::string>()) << ": " << said.at("count")
        << " times\n";
  }
}

}  // namespace

int replay_decisions(const ReplayOptions& options) {
  Result<trace::Reader> reader = trace::Reader::open(options.trace);
  if (!reader) return failed(options, reader.error().message);
  RecordedPolicies recorded(options.policies);
  std::vector<std::unique_ptr<policy::LuaPolicy>> asked;
  trace::Candidate candidate;
  candidate.make = [&]() -> Result<core::Policy*> {
    auto loaded = policy::load_policy_file(options.file, {}, policy::virtual_time_limits());
    if (!loaded) return tl::unexpected<Error>(loaded.error());
    return asked.emplace_back(std::move(*loaded)).get();
  };
  const bool asks = !options.file.empty();
  const Result<trace::Replayed> done =
      trace::replay(*reader, recorded.source(), asks ? &candidate : nullptr);
  if (!done) return failed(options, done.error().message);
  json all = {{"mode", "decisions"},
              {"events", done->events},
              {"decisions", done->decisions},
              {"differing", done->differing},
              {"first", done->first},
              {"complete", done->exact},
              {"lacks", lacks(*done)},
              {"candidates", json::array()},
              {"slices", slices_json(candidate.slices)},
              {"said", said_json(asks ? asked : recorded.loaded())}};
  std::string fault;
  for (size_t i = 0; i < candidate.reports.size(); ++i) {
    const core::ShadowReport& report = candidate.reports[i];
    all["candidates"].push_back(server::shadow_json(report));
    if (report.faulted) {
      fault = report.ended + ": " + asked[std::min(i, asked.size() - 1)]->last_fault().message;
    }
  }
  if (options.as_json) {
    write_json(all);
  } else {
    print_decisions(std::cout, all);
  }
  if (!fault.empty()) return failed(options, options.file + ": " + fault);
  return done->differing == 0 || !done->exact ? kOk : kFailed;
}

void add_replay(CLI::App& app, ReplayOptions& o, const bool& as_json, int& exit_code) {
  CLI::App* replay = app.add_subcommand(
      "replay",
      "A recording under another policy; without FILE under its own: exit 1 if a complete trace "
      "decides otherwise");
  replay->add_option("--trace", o.trace, "what `heddle record` wrote")->required();
  replay->add_option("file", o.file, "the candidate, a file or the name of an installed policy");
  auto* decisions = replay->add_flag(
      "--decisions", o.decisions,
      "ask it at each recorded event, in the recorded world, and compare (what is done unless "
      "--virtual)");
  replay
      ->add_flag("--virtual", o.in_virtual_time,
                 "let the GPU model play the recorded clients, under the recorded policy and under "
                 "FILE: the model's answer")
      ->excludes(decisions)
      ->needs("file");
  replay->add_option("--policies", o.policies,
                     "where the recorded policies are, if not where they were");
  replay->callback([&] {
    o.as_json = as_json;
    o.file = candidate_file(o.file);
    exit_code = o.in_virtual_time ? replay_virtual(o) : replay_decisions(o);
  });
}

}  // namespace heddle::cli
