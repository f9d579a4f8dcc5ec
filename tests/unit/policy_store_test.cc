// The policy directory: what a name finds, whose files are read, and that what runs stays what it
// was checked as, whatever is saved.
#include "daemon/policy_store.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "daemon/policy/culprit.h"
#include "tests/folder.h"
#include "tests/unit/fake_gpu.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

class PolicyStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    settings_.directory = made_.path();
    fs::create_directory(settings_.directory + "/lib");
    fs::create_directory(settings_.directory + "/papers");
  }

  void save(const std::string& file, const std::string& text) const {
    std::ofstream(settings_.directory + "/" + file) << text;
  }
  // A policy named `name` with these integers as parameters, each 1 by default and 9 at most.
  static std::string policy(const std::string& name, const std::vector<std::string>& params,
                            const std::string& above = "") {
    std::string declared;
    for (const std::string& param : params) {
      declared += param + " = { type = 'int', min = 0, max = 9, default = 1, doc = 'd' }, ";
    }
    return above + "\nreturn policy { name = '" + name + "', api = 1, version = '1', params = { " +
           declared + " }, hooks = {} }";
  }
  static void adopt(FilePolicyStore& store, const Result<server::Generation>& generation) {
    ASSERT_TRUE(generation) << generation.error().message;
    store.adopted(*generation, false);
  }
  // As "a=1 b=2", of a new instance.
  static std::string params(const FilePolicyStore& store, const server::Generation& generation) {
    const auto made = generation.make();
    if (!made) return made.error().message;
    std::map<std::string, std::string> values;
    const nlohmann::json said = store.describe(**made);
    for (const auto& param : said["params"]) values[param["name"]] = param["value"];
    std::string all;
    for (const auto& [name, value] : values) all += (all.empty() ? "" : " ") + name + "=" + value;
    return all;
  }

  const TestFolder made_;
  server::PolicySettings settings_;
};

TEST_F(PolicyStoreTest, PolicyOfPapersIsFoundByNameAndByThePathThatItHadBefore) {
  save("lib/x.lua", "return {}");
  save("papers/rule.lua", policy("rule", {"a"}, "local x = import 'lib/x'"));
  FilePolicyStore store(settings_);
  for (const std::string named : {"rule", "rule.lua"}) adopt(store, store.load(named, false));
  const std::string path = settings_.directory + "/rule.lua";
  const auto loaded = store.load(path, false);
  adopt(store, loaded);
  EXPECT_EQ(loaded->path, settings_.directory + "/papers/rule.lua");

  save("rule.lua", policy("mine", {}));
  EXPECT_EQ(store.load("rule", false)->name, "mine") << "one's own comes first";
  EXPECT_NE(store.load("rul", false).error().message.find("did you mean 'rule'?"),
            std::string::npos);
  EXPECT_NE(store.load("zzzzzz", false).error().message.find("policy list"), std::string::npos);
}

TEST_F(PolicyStoreTest, SaysWhereNoPolicyIsAtAll) {
  settings_.directory += "/none";
  const std::string error = FilePolicyStore(settings_).load("auto", false).error().message;
  EXPECT_NE(error.find("auto.lua: no such policy; no policy is there: install"), error.npos);
}

TEST_F(PolicyStoreTest, ImportFindsWhatPapersHas) {
  save("papers/rule.lua", policy("rule", {}));
  save("old_name.lua", "return import 'rule'");
  FilePolicyStore store(settings_);
  EXPECT_EQ(store.load("old_name", false)->name, "rule");
}

TEST_F(PolicyStoreTest, ParametersOfAPolicyOfPapersComeFromTheConfiguration) {
  save("papers/rule.lua", policy("rule", {"a"}));
  settings_.name = "rule";
  settings_.params = {{"a", "5"}};
  FilePolicyStore store(settings_);
  EXPECT_EQ(params(store, *store.load("rule", false)), "a=5");
}

