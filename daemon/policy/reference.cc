#include "daemon/policy/reference.h"

#include <algorithm>
#include <string_view>

#include "daemon/policy/declaration.h"
#include "daemon/policy/running.h"

namespace heddle::policy {
namespace {

struct Entry {
  const char* name;  // as registered_names has it
  const char* form;  // as it is written; of a field nullptr
  const char* type;  // of its value, for language servers; of a function what it returns, or ""
  const char* text;
};

constexpr const char* kAllowanceText = "`LEASE`, `GATE` or `REFUSE`, then a reason";

constexpr Entry kHookDocs[] = {
    {"hooks.init", "init(p)", "", "The policy goes live."},
    {"hooks.client_init", "client_init(c, p)", kAllowanceText,
     "A client attaches, or the policy goes live."},
    {"hooks.client_active", "client_active(c, p)", kAllowanceText,
     "The client starts having work."},
    {"hooks.client_idle", "client_idle(c, p)", kAllowanceText,
     "The client has had no work for `idle_us`."},
    {"hooks.client_update", "client_update(c, p)", kAllowanceText,
     "A rule gives the client other terms. Without this hook the client leaves and comes back."},
    {"hooks.client_exit", "client_exit(c)", "", "The client is gone."},
    {"hooks.kernel_init", "kernel_init(kn, c, p)", "`sm [, stream_priority [, timed]]`",
     "A kernel ID is first seen at a client, or was measured to the end, or a graph's metrics "
     "changed. `timed`: each of its launches is timed, for `stopping`."},
    {"hooks.enqueue", "enqueue(k, p)", "what `queue.insert` returned, or `RUN`",
     "A client's oldest held launch asks. A launch that a ceiling took back comes again, with "
     "`open_us` 0 if it was in a queue."},
    {"hooks.dispatch", "dispatch(g, p)",
     "`RUN, k [, sm [, stream_priority]]`, the same with `OPEN`, or `IDLE [, again_us]`; then a "
     "reason",
     "After an ask, a completion or a gap that opens, and each ms while a launch waits, or "
     "`again_us` later (10 at least). It is called again until it says `IDLE`, 32 times at most."},
    {"hooks.running", "running(k, p)", "",
     "A launch was let go, or is seen to have been launched without that."},
    {"hooks.stopping", "stopping(k, p)", "",
     "A launch has ended. It does not come for launches of a client that was killed."},
    {"hooks.tick", "tick(g, p)", "", "Each millisecond while a client is active."},
    {"hooks.dump", "dump()", "a text of 4 KiB at most",
     "The policy loses its place to its faults. `heddle policy show` prints the text."},
    {"hooks.exit", "exit(why)", "",
     "The policy's time is over. `why` is \"replaced\" or \"faulted\". No hook is called after "
     "it."},
};

constexpr Entry kVerdictDocs[] = {
    {"LEASE", nullptr, "Verdict", "The client launches without a ticket."},
    {"GATE", nullptr, "Verdict", "Its oldest held launch asks."},
    {"REFUSE", nullptr, "Verdict",
     "It is unmanaged; held back if its rule says fail = \"closed\"."},
    {"RUN", nullptr, "Verdict",
     "This launch goes; of what waits on the GPU a unit, but for policies with `per_launch`."},
    {"OPEN", nullptr, "Verdict",
     "It goes, and the gates of its client open, until somebody more important works or somebody "
     "as "
     "important waits. Of a launch that its thread waits for: as `RUN`."},
    {"IDLE", nullptr, "Verdict", "Nothing that the policy placed goes now."},
};

constexpr Entry kLaunchDocs[] = {
    {"k.client", nullptr, "Client", "whose launch it is"},
    {"k.kernel", nullptr, "Kernel", "its kernel ID"},
    {"k.kind", nullptr, "string", "\"kernel\" or \"graph\""},
    {"k.seq", nullptr, "integer", "its ticket"},
    {"k.grid_blocks", nullptr, "integer", "blocks; of a graph its nodes"},
    {"k.block_threads", nullptr, "integer", "threads of a block; of a graph 0"},
    {"k.dynamic_smem", nullptr, "integer", "bytes of dynamic shared memory of a block"},
    {"k.predicted_us", nullptr, "number",
     "µs that this launch is predicted to take; held on the device: until it can be stopped"},
    {"k.wave_us", nullptr, "number", "of that, µs of one wave of blocks; of a graph the mean node"},
    {"k.gap_after_us", nullptr, "number", "predicted µs without work after it and a synchronize"},
    {"k.wait_us", nullptr, "number", "µs that it waits so far; in `stopping`: waited"},
    {"k.run_us", nullptr, "number",
     "in `stopping`: measured µs, 0 if it was not measured, or not on its SM set"},
    {"k.priority", nullptr, "integer", "its client's, 0 (first) to 9"},
    {"k.fenceable", nullptr, "boolean",
     "it can run on fewer SMs; held on the device: what its client launches next can "
     "(`c:keep_to`)"},
    {"k.open_us", nullptr, "number",
     "predicted µs that its client launched at open gates since it last asked"},
    {"k.right_size", nullptr, "integer?", "as `kn.right_size`"},
};

constexpr Entry kKernelDocs[] = {
    {"kn.name", nullptr, "string", "the function's name"},
    {"kn.id", nullptr, "string", "16 hexadecimal digits: name, launch shape, cluster size"},
    {"kn.mean_us", nullptr, "number", "µs, mean of all its launches"},
    {"kn.gap_us", nullptr, "number", "as `k.gap_after_us`"},
    {"kn.p90_us", nullptr, "number", "µs, 0 if it was not measured"},
    {"kn.profiled", nullptr, "boolean", "it was measured to the end"},
    {"kn.launches", nullptr, "integer", "by its client's task"},
    {"kn.registers", nullptr, "integer", "of a thread"},
    {"kn.static_smem", nullptr, "integer", "bytes of a block"},
    {"kn.blocks_per_sm", nullptr, "integer", "that fit one SM at most"},
    {"kn.grid_blocks", nullptr, "integer", "blocks"},
    {"kn.block_threads", nullptr, "integer", "threads of a block"},
    {"kn.right_size", nullptr, "integer?",
     "SMs of the latency size: the least within 5 % of all; nil without a curve"},
    {"kn.size_for", "kn:size_for(lambda)", "integer?",
     "SMs of the throughput size: least time × (1 + lambda × SMs); nil without a curve"},
};

constexpr Entry kClientDocs[] = {
    {"c.id", nullptr, "integer", "its number in `heddle ps`"},
    {"c.name", nullptr, "string", "its program's name"},
    {"c.label", nullptr, "string", "what `heddle run --label` or its rule gives it"},
    {"c.uid", nullptr, "integer", "its user"},
    {"c.pid", nullptr, "integer", "its process"},
    {"c.priority", nullptr, "integer", "0 (first) to 9"},
    {"c.share", nullptr, "number", "by its rule, else 1"},
    {"c.slo_ms", nullptr, "number", "by its rule, else 0"},
    {"c.request", nullptr, "number", "part of the GPU's time beside others, by its rule, else 0"},
    {"c.limit", nullptr, "number", "part of the GPU's time at most, by its rule, else 0"},
    {"c.slowdown_max", nullptr, "number", "promised by its rule, else 0"},
    {"c.slowdown_p99_max", nullptr, "number", "the same of all its runs but one in a hundred"},
    {"c.gated", nullptr, "boolean", "its launches wait until they are let go"},
    {"c.held", nullptr, "string",
     "\"device\": its launches wait on the GPU, where more important work stops them; \"thread\": "
     "its threads wait"},
    {"c.queued", nullptr, "integer", "1: its oldest held launch waits"},
    {"c.inflight_us", nullptr, "number", "predicted µs of what it has on the GPU"},
    {"c.gpu_us", nullptr, "number",
     "µs of GPU time that it has had; of n clients on the GPU each has 1/n"},
    {"c.launches", nullptr, "integer", "so far, whether it asked or not; take differences"},
    {"c.work_us", nullptr, "number",
     "predicted µs of those, each as alone on all SMs; take differences"},
    {"c.active", nullptr, "boolean", "it has work, or had some within `idle_us`"},
    {"c.profiled", nullptr, "boolean", "its task's measurement is over"},
    {"c.lease", "c:lease(for_us)", "",
     "as `LEASE`, at once; with `for_us` for so long, a second at most"},
    {"c.gate", "c:gate(for_us)", "", "the same as `GATE`, for good or for so long"},
    {"c.launch_priority", "c:launch_priority(n)", "",
     "what its launches carry, -5 (first) to 0; nil: the built-in's"},
    {"c.stopped_us", nullptr, "number", "µs in all that what ran of it was stopped"},
    {"c.stoppable", nullptr, "boolean", "that can be, and it can have a slice (time-sliced)"},
    {"c.keep_to", "c:keep_to(sm [, for_us])", "",
     "its launches run on so many SMs from the next one on, at open gates and leased, too; 0: on "
     "all "
     "that it has. With `for_us`, a second at most, for so long. Kernels with a size keep that"},
    {"c.stop", "c:stop(when)", "",
     "time-sliced: what runs of it is stopped in its middle while somebody above is at work; "
     "\"never\", \"long\": what outlasts a stop, or \"always\""},
    {"c.slice", "c:slice(us)", "",
     "time-sliced: for so long it has the GPU at a time, 100 to 1000000; 0: as the driver set it"},
    {"c.resident_bytes", nullptr, "number", "bytes of device memory that it has on the GPU"},
    {"c.parked", nullptr, "boolean", "its memory is on the host, or on its way"},
    {"c.park", "c:park()", "",
     "time-sliced: its memory leaves the GPU within 0.1 s, if its rule has `park` and it has no "
     "work; its next call brings it back. Who has just come back stays"},
    {"c.unpark", "c:unpark()", "", "its memory comes back before that call"},
    {"c.resize", "c:resize()", "", "`kernel_init` is called again for its kernels"},
};

constexpr Entry kGpuDocs[] = {
    {"g.index", nullptr, "integer", "the device's number"},
    {"g.sm_total", nullptr, "integer", "SMs"},
    {"g.sm_free", nullptr, "integer", "SMs in no SM set of a launch in flight"},
    {"g.inflight_us", nullptr, "number",
     "predicted µs in flight below the highest active priority"},
    {"g.fenced_us", nullptr, "number",
     "of that, what is on SM sets under MPS, and so in nobody's way"},
    {"g.switch_us", nullptr, "number", "µs that letting another client in costs"},
    {"g.mode", nullptr, "string", "\"mps\" or \"timeslice\""},
    {"g.stops", nullptr, "boolean", "what runs of some client can be stopped"},
    {"g.budget", nullptr, "Budget", "what those at work leave of each channel"},
    {"g.gap_us", "g:gap_us(priority)", "number",
     "least predicted remaining gap of all clients above `priority`; `math.huge` if none is "
     "active, 0 if one has work outstanding"},
    {"g.gap_length_us", "g:gap_length_us(priority)", "number", "the same from the gap's start"},
    {"g.busy", "g:busy(priority)", "boolean", "a client above has work outstanding"},
    {"g.idle_us", "g:idle_us(priority)", "number",
     "µs in all that those above have left to others; take differences"},
    {"g.runs", "g:runs(priority)", "number, number, number, number, number",
     "runs of those above that ended, µs that they took with the pauses before them, µs that the "
     "same take alone, µs of pauses in either, square roots of each of these pauses; take "
     "differences"},
    {"g.slower_runs", "g:slower_runs(priority, times)", "number, number",
     "of these runs those that took longer than their client's `slowdown_p99_max`, and of how "
     "many. Without that promise they count by `times` what they take alone, rounded up to 1 %; "
     "by `math.huge` they do not. Take differences"},
    {"g.comparing", "g:comparing(priority)", "boolean",
     "one of those above is to be left alone, so that its time alone is known"},
    {"g.clients", "g:clients()", "fun(): Client", "for `for c in g:clients() do`"},
};

constexpr Entry kBudgetDocs[] = {
    {"g.budget.issue", nullptr, "number", "issue slots, of the peak"},
    {"g.budget.fma", nullptr, "number", "the fp32 pipe"},
    {"g.budget.fp64", nullptr, "number", "the fp64 pipe"},
    {"g.budget.tensor", nullptr, "number", "the tensor pipe"},
    {"g.budget.smem", nullptr, "number", "shared-memory bandwidth"},
    {"g.budget.l2", nullptr, "number", "L2 bandwidth"},
    {"g.budget.dram", nullptr, "number", "DRAM bandwidth"},
};

constexpr Entry kFunctionDocs[] = {
    {"queue.create", "queue.create(name)", "", "at the top level"},
    {"queue.insert", "queue.insert(name, k, key)", "Verdict",
     "the least key first; among equal keys clients of one priority in turn, by their share"},
    {"queue.peek", "queue.peek(name, place)", "Launch?",
     "the first, or that in the place of its order; nil if there are fewer. Not seen is what waits "
     "on "
     "the device until a pause above has lasted"},
    {"queue.best_fit", "queue.best_fit(name, us)", "Launch?",
     "the least key, and among equals the longest predicted time that fits; none of a client "
     "with a launch on an SM set in flight"},
    {"queue.len", "queue.len(name)", "integer", "launches in it"},
    {"map.hash", "map.hash(name, options)", "Map",
     "at the top level; options: key (\"number\", \"string\", \"client\"), max, reload (\"keep\")"},
    {"map.lru", "map.lru(name, options)", "Map",
     "the same; where it is full, the entry goes that was used longest ago"},
    {"map.array", "map.array(name, options)", "Map", "places 1 to max, 0 at first"},
    {"map:get", "m:get(key)", "number?", "nil if there is none"},
    {"map:set", "m:set(key, number)", "boolean", "false if the map is full"},
    {"map:add", "m:add(key, number)", "number?", "the sum, from 0; nil if the map is full"},
    {"map:erase", "m:erase(key)", "", "in an array: 0 again"},
    {"map:len", "m:len()", "integer", "entries; of an array its places"},
    {"sm_set.family", "sm_set.family(options)", "",
     "at the top level: which SM sets processes make (REFERENCE.md, SM sets)"},
    {"sm_set.free", "sm_set.free(k, sm)", "integer",
     "with `placement = \"live\"`: SMs of the set that it would get; 0 if others work there"},
    {"budget.fits", "budget.fits(k, sm)", "boolean, string?",
     "each client with a promise can afford the launch; else false and the channel that costs"},
    {"budget.slowdown", "budget.slowdown(c)", "number",
     "predicted, of the client beside what the others at work run"},
    {"trace", "trace(format, ...)", "", "a line for the log and `heddle status`"},
    {"now_us", "now_us()", "number", "the clock, in µs"},
    {"import", "import(name)", "table",
     "a file of the policy directory, as \"lib/name\"; at the "
     "top level"},
    {"policy", "policy(declaration)", "table", "declares the policy; the file returns it"},
};

struct Section {
  const char* title;
  const char* class_name;  // for language servers; nullptr: none
  std::span<const Entry> entries;
};
constexpr Section kSections[] = {
    {"k, a launch", "Launch", kLaunchDocs},        {"kn, a kernel", "Kernel", kKernelDocs},
    {"c, a client", "Client", kClientDocs},        {"g, the GPU", "Gpu", kGpuDocs},
    {"g.budget, channels", "Budget", kBudgetDocs},
};

// Of a global: its name, or its functions if it is a table of ours.
int collect_globals(lua_State* L) {
  auto& names = *static_cast<std::vector<std::string>*>(lua_touserdata(L, 1));
  constexpr std::string_view kOurs[] = {"queue", "map", "sm_set", "budget"};
  Sandbox::push_globals(L);
  for (lua_pushnil(L); lua_next(L, -2) != 0; lua_pop(L, 1)) {
    const std::string name = lua_tostring(L, -2);
    if (lua_islightuserdata(L, -1) != 0) names.push_back(name);
    if (std::find(std::begin(kOurs), std::end(kOurs), name) == std::end(kOurs)) continue;
    for (lua_pushnil(L); lua_next(L, -2) != 0; lua_pop(L, 1)) {
      names.push_back(name + '.' + lua_tostring(L, -2));
    }
  }
  for (const char* name : {"trace", "now_us", "import", "policy"}) {
    lua_getfield(L, -1, name);
    if (lua_isfunction(L, -1)) names.push_back(name);
    lua_pop(L, 1);
  }
  return 0;
}

bool is_method(const Entry& entry) {
  return entry.form != nullptr && std::string_view(entry.form).find(':') != std::string_view::npos;
}

// Of "k.client" or "g.budget.dram" what stands behind the last point.
std::string_view own_name(const Entry& entry) {
  const std::string_view name = entry.name;
  return name.substr(name.find_last_of(".:") + 1);
}

// Of the metrics that may be in a profile, each a field of kn: their text is in their own table.
template <class Row>
void each_metric(Row&& row) {
  for (const ipc::KernelMetric& metric : ipc::kKernelMetrics) {
    row(metric.key, std::string(metric.help) + " (" + metric.unit + "); nil without it");
  }
}

std::string table(std::span<const Entry> entries, const char* head) {
  std::string text = head;
  for (const Entry& entry : entries) {
    const std::string type = entry.type;
    text += "| `" + std::string(entry.form != nullptr ? entry.form : own_name(entry)) + "` | " +
            (type.empty() ? "–" : type) + " | " + entry.text + " |\n";
  }
  return text;
}

// The parameters of "queue.insert(name, k, key)".
std::string parameters(const Entry& entry) {
  const std::string form = entry.form;
  const size_t from = form.find('(') + 1;
  return form.substr(from, form.find(')') - from);
}

}  // namespace

std::vector<std::string> registered_names() {
  std::vector<std::string> names;
  for (const std::string_view hook : kHookNames) names.push_back("hooks." + std::string(hook));
  for (const Kind kind : {Kind::kLaunch, Kind::kKernel, Kind::kClient, Kind::kGpu, Kind::kBudget}) {
    for (const std::string& name : field_names(kind)) names.push_back(name);
  }
  for (const luaL_Reg& method : map_methods()) names.push_back(std::string("map:") + method.name);
  Session session;
  Declaration declaration;
  Sandbox sandbox{Limits{}};
  sandbox.host = &session;
  struct Opened {
    Session& session;
    Declaration& declaration;
  } opened{session, declaration};
  sandbox.run(
      [](lua_State* L) {
        const auto& o = *static_cast<Opened*>(lua_touserdata(L, 1));
        open_helpers(L, o.session);
        open_declaration(L, o.declaration);
        return 0;
      },
      &opened);
  sandbox.run(collect_globals, &names);
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<FieldOfKind> object_edges() {
  // The kind of a type such as "Client" or "Launch?"; "": it is no object.
  const auto kind_of = [](std::string_view type) -> std::string {
    if (type.ends_with('?')) type.remove_suffix(1);
    for (const Section& section : kSections) {
      const std::string_view title = section.title;
      if (type == section.class_name) return std::string(title.substr(0, title.find(',')));
    }
    return "";
  };
  std::vector<FieldOfKind> edges;
  for (const Kind kind : {Kind::kLaunch, Kind::kKernel, Kind::kClient, Kind::kGpu, Kind::kBudget}) {
    for (const std::string& name : field_names(kind)) {
      const size_t point = name.rfind('.');
      edges.push_back({name.substr(0, point), name.substr(point + 1), ""});
    }
  }
  constexpr std::string_view kIterator = "fun(): ";
  for (const Section& section : kSections) {
    for (const Entry& entry : section.entries) {
      const std::string_view type = entry.type;
      const bool each = type.starts_with(kIterator);
      const std::string to = kind_of(each ? type.substr(kIterator.size()) : type);
      if (to.empty()) continue;
      const std::string name = entry.name;
      for (FieldOfKind& edge : edges) {
        if (edge.kind + '.' + edge.field == name) edge.to = each ? name : to;
      }
      if (!each) continue;
      edges.push_back({name, "=call", name + "=call"});
      edges.push_back({name + "=call", "=call", to});
    }
  }
  for (const Entry& entry : kFunctionDocs) {
    const std::string name = entry.name, to = kind_of(entry.type);
    if (to.empty() || !name.starts_with("queue.")) continue;
    edges.push_back({"queue", name.substr(sizeof "queue." - 1), name});
    edges.push_back({name, "=call", to});
  }
  edges.push_back({"queue", "*", ""});
  return edges;
}

std::vector<std::string> hook_parameters(size_t hook) {
  std::vector<std::string> all;
  const auto entry = std::find_if(std::begin(kHookDocs), std::end(kHookDocs),
                                  [&](const Entry& e) { return own_name(e) == kHookNames[hook]; });
  if (entry == std::end(kHookDocs)) return all;
  std::string rest = parameters(*entry);
  for (size_t comma; !rest.empty(); rest = comma == rest.npos ? "" : rest.substr(comma + 2)) {
    comma = rest.find(", ");
    all.push_back(rest.substr(0, comma));
  }
  return all;
}

std::vector<std::string> described_names() {
  std::vector<std::string> names;
  const auto add = [&](std::span<const Entry> entries) {
    for (const Entry& entry : entries) names.emplace_back(entry.name);
  };
  add(kHookDocs);
  add(kVerdictDocs);
  for (const Section& section : kSections) add(section.entries);
  add(kFunctionDocs);
  each_metric(
      [&](const char* key, const std::string&) { names.push_back(std::string("kn.") + key); });
  std::sort(names.begin(), names.end());
  return names;
}

std::string reference_markdown() {
  std::string text =
      "# What a policy may use\n\n"
      "[GUIDE.md](GUIDE.md) shows how to write a policy. Times are in µs. Objects are read-only "
      "and "
      "good for one hook call.\n\n"
      "Made by `heddle policy reference` down to [Allowances](#allowances), do not edit: "
      "[hooks](#hooks), "
      "[verdicts](#verdicts),\nfields of [k](#k-a-launch), [kn](#kn-a-kernel), [c](#c-a-client), "
      "[g](#g-the-gpu) and [g.budget](#gbudget-channels), [functions](#functions).\n"
      "By hand: [allowances](#allowances), [grants](#what-a-grant-may-carry), "
      "[objects](#what-the-tables-cannot-say), [the language](#the-language), "
      "[budgets](#budgets),\n"
      "[maps](#maps), [SM sets](#sm-sets), [faults](#faults), [tests](#tests).\n\n"
      "## Hooks\nEach is optional. Absent, or returning nil: the built-in decides.\n\n";
  text += table(kHookDocs, "| hook | returns | called when |\n|---|---|---|\n");
  text += "\n## Verdicts\n\n";
  text += table(kVerdictDocs, "| verdict | type | meaning |\n|---|---|---|\n");
  for (const Section& section : kSections) {
    text += std::string("\n## ") + section.title + "\n\n";
    text += table(section.entries, "| field | type | meaning |\n|---|---|---|\n");
    if (std::string_view(section.class_name) != "Kernel") continue;
    each_metric([&](const char* key, const std::string& what) {
      text += "| `" + std::string(key) + "` | number? | " + what + " |\n";
    });
  }
  text += "\n## Functions\n\n";
  text += table(kFunctionDocs, "| call | returns | what it does |\n|---|---|---|\n");
  return text;
}

std::string reference_lua() {
  std::string text =
      "---@meta\n"
      "-- What a policy may use, for language servers. Made by `heddle policy reference --lua`; do "
      "not edit.\n\n"
      "---@class Verdict\n---@class Map\n---@field get fun(self: Map, key: any): number?\n"
      "---@field set fun(self: Map, key: any, number: number): boolean\n"
      "---@field add fun(self: Map, key: any, number: number): number?\n"
      "---@field erase fun(self: Map, key: any)\n---@field len fun(self: Map): integer\n\n";
  for (const Section& section : kSections) {
    text += std::string("---@class ") + section.class_name + '\n';
    for (const Entry& entry : section.entries) {
      const std::string name(own_name(entry));
      text += "---@field " + name + ' ';
      if (is_method(entry)) {
        std::string all = "self: " + std::string(section.class_name);
        if (!parameters(entry).empty()) all += ", " + parameters(entry);
        text += "fun(" + all + ")" + (*entry.type != 0 ? std::string(": ") + entry.type : "");
      } else {
        text += entry.type;
      }
      text += std::string(" # ") + entry.text + '\n';
    }
    if (std::string_view(section.class_name) == "Kernel") {
      each_metric([&](const char* key, const std::string& what) {
        text += "---@field " + std::string(key) + " number? # " + what + '\n';
      });
    }
    text += '\n';
  }
  for (const Entry& entry : kVerdictDocs) {
    text += std::string("---@type Verdict # ") + entry.text + '\n' + entry.name + " = nil\n";
  }
  text += "\nqueue, map, sm_set, budget = {}, {}, {}, {}\n";
  for (const Entry& entry : kFunctionDocs) {
    if (is_method(entry)) continue;
    text += std::string("\n--- ") + entry.text + '\n';
    if (*entry.type != 0) text += std::string("---@return ") + entry.type + '\n';
    text += std::string("function ") + entry.form + " end\n";
  }
  return text;
}

}  // namespace heddle::policy
