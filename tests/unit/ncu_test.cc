// What is read of Nsight Compute's CSV, what is refused, and the command that collects it.
#include "daemon/profile/ncu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace heddle::profiles {
namespace {

constexpr const char* kHeader =
    R"csv("ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC",)csv";

// ncu --csv --page raw --print-units base, with what it and the program print before.
std::string raw() {
  return std::string("==PROF== Connected to process 4242 (/usr/bin/python3)\nloss 0.5, step 1\n") +
         kHeader +
         R"csv("gpu__time_duration.sum","sm__inst_issued.avg.per_cycle_active","gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed","launch__registers_per_thread","launch__shared_mem_per_block_dynamic"
"","","","","","","","","","","","ns","inst/cycle","%","register/thread","byte/block"
"0","4242","python3","h","_Z4gemmPf","1","7","(128, 1, 1)","(132, 2, 1)","0","9.0","12,345.00","3.01","12.5","64","1024"
"1","4242","python3","h","_Z4copyPfS_","1","7","(1024, 1, 1)","(132, 1, 1)","0","9.0","50000","0.61","n/a","16","0"
"2","4242","python3","h","_Z4copyPfS_","1","7","(1024, 1, 1)","(132, 1, 1)","0","9.0","90000","0.9","42","16","0"
"3","4242","python3","h","_Z4copyPfS_","1","7","(1024, 1, 1)","(132, 1, 1)","0","9.0","60000","0.7","41","16","0"
==PROF== Disconnected from process 4242
)csv";
}

// The default layout: one row for each metric.
std::string details() {
  return std::string(kHeader) + R"csv("Section Name","Metric Name","Metric Unit","Metric Value"
"0","7","a ""b""","h","gemm","1","7","(128, 1, 1)","(132, 1, 1)","0","9.0","Command line profiler metrics","sm__inst_issued.avg.per_cycle_active","inst/cycle","3.01"
"0","7","a ""b""","h","gemm","1","7","(128, 1, 1)","(132, 1, 1)","0","9.0","Command line profiler metrics","gpu__time_duration.sum","usecond","12.5"
"0","7","a ""b""","h","gemm","1","7","(128, 1, 1)","(132, 1, 1)","0","9.0","Command line profiler metrics","launch__shared_mem_per_block_dynamic","Kbyte/block","16.38"
)csv";
}

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  const size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return at == std::string::npos ? text : text.replace(at, what.size(), with);
}

TEST(NcuTest, ColumnsOfEachMetricAreRead) {
  const Result<NcuReport> report = parse_ncu(raw(), "r.csv");
  ASSERT_TRUE(report) << report.error().message;
  ASSERT_EQ(report->kernels.size(), 2u);
  const NcuKernel& gemm = report->kernels[0];
  EXPECT_EQ(gemm.name, "_Z4gemmPf");
  EXPECT_EQ(gemm.grid_blocks, 264u);
  EXPECT_EQ(gemm.block_threads, 128u);
  EXPECT_EQ(gemm.dynamic_smem_bytes, 1024);
  EXPECT_EQ(gemm.registers, 64u);
  EXPECT_NEAR(gemm.duration_us, 12.345, 1e-9);
  EXPECT_EQ(gemm.metrics.at("ipc"), 3.01);
  EXPECT_EQ(gemm.metrics.at("dram_pct"), 12.5);
}

