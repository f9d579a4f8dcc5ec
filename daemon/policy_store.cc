#include "daemon/policy_store.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "daemon/base/files.h"
#include "daemon/base/json.h"
#include "daemon/base/nearest.h"
#include "daemon/base/owners.h"
#include "daemon/policy/files.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr size_t kQuarantinedMax = 1'000;
constexpr size_t kReasonMax = 500;    // why one is quarantined: error texts may be long
constexpr ptrdiff_t kTraceShown = 8;  // lines of a device: an answer is one packet

std::string parent_of(const std::string& path) { return fs::path(path).parent_path().string(); }

// `real` is canonical: a link in its place would be somebody else's to change.
Result<void> check_owners(const fs::path& real) {
  struct stat folder;
  if (stat(real.parent_path().c_str(), &folder) == 0 && (folder.st_mode & S_ISVTX) != 0) {
    return fail(real.string() + ": lies where everybody may put files; move it to the policy " +
                "directory, or to one that only root and the daemon's user can write");
  }
  for (const std::string& part : {parent_of(real.string()), real.string()}) {
    const std::string problem = ownership_problem(part);
    if (!problem.empty()) return fail(problem);
  }
  return {};
}

Result<std::string> read_owned(const std::string& path) {
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  if (error) return policy::read_source(path);  // says what is wrong with it
  const Result<void> owned = check_owners(real);
  return owned ? policy::read_source(real.string()) : tl::unexpected<Error>(owned.error());
}

// What may be meant by a name that no policy of the directory has.
std::string near_name(const std::string& directory, const std::string& name) {
  std::vector<std::string> names;
  for (const fs::path& file : policy::policy_files(directory)) names.push_back(file.stem());
  const std::vector<std::string_view> known(names.begin(), names.end());
  if (names.empty()) return "; no policy is there: install heddle's, or set [policy] directory";
  const std::string near = nearest(name, known);
  return near.empty() ? "; heddle policy list shows what there is"
                      : "; did you mean '" + near + "'?";
}

// Of all files of a directory, in whatever order it lists them: names, times and sizes.
std::string state_of(const std::string& directory, std::error_code error = {}) {
  std::ostringstream state;
  for (auto entry = fs::recursive_directory_iterator(directory, error);
       !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    struct stat file;
    if (stat(entry->path().c_str(), &file) != 0) continue;
    state << entry->path().string() << '\n'
          << file.st_ino << ' ' << file.st_size << ' ' << file.st_uid << ' ' << file.st_mode << ' '
          << file.st_ctim.tv_sec << '.' << file.st_ctim.tv_nsec << '\n';
  }
  return state.str();
}

// Of the hooks that were called, without the empty buckets at the end.
json hooks_json(const policy::LuaPolicy& policy) {
  json all = json::array();
  for (size_t i = 0; i < policy::kHooks; ++i) {
    const policy::HookTimes& times = policy.times(static_cast<policy::Hook>(i));
    if (times.calls() == 0) continue;
    const auto& counts = times.counts();
    const auto last =
        std::find_if(counts.rbegin(), counts.rend(), [](uint64_t n) { return n != 0; });
    all.push_back({{"hook", policy::kHookNames[i]},
                   {"calls", times.calls()},
                   {"counts", std::vector<uint64_t>(counts.begin(), last.base())},
                   {"sum_us", static_cast<double>(times.sum_ns()) / 1e3},
                   {"p50_us", times.quantile_ns(0.5) / 1e3},
                   {"p99_us", times.quantile_ns(0.99) / 1e3}});
  }
  return all;
}

json params_json(const policy::LuaPolicy& policy) {
  json all = json::array();
  for (const policy::Param& param : policy.params()) {
    all.push_back({{"name", param.name}, {"value", param.value}, {"default", param.default_value}});
    all.back()["doc"] = param.doc;
  }
  return all;
}

}  // namespace

// What a policy imported, read once each. Generations of one content share it, on whatever thread.
struct FilePolicyStore::Imports {
  Result<std::string> read(const std::string& path) {
    const std::lock_guard lock(mutex);
    if (const auto found = texts.find(path); found != texts.end()) return found->second;
    if (missing.contains(path)) return fail(path + ": was not there");
    Result<std::string> text = from_disk ? read_owned(path) : fail(path + ": was not kept");
    if (text) texts.emplace(path, *text);
    if (!text) missing.insert(path);
    return text;
  }

  std::mutex mutex;
  std::map<std::string, std::string> texts;  // by path
  std::set<std::string> missing;             // not looked for again: what was checked is what runs
  bool from_disk = true;
};

