#include "bench/scenario/pairs.h"

#include <string_view>
#include <utility>

namespace heddle::scenario {
namespace {

// The keys of `from` stand in `out`, instead of its own if `over`; tables of both are laid
// likewise. Moved: copies have no lines.
void lay(toml::table& from, toml::table& out, bool over) {
  for (auto&& [key, node] : from) {
    toml::table *inner = node.as_table(), *there = out[key.str()].as_table();
    if (inner != nullptr && there != nullptr) {
      lay(*inner, *there, over);
      continue;
    }
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

// Calls `give(job, node)` for each job that the table `key` names; it returns a complaint or "".
template <class Give>
std::string for_jobs(toml::table& root, const std::string& file, const char* key,
                     const char* wanted, Give&& give) {
  toml::node* all = root.get(key);
  if (all == nullptr) return "";
  const auto at = [&](const toml::node& node, const std::string& what) {
    return file + ":" + std::to_string(node.source().begin.line) + ": " + key + ": " + what;
  };
  if (!all->is_table()) return at(*all, wanted);
  for (auto&& [name, node] : *all->as_table()) {
    toml::table* job = job_of(root, name);
    if (job == nullptr) return at(node, "no [[job]] is called '" + std::string(name) + "'");
    if (const std::string problem = give(*job, node); !problem.empty()) return at(node, problem);
  }
  root.erase(key);
  return "";
}

// What each job runs: of a parse of its own, because two jobs may run the same.
std::string give_programs(toml::table& root, const std::string& text, const std::string& file) {
  return for_jobs(root, file, "programs", "write { JOB = \"PROGRAM\" }",
                  [&](toml::table& job, toml::node& node) -> std::string {
                    toml::table fresh = toml::parse(text, file);
                    toml::table* program =
                        find(fresh, "program", node.value_or(std::string_view()));
                    if (program == nullptr) {
                      return "no such [program.NAME]; there are: " + names(fresh, "program");
                    }
                    lay(*program, job, false);
                    return "";
                  });
}

// What each job has instead of its program's keys and its own.
std::string change_jobs(toml::table& root, const std::string& file) {
  constexpr const char* kWanted = "write { JOB = { KEY = VALUE } }";
  return for_jobs(root, file, "jobs", kWanted,
                  [&](toml::table& job, toml::node& node) -> std::string {
                    if (!node.is_table()) return kWanted;
                    lay(*node.as_table(), job, true);
                    return "";
                  });
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
  const std::string problem = give_programs(root, text, file);
  return problem.empty() ? change_jobs(root, file) : problem;
}

}  // namespace heddle::scenario