TEST(NcuTest, RowsOfEachMetricAreRead) {
  const Result<NcuReport> report = parse_ncu(details(), "r.csv");
  ASSERT_TRUE(report) << report.error().message;
  ASSERT_EQ(report->kernels.size(), 1u);
  EXPECT_EQ(report->kernels[0].metrics.at("ipc"), 3.01);
  EXPECT_EQ(report->kernels[0].duration_us, 12.5);
  EXPECT_EQ(report->kernels[0].dynamic_smem_bytes, 16'380);
}

// A value that was not collected, or that the GPU does not have, is absent: never 0.
TEST(NcuTest, AMissingMetricIsSaidToBeMissing) {
  const Result<NcuReport> report = parse_ncu(raw(), "r.csv");
  ASSERT_TRUE(report);
  const auto& missing = report->missing;
  EXPECT_NE(std::find(missing.begin(), missing.end(), "fp64_pct"), missing.end());
  EXPECT_EQ(std::find(missing.begin(), missing.end(), "dram_pct"), missing.end());
  EXPECT_FALSE(report->kernels[0].metrics.contains("fp64_pct"));
  const Result<NcuReport> none = parse_ncu(replaced(raw(), "12.5", "n/a"), "r.csv");
  ASSERT_TRUE(none);
  const auto& of_gemm = none->kernels[0].missing;
  EXPECT_NE(std::find(of_gemm.begin(), of_gemm.end(), "dram_pct"), of_gemm.end());
}

TEST(NcuTest, OfSeveralLaunchesTheOneOfTheMiddleDurationCounts) {
  const Result<NcuReport> report = parse_ncu(raw(), "r.csv");
  ASSERT_TRUE(report);
  const NcuKernel& copy = report->kernels[1];
  EXPECT_EQ(copy.launches, 3u);
  EXPECT_EQ(copy.duration_us, 60);
  EXPECT_EQ(copy.shortest_us, 50);
  EXPECT_EQ(copy.longest_us, 90);
  EXPECT_EQ(copy.metrics.at("ipc"), 0.7);
}

TEST(NcuTest, EachComplaintNamesFileLineAndRemedy) {
  struct Case {
    std::string text, says;
  };
  const Case cases[] = {
      {"no report\n", "r.csv:1: has no header of ncu --csv"},
      {std::string(kHeader) + "\"Metric Name\",\"Metric Unit\",\"Metric Value\"\n",
       "r.csv:1: has no kernel"},
      {replaced(raw(), "_Z4gemmPf", "gemm(float *)"),
       "r.csv:5: kernel names are demangled, the driver's are not"},
      {replaced(raw(), "\"inst/cycle\"", "\"inst/s\""),
       "r.csv:5: sm__inst_issued.avg.per_cycle_active is in \"inst/s\", wanted is \"inst/cycle\""},
      {replaced(raw(), "\"ns\"", "\"cycle\""), "r.csv:5: gpu__time_duration.sum is in \"cycle\""},
      {replaced(raw(), "12,345.00", "12.345,00"), "r.csv:5: gpu__time_duration.sum is no number"},
      {replaced(raw(), "3.01", "3,01"), "r.csv:5: sm__inst_issued"},
      {replaced(raw(), "3.01", "-3.01"), "r.csv:5: sm__inst_issued"},
      {replaced(raw(), "(132, 2, 1)", "?"), "r.csv:5: has no Grid Size or Block Size"},
      {replaced(raw(), ",\"64\",\"1024\"", ",\"64\""), "r.csv:5: has 15 columns, the header 16"},
  };
  for (const Case& c : cases) {
    const Result<NcuReport> report = parse_ncu(c.text, "r.csv");
    ASSERT_FALSE(report) << c.says;
    EXPECT_EQ(report.error().message.find(c.says), 0u) << report.error().message;
    EXPECT_NE(report.error().message.find("; write it with heddle profile collect-metrics"),
              std::string::npos);
  }
}

// Any bytes are a report or an error.
TEST(NcuTest, DamagedTextIsRefusedOrRead) {
  for (const std::string& whole : {raw(), details()}) {
    for (size_t cut = 0; cut < whole.size(); cut += 7) {
      std::string text = whole.substr(0, cut);
      (void)parse_ncu(text, "r.csv");
      text = whole;
      text[cut] = static_cast<char>(cut * 37);
      (void)parse_ncu(text, "r.csv");
    }
  }
}

TEST(NcuTest, DramUseIsTakenAgainstTheMostThatIsReached) {
  const core::DeviceModel h100;
  ipc::KernelMetrics metrics{};
  metrics.set(ipc::metric_of("ipc"), 3.0);
  metrics.set(ipc::metric_of("dram_pct"), 42.0);
  metrics.set(ipc::metric_of("fma_pct"), 60.0);
  const core::Use use = core::use_of(metrics, h100);
  EXPECT_NEAR(use[core::Channel::kDram], 0.69, 0.005);  // Measuring 4.1.3
  EXPECT_EQ(use[core::Channel::kIssue], 0.75F);
  EXPECT_EQ(use[core::Channel::kFma], 0.6F);
  EXPECT_EQ(use[core::Channel::kFp64], core::kUnknown);
  EXPECT_EQ(use[core::Channel::kL2Capacity], core::kUnknown);
}

TEST(NcuTest, TheCommandCollectsWithoutChangingTheGpu) {
  const std::string program[] = {"python3", "serve.py", "--launch-count=7"};
  const auto words = ncu_command("ncu", "out.csv", 1, program);
  const auto has = [&](const std::string& word) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  for (const char* word :
       {"--csv", "--clock-control=none", "--cache-control=none", "--graph-profiling=node",
        "--print-kernel-base=mangled", "--filter-mode=per-launch-config", "--launch-count=1",
        "--launch-skip=1", "--log-file=out.csv"}) {
    EXPECT_TRUE(has(word)) << word;
  }
  EXPECT_EQ(words[0], "ncu");
  EXPECT_EQ(words[words.size() - 4], "--");
  EXPECT_EQ(words.back(), "--launch-count=7");
  for (const NcuMetric& m : ncu_metrics()) {
    EXPECT_LT(ipc::metric_of(m.key), ipc::kKernelMetricCount) << m.key;
    EXPECT_TRUE(std::any_of(words.begin(), words.end(), [&](const std::string& w) {
      return w.starts_with("--metrics=") && w.find(m.ncu) != std::string::npos;
    })) << m.ncu;
  }
}

TEST(Ncu, MetricsGoToTheKernelsOfTheSameConfiguration) {
  const Result<NcuReport> report = parse_ncu(raw(), "r.csv");
  ASSERT_TRUE(report);
  const NcuKernel& first = report->kernels[0];
  core::TaskProfile task;
  task.kernels.resize(2);
  for (core::KernelProfile& k : task.kernels) {
    std::strcpy(k.facts.name, first.name.c_str());
    k.facts.grid_blocks = first.grid_blocks;
    k.facts.block_threads = first.block_threads;
    k.facts.dynamic_smem_bytes =
        static_cast<uint32_t>(std::max<int64_t>(0, first.dynamic_smem_bytes));
  }
  task.kernels[1].facts.grid_blocks += 1;
  EXPECT_EQ(add_metrics(task, *report), 1u);
  EXPECT_EQ(task.kernels[0].facts.metrics.get("ipc"), first.metrics.at("ipc"));
  EXPECT_EQ(task.kernels[1].facts.metrics.there, 0u);
}

}  // namespace
}  // namespace heddle::profiles