FilePolicyStore::FilePolicyStore(server::PolicySettings settings, std::string state)
    : state_(std::move(state)),
      good_state_(state_.empty() ? "" : parent_of(state_) + "/last_good.json"),
      past_state_(state_.empty() ? "" : parent_of(state_) + "/history.json") {
  known_.settings = std::move(settings);
  std::ifstream stream(state_);
  for (std::string line; known_.quarantined.size() < kQuarantinedMax && getline(stream, line);) {
    const size_t end = std::min(line.find(' '), line.size());
    known_.quarantined.emplace(line.substr(0, end),
                               end < line.size() ? line.substr(end + 1) : "it faulted too often");
  }
  recall_good();
  recall_past();
}

void FilePolicyStore::configure(server::PolicySettings settings) {
  const std::lock_guard lock(mutex_);
  known_.settings = std::move(settings);
}

FilePolicyStore::Known FilePolicyStore::known() const {
  const std::lock_guard lock(mutex_);
  return known_;
}

const FilePolicyStore::Content& FilePolicyStore::content_of(const server::Generation& generation) {
  return *static_cast<const Content*>(generation.content.get());
}

Result<std::string> FilePolicyStore::find(const Known& known, const std::string& name_or_path) {
  std::string path = name_or_path;
  if (path.find('/') == std::string::npos) {
    path = known.settings.directory + "/" + path +
           (fs::path(path).extension() == ".lua" ? "" : ".lua");
  }
  path = policy::policy_file(path);
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  if (error)
    return fail(path + ": no such policy" + near_name(known.settings.directory, name_or_path));
  // /proc/PID/root leads into a container, and resolves to a path of ours.
  if (!fs::equivalent(path, real, error)) {
    return fail(path + ": leads to another file than " + real.string() + "; name one of this host");
  }
  if (const Result<void> owned = check_owners(real); !owned) return fail(owned.error().message);
  // The name as given, not what a link points at: the link is what will be changed.
  return fs::absolute(path).lexically_normal().string();
}

policy::ParamValues FilePolicyStore::configured(const Known& known, const std::string& path) {
  const Result<std::string> named = find(known, known.settings.name);
  if (!named || *named != path) return {};
  return {known.settings.params.begin(), known.settings.params.end()};
}

policy::ParamValues FilePolicyStore::live(const Known& known, const std::string& path) {
  const auto found = known.set.find(path);
  return found != known.set.end() ? found->second : policy::ParamValues{};
}

Result<FilePolicyStore::Content> FilePolicyStore::read(const Known& known,
                                                       const std::string& path) {
  Result<std::string> text = policy::read_source(path);
  if (!text) return tl::unexpected<Error>(std::move(text.error()));
  const auto imports = std::make_shared<Imports>();
  const auto once = [imports](const std::string& import) { return imports->read(import); };
  return Content{path,
                 {std::move(*text), fs::path(path).filename().string(), parent_of(path), once},
                 imports,
                 configured(known, path),
                 live(known, path)};
}

// Configured parameters that a policy does not take are a mistake. What was set live, and nobody
// finds written down, must not keep a file from loading that no longer takes it.
Result<std::unique_ptr<policy::LuaPolicy>> FilePolicyStore::make(
    Content& content, std::vector<std::string>& dropped) {
  auto made = policy::load_policy(content.source, content.values);
  if (!made) return made;
  std::erase_if(content.live, [&](const auto& set) {
    const Result<void> taken = (*made)->set_param(set.first, set.second);
    if (taken) {
      content.values[set.first] = set.second;
    } else {
      dropped.push_back(taken.error().message);
    }
    return !taken;
  });
  return made;
}

Result<server::Generation> FilePolicyStore::offer(Result<Content> content) {
  if (!content) return tl::unexpected<Error>(std::move(content.error()));
  server::Generation generation;
  const auto first = make(*content, generation.dropped);
  if (!first) return tl::unexpected<Error>(first.error());
  generation.name = std::string((*first)->name());
  generation.path = content->path;
  generation.hash = (*first)->content_hash();
  generation.keeps_promises = (*first)->asks_of_promises();
  generation.keeps_p99 = (*first)->asks_of("slowdown_p99_max");
  generation.keeps_compute = (*first)->asks_of("c.request");
  generation.make = [source = content->source,
                     values = content->values]() -> Result<std::unique_ptr<core::Policy>> {
    return policy::load_policy(source, values);
  };
  generation.content = std::make_shared<const Content>(std::move(*content));
  return generation;
}