TEST_F(PolicyStoreTest, PolicyKeepsPromisesIfItsCodeAsksOfThem) {
  FilePolicyStore store(settings_);
  for (const auto& [above, keeps] : {std::pair("-- budget.left says it", false),
                                     {"--[[ slowdown_max\n budget.left ]]", false},
                                     {"local my_budget = {}; my_budget.x = 1", false},
                                     {"local slowdown_max_of = 1", false},
                                     {"local x = budget.reserve", true},
                                     {"local x = '--'; x = budget.reserve", true},
                                     {"local f = function(c) return c.slowdown_max end", true}}) {
    save("one.lua", policy("one", {}, above));
    const auto loaded = store.load("one", false);
    ASSERT_TRUE(loaded) << loaded.error().message;
    EXPECT_EQ(loaded->keeps_promises, keeps) << above;
    EXPECT_FALSE(loaded->keeps_p99 || loaded->keeps_compute) << above;
  }
  save("one.lua", policy("one", {}, "local f = function(c) return c.slowdown_p99_max end"));
  EXPECT_TRUE(store.load("one", false)->keeps_p99);
  EXPECT_FALSE(store.load("one", false)->keeps_promises) << "not of the mean";
  save("one.lua", policy("one", {}, "local f = function(c) return c.request end"));
  EXPECT_TRUE(store.load("one", false)->keeps_compute);
}

TEST_F(PolicyStoreTest, ListHasThePapersApartAndWithoutWhatIsHidden) {
  for (const char* file : {"z", "papers/a", "papers/b", "papers/b_test", "b"}) {
    save(std::string(file) + ".lua", policy("p", {}));
  }
  settings_.directory += "/";
  std::string listed;
  for (const auto& one : FilePolicyStore(settings_).list()) {
    listed += (one.value("papers", false) ? "papers/" : "") + std::string(one["name"]) + " ";
  }
  EXPECT_EQ(listed, "builtin b z papers/a ");
}

TEST_F(PolicyStoreTest, ParametersAreSetByTheNameThatLoadsAPolicy) {
  save("mine.lua", policy("declared", {"a"}));
  FilePolicyStore store(settings_);
  adopt(store, store.load("mine", false));
  EXPECT_TRUE(store.with_params("mine", {{"a", "2"}}));
  EXPECT_TRUE(store.with_params("declared", {{"a", "2"}}));
  const auto other = store.with_params("other", {{"a", "2"}});
  ASSERT_FALSE(other);
  EXPECT_NE(other.error().message.find("not the running policy"), std::string::npos);
}

TEST_F(PolicyStoreTest, ImportsNothingThatOthersCanWrite) {
  const std::string lib = settings_.directory + "/lib";
  save("lib/x.lua", "return {}");
  save("p.lua", policy("p", {}, "local x = import 'lib/x'"));
  FilePolicyStore listed(settings_);
  FilePolicyStore store(settings_);
  const auto refusal = [&](mode_t folder, mode_t file) {
    EXPECT_EQ(chmod(lib.c_str(), folder), 0);
    EXPECT_EQ(chmod((lib + "/x.lua").c_str(), file), 0);
    const auto loaded = store.load("p", true);
    return loaded ? "" : loaded.error().message;
  };
  EXPECT_EQ(refusal(0755, 0644), "");
  EXPECT_NE(refusal(0755, 0646).find("lib/x.lua: anybody can write it"), std::string::npos);
  EXPECT_NE(refusal(0777, 0644).find("lib: anybody can write it"), std::string::npos);
  EXPECT_NE(listed.list().at(1).value("error", "").find("chmod o-w"), std::string::npos);
}

TEST_F(PolicyStoreTest, AGenerationStaysWhatItWasWhateverIsSaved) {
  save("lib/x.lua", "return {}");
  save("p.lua", policy("p", {"a"}, "local x = import 'lib/x'"));
  FilePolicyStore store(settings_);
  const auto first = store.load("p", false);
  adopt(store, first);
  save("lib/x.lua", "return {} broken");
  EXPECT_EQ(params(store, *first), "a=1") << "a device that comes later";
  auto set = store.with_params("p", {{"a", "2"}});
  adopt(store, set);
  EXPECT_EQ(params(store, *set), "a=2");

  save("lib/x.lua", "return {}");
  save("p.lua", policy("p", {"a", "unloaded"}));
  set = store.with_params("p", {{"a", "3"}});
  adopt(store, set);
  EXPECT_EQ(params(store, *set), "a=3") << "an edit is live when it is loaded";
  EXPECT_EQ(set->hash, first->hash);
  const auto loaded = store.load("p", false);
  adopt(store, loaded);
  EXPECT_EQ(params(store, *loaded), "a=3 unloaded=1");
}

