// The store's memory of generations: what ran, who put it there, and how it ended.
#include <sys/stat.h>
#include <time.h>

#include <algorithm>
#include <filesystem>

#include "daemon/base/files.h"
#include "daemon/base/json.h"
#include "daemon/base/utc_text.h"
#include "daemon/policy_store.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr size_t kPastMax = 100;     // generations that are remembered,
constexpr size_t kContentsMax = 20;  // and of the newest of them the text

constexpr const char* kByItself = "rolled back by itself";  // of LoadedBy::how

json by_json(const server::LoadedBy& by) {
  return {{"how", by.how}, {"uid", by.uid >= 0 ? json(by.uid) : json()}, {"pid", by.pid}};
}

}  // namespace

uint64_t FilePolicyStore::add_past(const server::Generation& generation) {
  end_past("replaced by " + std::to_string(++last_number_) + " (" + generation.by.how + ")");
  Past now{last_number_,
           generation.name,
           generation.path,
           generation.hash,
           generation.by,
           time(nullptr),
           0,
           "",
           generation.as,
           std::static_pointer_cast<const Content>(generation.content)};
  // What stands in for one that was quarantined is the last good one, which ran.
  const auto ran = [&](const Past& one) { return same(one, now) && !thrown_out(one); };
  if (const auto at = std::find_if(past_.rbegin(), past_.rend(), ran);
      now.as == 0 && now.by.how == "fallback" && at != past_.rend()) {
    now.as = at->number;
  }
  past_.push_back(std::move(now));
  if (past_.size() > kPastMax) past_.erase(past_.begin());
  if (past_.size() > kContentsMax) past_[past_.size() - 1 - kContentsMax].content.reset();
  past_unsaved_ = true;
  return last_number_;
}

// The first that is said of it stands.
void FilePolicyStore::end_past(const std::string& how) {
  if (past_.empty() || !past_.back().ended.empty()) return;
  past_.back().ended = how;
  past_.back().ended_at = time(nullptr);
  past_unsaved_ = true;
}

bool FilePolicyStore::same(const Past& a, const Past& b) {
  if (a.path != b.path || a.hash != b.hash) return false;
  if (a.content == nullptr || b.content == nullptr) return a.content == b.content;
  return a.content->values == b.content->values;
}

// By heddle itself, for what it did.
bool FilePolicyStore::thrown_out(const Past& one) const {
  return one.ended.starts_with("quarantined") || one.ended.find(kByItself) != std::string::npos ||
         (!one.hash.empty() && known_.quarantined.contains(one.hash));
}

// With the mutex held.
Result<FilePolicyStore::Past> FilePolicyStore::wanted_past(uint64_t number) const {
  if (past_.empty()) return fail("policy rollback: nothing ran yet");
  // Who goes back twice goes further back.
  uint64_t before = past_.back().number;
  for (auto at = past_.rbegin(); at != past_.rend(); ++at) {
    if (at->number == before && at->as != 0) before = at->as;
  }
  const auto is_wanted = [&](const Past& one) {
    if (number != 0) return one.number == number;
    return one.number < before && !thrown_out(one) && !same(one, past_.back());
  };
  const auto at = std::find_if(past_.rbegin(), past_.rend(), is_wanted);
  if (at != past_.rend()) return *at;
  if (number == 0) {
    return fail("policy rollback: no other generation ran before generation " +
                std::to_string(before) + " that was not thrown out; heddle policy history");
  }
  return fail("policy rollback: no generation " + std::to_string(number) +
              "; heddle policy history lists them");
}

Result<server::Generation> FilePolicyStore::past(uint64_t number) {
  Result<Past> wanted = fail("");
  {
    const std::lock_guard lock(mutex_);
    wanted = wanted_past(number);
  }
  if (!wanted) return tl::unexpected<Error>(std::move(wanted.error()));
  const Past& found = *wanted;
  if (found.path.empty()) {
    Result<server::Generation> builtin = load("builtin", true);
    if (builtin) builtin->as = found.number;
    return builtin;
  }
  if (found.content == nullptr) {
    return fail("policy rollback: the text of generation " + std::to_string(found.number) +
                " is not kept any more; heddle policy load its file");
  }
  Result<server::Generation> again = offer(Content(*found.content));
  if (!again) return again;
  const Known now = known();
  again->as = found.number;
  again->on_disk = text_of(offer(read(now, found.path)), found.path);
  const std::lock_guard lock(mutex_);
  known_.quarantined.erase(again->hash);  // who asks for it pardons it
  return again;
}

Result<server::Generation> FilePolicyStore::without_params(const std::string& name,
                                                           const std::vector<std::string>& names) {
  const Result<server::Generation> running = running_content(name);
  if (!running) return running;
  Content content = content_of(*running);
  for (const std::string& param : names) {
    if (content.live.erase(param) == 0) {
      return fail(name + ": nobody has set '" + param + "' live; heddle policy show has who is");
    }
  }
  if (names.empty()) content.live.clear();
  content.values = configured(known(), content.path);
  return offer(std::move(content));
}