Result<server::Generation> FilePolicyStore::load(const std::string& name_or_path, bool pardon) {
  const Known now = known();
  if (name_or_path == "builtin") {
    const std::lock_guard lock(mutex_);
    known_.wanted.clear();
    return server::Generation{};
  }
  const Result<std::string> path = find(now, name_or_path);
  if (!path) return tl::unexpected<Error>(path.error());
  if (now.running.path.empty()) {  // mended by a save, it comes to life
    const std::lock_guard lock(mutex_);
    known_.wanted = *path;
  }
  Result<server::Generation> loaded = offer(read(now, *path));
  if (!loaded) return loaded;
  loaded->on_disk = loaded->hash;
  const auto found = now.quarantined.find(loaded->hash);
  if (found == now.quarantined.end()) return loaded;
  if (!pardon) {
    loaded->quarantined = *path + ": quarantined, " + found->second +
                          "; mend it, or run heddle policy load " + loaded->name;
    return loaded;
  }
  {
    const std::lock_guard lock(mutex_);
    known_.quarantined.erase(loaded->hash);
  }
  // If that cannot be written down, the next start asks for another pardon.
  (void)remember();
  return loaded;
}

Result<server::Generation> FilePolicyStore::candidate(const std::string& name_or_path) {
  const Known now = known();
  const Result<std::string> path = find(now, name_or_path);
  if (!path) return tl::unexpected<Error>(path.error());
  Result<server::Generation> loaded = offer(read(now, *path));
  if (loaded) loaded->on_disk = loaded->hash;
  return loaded;
}

Result<server::Generation> FilePolicyStore::running_content(const std::string& name) const {
  server::Generation running = known().running;
  const bool runs = name == running.name || name == fs::path(running.path).stem().string();
  if (running.path.empty() || !runs) {
    return fail(name + ": not the running policy; run heddle policy load " + name + " first");
  }
  return running;
}

Result<server::Generation> FilePolicyStore::with_params(const std::string& name,
                                                        const Params& params) {
  const Result<server::Generation> running = running_content(name);
  if (!running) return running;
  Content content = content_of(*running);
  for (const auto& [param, value] : params) content.values[param] = content.live[param] = value;
  return offer(std::move(content));
}

uint64_t FilePolicyStore::adopted(const server::Generation& generation, bool stands_in) {
  const std::lock_guard lock(mutex_);
  known_.running = generation;
  const uint64_t number = add_past(generation);
  if (generation.path.empty()) return number;
  known_.set[generation.path] = content_of(generation).live;
  if (stands_in) return number;
  known_.wanted = generation.path;
  if (!generation.on_disk.empty()) known_.seen = known_.on_disk = generation.on_disk;
  return number;
}

// What a file has: the hash of what loads, or why it does not and what it says instead.
std::string FilePolicyStore::text_of(const Result<server::Generation>& loaded,
                                     const std::string& path) {
  if (loaded) return loaded->hash;
  return loaded.error().message + policy::read_source(path).value_or("");
}

std::optional<Result<server::Generation>> FilePolicyStore::changed() {
  const Known now = known();
  std::error_code error;
  // Between the two halves of a rename there is no file; the second half comes as a change.
  if (now.wanted.empty() || !fs::exists(now.wanted, error)) return std::nullopt;
  const Result<std::string> path = find(now, now.wanted);
  Result<server::Generation> loaded =
      path ? offer(read(now, *path)) : Result<server::Generation>(tl::unexpect, path.error());
  const std::string found = text_of(loaded, now.wanted);
  {
    const std::lock_guard lock(mutex_);
    known_.on_disk = found;
    if (found == now.seen) return std::nullopt;
    known_.seen = found;
  }
  if (loaded && now.quarantined.count(loaded->hash) != 0) return std::nullopt;
  if (loaded) loaded->on_disk = found;
  return loaded;
}

void FilePolicyStore::quarantine(const server::Generation& generation, const std::string& why) {
  const std::lock_guard lock(mutex_);
  const bool was_good = known_.good && known_.good->hash == generation.hash;
  if (was_good && content_of(*known_.good).values != content_of(generation).values) return;
  std::string line = why.substr(0, kReasonMax);
  std::replace_if(
      line.begin(), line.end(), [](unsigned char c) { return c < 0x20; }, ' ');
  if (known_.quarantined.size() < kQuarantinedMax) known_.quarantined[generation.hash] = line;
  end_past("quarantined: " + line);
}

void FilePolicyStore::good(const server::Generation& generation) {
  const std::lock_guard lock(mutex_);
  known_.good = generation;
  known_.good_unsaved = true;
}

std::optional<server::Generation> FilePolicyStore::last_good() {
  Known now = known();
  if (!now.good || now.quarantined.count(now.good->hash) != 0) return std::nullopt;
  return now.good;
}

Result<void> FilePolicyStore::remember() {
  if (state_.empty()) return {};
  Known now;
  {
    const std::lock_guard lock(mutex_);
    now = known_;
    known_.good_unsaved = false;
  }
  std::string text;
  for (const auto& [hash, why] : now.quarantined) text += hash + ' ' + why + '\n';
  Result<void> kept = replace_file(state_, text, 0644);
  if (kept && now.good && now.good_unsaved) {
    kept = replace_file(good_state_, content_json(content_of(*now.good)).dump(), 0600);
  }
  if (kept) kept = remember_past();
  if (!kept) kept.error().message += "; quarantined and good policies will not be remembered";
  return kept;
}

