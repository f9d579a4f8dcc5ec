#include "daemon/policy_store.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "daemon/replace_file.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr size_t kQuarantinedMax = 1'000;
constexpr ptrdiff_t kTraceShown = 8;  // lines of a device: an answer is one packet

// Whoever can write a policy decides for everybody on this GPU. A group that writes is often
// nobody else, root's or the user's own, as a umask of 002 makes files.
std::string ownership_problem(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return path + ": cannot be read; check the path";
  if (info.st_uid != 0 && info.st_uid != geteuid()) {
    return path + ": owned by neither root nor the daemon's user; chown it";
  }
  if ((info.st_mode & S_IWOTH) != 0) return path + ": anybody can write it; run chmod o-w on it";
  if ((info.st_mode & S_IWGRP) != 0 && info.st_gid != 0 && info.st_gid != getegid()) {
    return path + ": a group can write it that is neither root's nor the daemon's; run chmod g-w " +
           "on it";
  }
  return "";
}

std::string read_text(const std::string& path) {
  std::ifstream stream(path);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

std::string parent_of(const std::string& path) { return fs::path(path).parent_path().string(); }

// `real` is canonical: a link in its place would be somebody else's to change.
Result<void> check_owners(const fs::path& real) {
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

bool is_policy_file(const fs::path& path) {
  const std::string stem = path.stem().string();
  return path.extension() == ".lua" &&
         (stem.size() < 5 || stem.compare(stem.size() - 5, 5, "_test") != 0);
}

// Of all files of a directory, in whatever order it lists them: names, times and sizes.
std::string state_of(const std::string& directory) {
  std::ostringstream state;
  std::error_code error;
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

json params_json(const policy::LuaPolicy& policy) {
  json all = json::array();
  for (const policy::Param& param : policy.params()) {
    all.push_back({{"name", param.name},
                   {"value", param.value},
                   {"default", param.default_value},
                   {"doc", param.doc}});
  }
  return all;
}

}  // namespace

FilePolicyStore::FilePolicyStore(server::PolicySettings settings, std::string state)
    : settings_(std::move(settings)), state_(std::move(state)) {
  std::ifstream stream(state_);
  for (std::string hash; quarantined_.size() < kQuarantinedMax && stream >> hash;) {
    quarantined_.insert(hash);
  }
}

Result<void> FilePolicyStore::save_quarantined() const {
  if (state_.empty()) return {};
  std::string text;
  for (const std::string& hash : quarantined_) text += hash + '\n';
  Result<void> kept = replace_file(state_, text, 0644);
  if (!kept) kept.error().message += "; quarantined policies will not be remembered";
  return kept;
}

Result<void> FilePolicyStore::quarantine(const std::string& hash) {
  if (quarantined_.size() < kQuarantinedMax) quarantined_.insert(hash);
  return save_quarantined();
}

Result<std::string> FilePolicyStore::find(const std::string& name_or_path) const {
  std::string path = name_or_path;
  if (path.find('/') == std::string::npos) {
    path = settings_.directory + "/" + path + (fs::path(path).extension() == ".lua" ? "" : ".lua");
  }
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  if (error) return fail(path + ": no such policy; heddle policy list shows what there is");
  // /proc/PID/root leads into a container, and resolves to a path of ours.
  if (!fs::equivalent(path, real, error)) {
    return fail(path + ": leads to another file than " + real.string() + "; name one of this host");
  }
  if (const Result<void> owned = check_owners(real); !owned) return fail(owned.error().message);
  // The name as given, not what a link points at: the link is what will be changed.
  return fs::absolute(path).lexically_normal().string();
}

policy::ParamValues FilePolicyStore::configured(const std::string& path) const {
  const Result<std::string> named = find(settings_.name);
  if (!named || *named != path) return {};
  return {settings_.params.begin(), settings_.params.end()};
}

policy::ParamValues FilePolicyStore::live(const std::string& path) const {
  const auto found = set_.find(path);
  return found != set_.end() ? found->second : policy::ParamValues{};
}

Result<FilePolicyStore::Content> FilePolicyStore::read(const std::string& path) const {
  Result<std::string> text = policy::read_source(path);
  if (!text) return tl::unexpected<Error>(std::move(text.error()));
  const auto imports = std::make_shared<std::map<std::string, std::string>>();
  const auto once = [imports](const std::string& import) -> Result<std::string> {
    if (const auto known = imports->find(import); known != imports->end()) return known->second;
    Result<std::string> read = read_owned(import);
    if (read) imports->emplace(import, *read);
    return read;
  };
  return Content{path,
                 {std::move(*text), fs::path(path).filename().string(), parent_of(path), once},
                 configured(path),
                 live(path)};
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
  generation.make = [source = content->source,
                     values = content->values]() -> Result<std::unique_ptr<core::Policy>> {
    return policy::load_policy(source, values);
  };
  offered_ = std::move(*content);
  return generation;
}

Result<server::Generation> FilePolicyStore::load(const std::string& name_or_path, bool pardon) {
  if (name_or_path == "builtin") {
    wanted_.clear();
    return server::Generation{};
  }
  const Result<std::string> path = find(name_or_path);
  if (!path) return tl::unexpected<Error>(path.error());
  if (running_.path.empty()) wanted_ = *path;  // mended by a save, it comes to life
  Result<server::Generation> loaded = offer(read(*path));
  if (!loaded || quarantined_.count(loaded->hash) == 0) return loaded;
  if (!pardon) {
    return fail(*path + ": quarantined, it faulted too often; mend it, or run heddle policy load " +
                loaded->name);
  }
  quarantined_.erase(loaded->hash);
  // If that cannot be written down, the next start asks for another pardon.
  (void)save_quarantined();
  return loaded;
}

Result<server::Generation> FilePolicyStore::with_params(const std::string& name,
                                                        const Params& params) {
  const bool runs = name == running_.name || name == fs::path(running_.path).stem().string();
  if (running_.path.empty() || !runs) {
    return fail(name + ": not the running policy; run heddle policy load " + name + " first");
  }
  Content content = content_;
  for (const auto& [param, value] : params) content.values[param] = content.live[param] = value;
  return offer(std::move(content));
}

void FilePolicyStore::adopted(const server::Generation& generation) {
  running_ = generation;
  if (generation.path.empty()) return;
  wanted_ = generation.path;
  seen_ = generation.hash;
  content_ = offered_;
  set_[generation.path] = content_.live;
}

std::optional<Result<server::Generation>> FilePolicyStore::changed() {
  std::error_code error;
  // Between the two halves of a rename there is no file; the second half comes as a change.
  if (wanted_.empty() || !fs::exists(wanted_, error)) return std::nullopt;
  const Result<std::string> path = find(wanted_);
  Result<server::Generation> loaded =
      path ? offer(read(*path)) : Result<server::Generation>(tl::unexpect, path.error());
  const std::string found = loaded ? loaded->hash : loaded.error().message + read_text(wanted_);
  if (found == seen_) return std::nullopt;
  seen_ = found;
  if (loaded && quarantined_.count(loaded->hash) != 0) return std::nullopt;
  return loaded;
}

std::vector<std::string> FilePolicyStore::directories() const {
  if (!settings_.watch) return {};
  std::vector<std::string> all{settings_.directory};
  if (!wanted_.empty() && parent_of(wanted_) != settings_.directory) {
    all.push_back(parent_of(wanted_));
  }
  for (size_t i = all.size(); i-- > 0;) all.push_back(all[i] + "/lib");
  std::erase_if(all, [](const std::string& path) {
    std::error_code error;
    return !fs::is_directory(path, error) || !ownership_problem(path).empty();
  });
  return all;
}

json FilePolicyStore::list() const {
  json all = json::array();
  all.push_back({{"name", "builtin"}, {"running", running_.path.empty()}});
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(settings_.directory, error)) {
    if (is_policy_file(entry.path())) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  // Anybody may ask, as often as he likes: what did not change is not read again.
  std::string state = state_of(settings_.directory);
  for (const fs::path& file : files) {
    for (const auto& values : {configured(file.string()), live(file.string())}) {
      for (const auto& [name, value] : values) {
        state += file.string() + '\n' + name + '\n' + value + '\n';
      }
      state += '\n';
    }
  }
  if (state != listed_.first) listed_ = {state, read_list(files)};
  for (json one : listed_.second) {
    one["running"] = running_.path == one["path"];
    all.push_back(std::move(one));
  }
  return all;
}

json FilePolicyStore::read_list(const std::vector<fs::path>& files) const {
  json all = json::array();
  for (const fs::path& file : files) {
    json one{{"name", file.stem().string()}, {"path", file.string()}};
    std::vector<std::string> dropped;
    Result<Content> content = read(file.string());
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

json FilePolicyStore::status() const {
  return {{"directory", settings_.directory},
          {"watch", settings_.watch},
          {"wanted", wanted_},
          {"quarantined", quarantined_}};
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
      {"trace", std::move(trace)},
      {"faults", fault.count},
      {"fault", fault.count == 0 ? "" : fault.kind + " in " + fault.hook + ": " + fault.message}};
}

}  // namespace heddle