TEST_F(PolicyStoreTest, AParameterSetLiveLeavesTheConfigurationItsSay) {
  save("p.lua", policy("p", {"a", "b"}));
  settings_.name = "p";
  settings_.params = {{"a", "5"}};
  FilePolicyStore store(settings_);
  adopt(store, store.load("p", false));
  adopt(store, store.with_params("p", {{"b", "7"}}));
  settings_.params = {{"a", "9"}};
  store.configure(settings_);
  const auto loaded = store.load("p", false);
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(params(store, *loaded), "a=9 b=7");
}

TEST_F(PolicyStoreTest, AParameterSetLiveDoesNotOutliveItsDeclaration) {
  save("p.lua", policy("p", {"a", "b"}));
  FilePolicyStore store(settings_);
  adopt(store, store.load("p", false));
  adopt(store, store.with_params("p", {{"a", "2"}, {"b", "7"}}));
  save("p.lua", policy("p", {"a", "c"}));
  EXPECT_EQ(store.list().at(1).value("error", ""), "");
  const auto changed = store.changed();
  ASSERT_TRUE(changed && *changed) << changed->error().message;
  EXPECT_EQ(params(store, **changed), "a=2 c=1");
  ASSERT_EQ((*changed)->dropped.size(), 1u);
  EXPECT_NE((*changed)->dropped[0].find("no parameter 'b'"), std::string::npos);
  adopt(store, *changed);
  const auto set = store.with_params("p", {{"c", "3"}});
  adopt(store, set);
  EXPECT_EQ(params(store, *set), "a=2 c=3");
  EXPECT_TRUE(set->dropped.empty()) << "said once";
  EXPECT_FALSE(store.with_params("p", {{"b", "3"}})) << "now it is a mistake";
}

TEST_F(PolicyStoreTest, FallsBackToTheLastGoodGenerationAlsoAfterARestart) {
  const std::string state = settings_.directory + "/quarantined";
  save("lib/x.lua", "return {}");
  save("p.lua", policy("p", {"a"}, "local x = import 'lib/x'"));
  std::string good;
  {
    FilePolicyStore store(settings_, state);
    EXPECT_FALSE(store.last_good());
    adopt(store, store.load("p", false));
    const auto set = store.with_params("p", {{"a", "2"}});
    adopt(store, set);
    store.good(*set);
    good = set->hash;
    save("lib/x.lua", "return { worse = true }");
    const auto worse = store.load("p", false);
    adopt(store, worse);
    store.quarantine(*worse, "error in dispatch: p.lua:7: on purpose\n");
    ASSERT_TRUE(store.last_good());
    EXPECT_EQ(store.last_good()->hash, good);
    ASSERT_TRUE(store.remember());
    EXPECT_NE(store.list().at(1).value("quarantined", "").find("p.lua:7"), std::string::npos);
  }
  FilePolicyStore again(settings_, state);
  const auto refused = again.load("p", false);
  ASSERT_TRUE(refused) << refused.error().message;
  EXPECT_NE(refused->quarantined.find("p.lua:7: on purpose"), std::string::npos);
  const auto last = again.last_good();
  ASSERT_TRUE(last);
  EXPECT_EQ(last->hash, good) << "though its files have changed";
  EXPECT_EQ(params(again, *last), "a=2");
  again.adopted(*last, true);
  EXPECT_FALSE(again.changed()) << "what its file has is quarantined";
  again.quarantine(*last, "it faults too");
  EXPECT_FALSE(again.last_good()) << "once, then the built-in";
  ASSERT_TRUE(again.remember());
  EXPECT_FALSE(FilePolicyStore(settings_, state).last_good());
}

