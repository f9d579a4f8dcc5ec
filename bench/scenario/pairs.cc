#include "bench/scenario/pairs.h"

#include <string_view>
#include <utility>

namespace heddle::scenario {
namespace {

// The keys of `from` stand in `out`, instead of its own if `over`. Moved: copies have no lines.
void lay(toml::table& from, toml::table& out, bool over) {
  for (auto&& [key, node] : from) {
    if (!over && out.contains(key.str())) continue;
    node.visit([&, &at = key](auto& value) { out.insert_or_assign(at, std::move(value)); });
  }
}

// Names of the tables in [KEY.NAME], apart by commas.
std::string names(const toml::table& root, std::string_view key) {
  std::string out;
  if (const toml::table* all = root[key].as_table()) {
    for (const auto& [name, node] : *all) out.append(out.empty() ? "" : ", ").append(name.str());
  }
  return out;
}

toml::table* find(toml::table& root, std::string_view key, std::string_view name) {
  return root[key][name].as_table();
}

toml::table* job_of(toml::table& root, std::string_view name) {
  toml::array* jobs = root["job"].as_array();
  if (jobs == nullptr) return nullptr;
  for (toml::node& node : *jobs) {
    toml::table* job = node.as_table();
    if (job != nullptr && (*job)["name"].value_or(std::string_view()) == name) return job;
  }
  return nullptr;
}

// What each job runs: of a parse of its own, because two jobs may run the same.
std::string give_programs(toml::table& root, const std::string& text, const std::string& file) {
  const toml::node* programs = root.get("programs");
  if (programs == nullptr) return "";
  const auto at = [&](const toml::node& node) {
    return file + ":" + std::to_string(node.source().begin.line) + ": programs: ";
  };
  if (!programs->is_table()) return at(*programs) + "write { JOB = \"PROGRAM\" }";
  for (const auto& [job, node] : *programs->as_table()) {
    toml::table fresh = toml::parse(text, file);
    toml::table* program = find(fresh, "program", node.value_or(std::string_view()));
    if (program == nullptr) {
      return at(node) + "no such [program.NAME]; there are: " + names(fresh, "program");
    }
    toml::table* runs = job_of(root, job);
    if (runs == nullptr) return at(node) + "no [[job]] is called '" + std::string(job) + "'";
    lay(*program, *runs, false);
  }
  root.erase("programs");
  return "";
}

}  // namespace

std::string choose_pair(toml::table& root, const std::string& text, const std::string& file,
                        const std::string& name) {
  if (!root.contains("pair")) return file + ": has no [pair.NAME]; leave out --pair";
  toml::table *pair = find(root, "pair", name), *variant = nullptr;
  std::string of = name;  // the pair's part of it
  for (size_t at = 0; pair == nullptr && (at = name.find('_', at)) != std::string::npos; ++at) {
    variant = find(root, "variant", std::string_view(name).substr(at + 1));
    if (variant != nullptr) pair = find(root, "pair", of = name.substr(0, at));
  }
  if (pair == nullptr) {
    return file + ": " + (name.empty() ? "has pairs" : "has no pair '" + name + "'") +
           "; give --pair one of " + names(root, "pair") +
           (root.contains("variant") ? ", or PAIR_VARIANT of " + names(root, "variant") : "");
  }
  toml::table chosen = std::move(*pair);
  if (variant != nullptr) {
    variant->insert_or_assign("about", of + ": " + (*variant)["about"].value_or(std::string()));
    lay(*variant, chosen, true);
  }
  for (const char* key : {"pair", "variant", "program"}) root.erase(key);
  lay(chosen, root, true);
  root.insert_or_assign("name", name);
  return give_programs(root, text, file);
}

}  // namespace heddle::scenario