// Cheap while nothing happens: the file is read only if it is not as it was.
void FilePolicyStore::look() {
  const Known now = known();
  struct stat file;
  if (now.wanted.empty() || stat(now.wanted.c_str(), &file) != 0) return;
  const std::string state =
      now.wanted + ' ' + std::to_string(file.st_ino) + ' ' + std::to_string(file.st_size) + ' ' +
      std::to_string(file.st_mtim.tv_sec) + '.' + std::to_string(file.st_mtim.tv_nsec);
  if (state == now.disk_state) return;
  const std::string found = text_of(offer(read(now, now.wanted)), now.wanted);
  const std::lock_guard lock(mutex_);
  known_.disk_state = state;
  if (known_.wanted == now.wanted) known_.on_disk = found;
}

json FilePolicyStore::history() const {
  const std::lock_guard lock(mutex_);
  json all = json::array();
  for (const Past& one : past_) {
    json row = by_json(one.by);
    row.update({{"generation", one.number},
                {"name", one.name},
                {"path", one.path},
                {"hash", one.hash},
                {"at", utc_text(one.at)},
                {"as", one.as},
                {"ended", one.ended},
                {"ended_at", one.ended.empty() ? json() : json(utc_text(one.ended_at))},
                {"kept", one.path.empty() || one.content != nullptr}});
    all.push_back(std::move(row));
  }
  return all;
}

json FilePolicyStore::describe_ended(const core::Policy& instance) const {
  json all = describe(instance);
  const auto* policy = dynamic_cast<const policy::LuaPolicy*>(&instance);
  if (policy == nullptr) return all;
  json maps = json::array();
  for (const policy::Maps::Named& map : policy->maps().all()) {
    maps.push_back({{"name", map.name}, {"entries", map.map.size()}, {"max", map.map.form().max}});
  }
  all.update({{"traceback", policy->last_fault().traceback}, {"maps", std::move(maps)}});
  return all;
}

json FilePolicyStore::status() const {
  const Known now = known();
  json hashes = json::array();
  for (const auto& [hash, why] : now.quarantined) hashes.push_back(hash);
  json good = nullptr;
  if (now.good) good = {{"name", now.good->name}, {"hash", now.good->hash}};
  const bool differs = !now.wanted.empty() && !now.on_disk.empty() &&
                       (now.on_disk != now.running.hash || now.wanted != now.running.path);
  json values = json::object();
  if (now.running.content != nullptr) values = content_of(now.running).values;
  return {{"directory", now.settings.directory},
          {"watch", now.settings.watch},
          {"wanted", now.wanted},
          {"file_differs", differs},
          {"values", std::move(values)},
          {"last_good", std::move(good)},
          {"quarantined", std::move(hashes)}};
}

json FilePolicyStore::show() const {
  const Known now = known();
  json all{{"name", now.running.name},
           {"path", now.running.path},
           {"hash", now.running.hash},
           {"wanted", now.wanted}};
  if (now.running.content != nullptr) all.update(content_json(content_of(now.running)));
  return all;
}

Result<void> FilePolicyStore::remember_past() {
  std::vector<Past> past;
  {
    const std::lock_guard lock(mutex_);
    if (!past_unsaved_) return {};
    past_unsaved_ = false;
    past = past_;
  }
  json rows = json::array();
  for (const Past& one : past) {
    json row = by_json(one.by);
    row.update({{"generation", one.number},
                {"name", one.name},
                {"path", one.path},
                {"hash", one.hash},
                {"at", one.at},
                {"as", one.as},
                {"ended", one.ended},
                {"ended_at", one.ended_at}});
    if (one.content != nullptr) row["content"] = content_json(*one.content);
    rows.push_back(std::move(row));
  }
  const auto replace = json::error_handler_t::replace;
  Result<void> kept = replace_file(past_state_, rows.dump(-1, ' ', false, replace), 0600);
  if (!kept) {
    const std::lock_guard lock(mutex_);
    past_unsaved_ = true;
  }
  return kept;
}

void FilePolicyStore::recall_past() {
  const json rows = parse_json(read_file(past_state_, "").value_or(""));
  if (!rows.is_array()) return;
  for (const json& row : rows) {
    Past one;
    try {
      one.number = row.at("generation");
      one.name = row.at("name");
      one.path = row.at("path");
      one.hash = row.at("hash");
      one.by = {row.at("how"), row.at("uid").is_null() ? -1 : row.at("uid").get<int64_t>(),
                row.at("pid")};
      one.at = row.at("at");
      one.as = row.value("as", uint64_t{0});
      one.ended = row.at("ended");
      one.ended_at = row.at("ended_at");
    } catch (const json::exception&) {
      continue;
    }
    if (const auto content = row.find("content"); content != row.end()) {
      if (std::optional<Content> text = content_from(*content)) {
        one.content = std::make_shared<const Content>(std::move(*text));
      }
    }
    last_number_ = std::max(last_number_, one.number);
    past_.push_back(std::move(one));
  }
  if (past_.size() > kPastMax) past_.erase(past_.begin(), past_.end() - kPastMax);
  end_past("heddled ended");
}

}  // namespace heddle