TEST_F(PolicyStoreTest, APolicyInWhichTheDaemonDiedIsQuarantinedAtTheNextStart) {
  struct DyingGpu final : policy::FakeGpu {
    core::TimeNs now() const override { abort(); }
  };
  const std::string state = settings_.directory + "/quarantined";
  save(
      "p.lua",
      "return policy { name = 'p', api = 1, version = '1', hooks = {\n"
      "enqueue = function(k) return RUN end, dispatch = function(g) return IDLE, now_us() end } }");
  FilePolicyStore store(settings_, state);
  const auto running = store.load("p", false);
  ASSERT_TRUE(running) << running.error().message;
  const auto made = running->make();
  ASSERT_TRUE(made);
  DyingGpu gpu;
  const auto die = [&](bool inside) {
    policy::name_culprit_in(state);
    (*made)->enqueue(gpu, 7);
    if (inside) (*made)->dispatch(gpu);
    abort();
  };
  EXPECT_EXIT(die(false), ::testing::KilledBySignal(SIGABRT), "");
  EXPECT_EQ(FilePolicyStore(settings_, state).load("p", false)->quarantined, "")
      << "it did not run just then";
  EXPECT_EXIT(die(true), ::testing::KilledBySignal(SIGABRT), "");
  const auto again = FilePolicyStore(settings_, state).load("p", false);
  ASSERT_TRUE(again);
  EXPECT_NE(again->quarantined.find("heddled died while it ran"), std::string::npos);
}

TEST_F(PolicyStoreTest, ParametersThatFaultDoNotQuarantineWhatWasGoodWithout) {
  save("p.lua", policy("p", {"a"}));
  FilePolicyStore store(settings_);
  const auto first = store.load("p", false);
  adopt(store, first);
  store.good(*first);
  const auto set = store.with_params("p", {{"a", "9"}});
  adopt(store, set);
  store.quarantine(*set, "error in dispatch");
  const auto last = store.last_good();
  ASSERT_TRUE(last);
  EXPECT_EQ(params(store, *last), "a=1");
  store.adopted(*last, true);
  const auto loaded = store.load("p", false);
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->quarantined, "");
  EXPECT_EQ(params(store, *loaded), "a=1");
}

TEST_F(PolicyStoreTest, ACandidateIsReadAndStaysWithoutASay) {
  save("p.lua", policy("p", {}));
  save("q.lua", policy("q", {"a"}));
  FilePolicyStore store(settings_);
  adopt(store, store.load("builtin", false));
  const auto candidate = store.candidate("q");
  ASSERT_TRUE(candidate) << candidate.error().message;
  EXPECT_EQ(params(store, *candidate), "a=1");
  EXPECT_EQ(store.status()["wanted"], "");
  save("q.lua", policy("q", {"b"}));
  EXPECT_FALSE(store.changed()) << "saving what only runs beside makes nothing live";
  const auto live = store.load("q", false);  // as the contrary
  ASSERT_TRUE(live);
  save("q.lua", policy("q", {"c"}));
  EXPECT_TRUE(store.changed());
}

TEST_F(PolicyStoreTest, WaitsForNoPipeAndReadsNoHugeFile) {
  const std::string pipe = settings_.directory + "/pipe.lua";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  save("huge.lua", "return");
  fs::resize_file(settings_.directory + "/huge.lua", uintmax_t{1} << 30);
  FilePolicyStore store(settings_);
  const auto list = store.list();
  EXPECT_NE(list.at(1).value("error", "").find("over 256 KiB"), std::string::npos) << list;
  EXPECT_NE(list.at(2).value("error", "").find("no regular file"), std::string::npos) << list;
}

TEST_F(PolicyStoreTest, APolicyAmongEverybodysFilesIsToldToMove) {
  save("p.lua", policy("p", {}));
  ASSERT_EQ(chmod(settings_.directory.c_str(), 01777), 0);
  const auto loaded = FilePolicyStore(settings_).load("p", false);
  ASSERT_FALSE(loaded);
  EXPECT_NE(loaded.error().message.find("move it"), std::string::npos);
  EXPECT_EQ(loaded.error().message.find("chmod"), std::string::npos);
}

TEST_F(PolicyStoreTest, SaysThatARunningPolicyIsBackInItsFile) {
  save("p.lua", policy("p", {}));
  FilePolicyStore store(settings_);
  const auto running = store.load("p", false);
  adopt(store, running);
  EXPECT_FALSE(store.changed());
  save("p.lua", "broken");
  const auto broken = store.changed();
  EXPECT_TRUE(broken && !*broken);
  EXPECT_FALSE(store.changed());
  save("p.lua", policy("p", {}));
  const auto again = store.changed();
  ASSERT_TRUE(again && *again);
  EXPECT_EQ((*again)->hash, running->hash);
  EXPECT_FALSE(store.changed());
}

}  // namespace
}  // namespace heddle