json FilePolicyStore::content_json(const Content& content) {
  const std::lock_guard lock(content.imports->mutex);
  return {{"path", content.path},
          {"text", content.source.text},
          {"imports", content.imports->texts},
          {"values", content.values},
          {"live", content.live}};
}

// Its own directory is as trusted as the list of the quarantined; what is no policy any more, or
// was cut, is as if there were none.
std::optional<FilePolicyStore::Content> FilePolicyStore::content_from(const json& document) {
  const auto imports = std::make_shared<Imports>();
  imports->from_disk = false;
  Content content;
  try {
    content.path = document.at("path");
    content.source.text = document.at("text");
    content.values = document.at("values");
    content.live = document.at("live");
    imports->texts = document.at("imports");
  } catch (const json::exception&) {
    return std::nullopt;
  }
  content.source.chunk = fs::path(content.path).filename().string();
  content.source.directory = parent_of(content.path);
  content.source.read = [imports](const std::string& import) { return imports->read(import); };
  content.imports = imports;
  return content;
}

void FilePolicyStore::recall_good() {
  auto content = content_from(parse_json(read_file(good_state_, "").value_or("")));
  if (!content) return;
  if (Result<server::Generation> good = offer(std::move(*content))) known_.good = std::move(*good);
}

std::vector<std::string> FilePolicyStore::directories() {
  const Known now = known();
  if (!now.settings.watch) return {};
  std::vector<std::string> all{now.settings.directory};
  if (!now.wanted.empty() && parent_of(now.wanted) != now.settings.directory) {
    all.push_back(parent_of(now.wanted));
  }
  for (size_t i = all.size(); i-- > 0;) all.push_back(all[i] + "/lib");
  std::erase_if(all, [](const std::string& path) {
    std::error_code error;
    return !fs::is_directory(path, error) || !ownership_problem(path).empty();
  });
  return all;
}

json FilePolicyStore::list() {
  const Known now = known();
  json all = json::array();
  all.push_back({{"name", "builtin"}, {"running", now.running.path.empty()}});
  const std::vector<fs::path> files = policy::policy_files(now.settings.directory);
  // Anybody may ask, as often as he likes: what did not change is not read again.
  std::string state = state_of(now.settings.directory);
  for (const fs::path& file : files) {
    for (const auto& values : {configured(now, file.string()), live(now, file.string())}) {
      for (const auto& [name, value] : values) {
        state += file.string() + '\n' + name + '\n' + value + '\n';
      }
      state += '\n';
    }
  }
  if (state != listed_.first) listed_ = {state, read_list(now, files)};
  for (json one : listed_.second) {
    one["running"] = now.running.path == one["path"];
    const auto found = now.quarantined.find(one.value("hash", ""));
    if (found != now.quarantined.end()) one["quarantined"] = found->second;
    all.push_back(std::move(one));
  }
  return all;
}

json FilePolicyStore::read_list(const Known& known, const std::vector<fs::path>& files) {
  json all = json::array();
  for (const fs::path& file : files) {
    json one{{"name", file.stem().string()}, {"path", file.string()}};
    one["papers"] = file.lexically_relative(known.settings.directory).has_parent_path();
    std::vector<std::string> dropped;
    Result<Content> content = read(known, file.string());
    const auto policy =
        content ? make(*content, dropped) : tl::unexpected<Error>(std::move(content.error()));
    if (policy) {
      one["version"] = (*policy)->version();
      one["hash"] = (*policy)->content_hash();
      one["params"] = params_json(**policy);
    } else {
      one["error"] = policy.error().message;
    }
    all.push_back(std::move(one));
  }
  return all;
}

json FilePolicyStore::describe(const core::Policy& instance) const {
  const auto* policy = dynamic_cast<const policy::LuaPolicy*>(&instance);
  if (policy == nullptr) return json::object();
  const policy::Fault& fault = policy->last_fault();
  json said = json::array();
  for (const policy::Said& s : policy->said()) {
    said.push_back({{"verdict", s.verdict}, {"reason", s.reason}, {"count", s.count}});
  }
  std::vector<std::string> trace = policy->trace_lines();
  trace.erase(trace.begin(), trace.end() - std::min<ptrdiff_t>(std::ssize(trace), kTraceShown));
  return {
      {"name", policy->name()},
      {"version", policy->version()},
      {"params", params_json(*policy)},
      {"verdict", policy->last_verdict()},
      {"reason", policy->last_reason()},
      {"said", std::move(said)},
      {"hooks", hooks_json(*policy)},
      {"trace", std::move(trace)},
      {"faults", fault.count},
      {"fault", fault.count == 0 ? "" : fault.kind + " in " + fault.hook + ": " + fault.message}};
}

}  // namespace heddle
