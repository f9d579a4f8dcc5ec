// Waits for words in memory as the simulated driver has them: what stands at a closed gate, what
// goes on beside it, and what waits with it (measured on an H100).
#include "tests/unit/sim_gate_program.h"

namespace heddle::sim {
namespace {

TEST(SimGate, AReleaseLetsExactlyAPrefixGo) {
  in_child(nullptr, [](Program& s) {
    const uint32_t base = 0xfffffffe;
    s.words[0] = base;
    for (uint32_t i = 1; i <= 4; ++i) {
      s.gate(0, base + i);
      s.launch(0);
    }
    EXPECT_TRUE(never([&] { return s.ran(0, 1); }));
    s.words[0] = base + 2;
    EXPECT_TRUE(soon([&] { return s.ran(0, 2); }));
    EXPECT_TRUE(never([&] { return !s.ran(0, 2); }));
    EXPECT_EQ(s.cu.cuStreamQuery(s.streams[0]), CUDA_ERROR_NOT_READY);
    s.words[0] = base + 4;
    EXPECT_EQ(s.cu.cuStreamSynchronize(s.streams[0]), CUDA_SUCCESS);
    EXPECT_TRUE(s.ran(0, 4));
  });
}

TEST(SimGate, AClosedGateHoldsWhatHasNotPassed) {
  in_child(nullptr, [](Program& s) {
    s.words[0] = 5;
    s.gate(0, 1);
    s.launch(0);
    EXPECT_TRUE(soon([&] { return s.ran(0, 1); }));
    s.words[0] = 0;
    s.gate(0, 2);
    s.launch(0);
    EXPECT_TRUE(never([&] { return s.ran(0, 2); }));
    s.words[0] = 2;
    EXPECT_TRUE(soon([&] { return s.ran(0, 2); }));
  });
}

TEST(SimGate, TheOperationsOfABatchTakeEffectOneByOne) {
  in_child(nullptr, [](Program& s) {
    CUstreamBatchMemOpParams ops[3] = {};
    for (const int i : {0, 2}) {
      ops[i].waitValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
      ops[i].waitValue.address = s.at(1 + i);
      ops[i].waitValue.value = 77;
    }
    ops[1].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    ops[1].waitValue.address = s.at(0);
    ops[1].waitValue.value = 1;
    EXPECT_EQ(s.batch(s.streams[0], 3, ops, 0), CUDA_SUCCESS);
    EXPECT_TRUE(soon([&] { return s.words[1] == 77; }));
    EXPECT_TRUE(never([&] { return s.words[3] == 77; }));
    s.words[0] = 1;
    EXPECT_TRUE(soon([&] { return s.words[3] == 77; }));
  });
}

TEST(SimGate, OnlyMemoryThatTheDriverKnowsMayBeWaitedFor) {
  in_child(nullptr, [](Program& s) {
    static uint32_t plain = 0;
    const auto address = reinterpret_cast<CUdeviceptr>(&plain);
    EXPECT_EQ(s.wait32(s.streams[0], address, 0, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(s.wait32(s.streams[0], s.at(0) + 2, 0, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(s.enlist(s.words, kPage, 0), static_cast<CUresult>(712));
    EXPECT_EQ(s.strike(&plain), static_cast<CUresult>(713));
  });
}

TEST(SimGate, RegisteredMemoryIsForgottenWithItsContext) {
  in_child(nullptr, [](Program& s) {
    EXPECT_EQ((symbol<CUresult(CUdevice)>("cuDevicePrimaryCtxReset_v2")(0)), CUDA_SUCCESS);
    EXPECT_EQ(s.cu.cuDevicePrimaryCtxRetain(&s.primary, 0), CUDA_SUCCESS);
    EXPECT_EQ(s.cu.cuCtxSetCurrent(s.primary), CUDA_SUCCESS);
    CUstream stream = nullptr;
    EXPECT_EQ(s.cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    EXPECT_EQ(s.wait32(stream, s.at(0), 0, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(s.enlist(s.words, kPage, 0), CUDA_SUCCESS);
    EXPECT_EQ(s.wait32(stream, s.at(0), 0, 0), CUDA_SUCCESS);
  });
}

TEST(SimGate, RegisteringEndsACaptureUnlessItsThreadRelaxed) {
  in_child(nullptr, [](Program& s) {
    EXPECT_EQ(s.strike(s.words), CUDA_SUCCESS);
    EXPECT_EQ(s.cu.cuStreamBeginCapture_v2(s.streams[0], CU_STREAM_CAPTURE_MODE_GLOBAL),
              CUDA_SUCCESS);
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    EXPECT_EQ(s.cu.cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
    EXPECT_EQ(s.enlist(s.words, kPage, 0), CUDA_SUCCESS);
    EXPECT_EQ(s.cu.cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
    EXPECT_EQ(s.enlist(s.words + 2048, kPage, 0), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CUgraph graph = nullptr;
    EXPECT_EQ(s.cu.cuStreamEndCapture(s.streams[0], &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  });
}

TEST(SimGate, AHostFunctionRunsInItsStreamsOrder) {
  in_child(nullptr, [](Program& s) {
    const auto call = symbol<CUresult(CUstream, void (*)(void*), void*)>("cuLaunchHostFunc");
    s.gate(0, 1);
    EXPECT_EQ(
        call(
            s.streams[0], [](void* state) { *static_cast<uint64_t*>(state) += 1; }, &s.done[0]),
        CUDA_SUCCESS);
    s.launch(0);
    EXPECT_TRUE(never([&] { return std::atomic_ref(s.done[0]) != 0; }));
    s.words[0] = 1;
    EXPECT_EQ(s.cu.cuStreamSynchronize(s.streams[0]), CUDA_SUCCESS);
    EXPECT_EQ(s.done[0], workloads::kStateFactor + 1);
  });
}

// ---- hardware queues ----

// n - 1 streams at closed gates leave all others free, the n-th stops the process.
void expect_queues(Program& s, int queues) {
  for (int i = 0; i < queues - 1; ++i) s.gate(i, 1);
  const int other = kStreams - 1;
  s.launch(other);
  EXPECT_TRUE(soon([&] { return s.ran(other, 1); })) << queues - 1 << " gates";
  s.gate(queues - 1, 1);
  s.launch(other);
  EXPECT_TRUE(never([&] { return s.ran(other, 2); })) << queues << " gates";
  s.words[0] = 1;
  EXPECT_TRUE(soon([&] { return s.ran(other, 2); }));
}

TEST(SimGate, TheLastOfTheQueuesStopsTheProcess) {
  for (const auto& [variable, queues] : {std::pair{"8", 8}, {"4", 4}, {nullptr, 2}}) {
    in_child(variable, [&](Program& s) { expect_queues(s, queues); });
  }
}

// ---- a stream's bound ----

void expect_bound(Program& s, int every, int launches) {
  std::atomic<int> queued = 0;
  Other thread = s.meanwhile([&] {
    for (int i = 0; i < launches + 10; ++i) {
      if (i % every == 0) s.gate(0, 1);
      s.launch(0);
      ++queued;
    }
  });
  EXPECT_TRUE(soon([&] { return queued == launches; })) << queued;
  EXPECT_TRUE(never([&] { return queued != launches; })) << queued;
  s.launch(1);  // goes on, and so does its query
  EXPECT_TRUE(soon([&] { return s.cu.cuStreamQuery(s.streams[1]) == CUDA_SUCCESS; }));
  CUdeviceptr memory = 0;
  Other allocates =
      s.meanwhile([&] { EXPECT_EQ(s.cu.cuMemAlloc_v2(&memory, 4096), CUDA_SUCCESS); });
  EXPECT_TRUE(s.waits(allocates)) << "an allocation";
  s.words[0] = 1;
  EXPECT_TRUE(s.goes(thread));
  EXPECT_TRUE(s.goes(allocates));
  thread.thread.join();
  allocates.thread.join();
  EXPECT_EQ(s.cu.cuStreamSynchronize(s.streams[0]), CUDA_SUCCESS);
  EXPECT_TRUE(s.ran(0, launches + 10));
}

TEST(SimGate, AFullStreamMakesItsThreadAndAllocationsWait) {
  in_child(nullptr, [](Program& s) { expect_bound(s, 1, 510); });
  in_child(nullptr, [](Program& s) { expect_bound(s, 16, 960); });
}

// ---- calls that wait ----

struct Case {
  const char* name;
  std::function<void(Program&)> call;
};

// By a thread of its own at a closed gate; afterwards it is open.
void expect_call(Program& s, const Case& c, bool waits) {
  s.gate(0, s.words[0] + 1);
  Other other = s.meanwhile([&] { c.call(s); });
  EXPECT_TRUE(waits ? s.waits(other) : s.goes(other)) << c.name;
  s.words[0] = s.words[0] + 1;
  EXPECT_TRUE(s.goes(other)) << c.name;
  other.thread.join();
  EXPECT_EQ(s.cu.cuCtxSynchronize(), CUDA_SUCCESS);
}

TEST(SimGate, SomeWaitForAClosedGateAndOthersDoNot) {
  in_child(nullptr, [](Program& s) {
    const CUdeviceptr memory = s.take();
    CUmodule module = nullptr;
    void *host = nullptr, *mine = aligned_alloc(kPage, kPage);
    EXPECT_EQ(s.cu.cuMemHostAlloc(&host, 4096, 0), CUDA_SUCCESS);
    CUarray array = nullptr;
    CUmipmappedArray mipmapped = nullptr;
    const CUDA_ARRAY3D_DESCRIPTOR floats{16, 16, 0, 0x20, 1, 0};
    EXPECT_EQ((symbol<CUresult(CUarray*, const CUDA_ARRAY3D_DESCRIPTOR*)>("cuArray3DCreate_v2")(
                  &array, &floats)),
              CUDA_SUCCESS);
    EXPECT_EQ((symbol<CUresult(CUmipmappedArray*, const CUDA_ARRAY3D_DESCRIPTOR*, unsigned)>(
                  "cuMipmappedArrayCreate")(&mipmapped, &floats, 1)),
              CUDA_SUCCESS);
    const Case waiting[] = {
        {"cuMemFree", [&](auto& t) { EXPECT_EQ(t.cu.cuMemFree_v2(memory), CUDA_SUCCESS); }},
        {"cuMemFreeHost",
         [&](auto&) { EXPECT_EQ(symbol<CUresult(void*)>("cuMemFreeHost")(host), CUDA_SUCCESS); }},
        {"cuMemHostUnregister",
         [&](auto& t) {
           EXPECT_EQ(t.enlist(mine, kPage, 0), CUDA_SUCCESS);
           EXPECT_EQ(t.strike(mine), CUDA_SUCCESS);
         }},
        {"cuModuleLoadData",
         [&](auto& t) {
           EXPECT_EQ(t.cu.cuModuleLoadData(&module, workloads::heddle_demo_ptx), CUDA_SUCCESS);
         }},
        {"cuModuleUnload", [&](auto& t) { EXPECT_EQ(t.cu.cuModuleUnload(module), CUDA_SUCCESS); }},
        {"cuArrayDestroy",
         [&](auto&) {
           EXPECT_EQ(symbol<CUresult(CUarray)>("cuArrayDestroy")(array), CUDA_SUCCESS);
         }},
        {"cuMipmappedArrayDestroy",
         [&](auto&) {
           EXPECT_EQ(symbol<CUresult(CUmipmappedArray)>("cuMipmappedArrayDestroy")(mipmapped),
                     CUDA_SUCCESS);
         }},
        {"cuCtxSynchronize", [&](auto& t) { EXPECT_EQ(t.cu.cuCtxSynchronize(), CUDA_SUCCESS); }},
    };
    for (const Case& c : waiting) expect_call(s, c, true);
    const Case going[] = {
        {"cuMemAlloc", [](auto& t) { t.take(); }},
        {"cuMemAllocAsync and cuMemFreeAsync",
         [](auto& t) {
           CUdeviceptr pooled = 0;
           EXPECT_EQ((symbol<CUresult(CUdeviceptr*, size_t, CUstream)>("cuMemAllocAsync")(
                         &pooled, kBytes, t.streams[1])),
                     CUDA_SUCCESS);
           EXPECT_EQ(
               (symbol<CUresult(CUdeviceptr, CUstream)>("cuMemFreeAsync")(pooled, t.streams[1])),
               CUDA_SUCCESS);
         }},
        {"cuStreamCreate and cuStreamDestroy",
         [](auto& t) {
           CUstream stream = nullptr;
           EXPECT_EQ(t.cu.cuStreamCreate(&stream, 1), CUDA_SUCCESS);
           EXPECT_EQ(t.cu.cuStreamDestroy_v2(stream), CUDA_SUCCESS);
         }},
        {"launch and synchronization of another stream",
         [](auto& t) {
           t.launch(1);
           EXPECT_EQ(t.cu.cuStreamSynchronize(t.streams[1]), CUDA_SUCCESS);
         }},
    };
    for (const Case& c : going) expect_call(s, c, false);
  });
}

TEST(SimGate, AFreeAtAClosedGateHoldsUpOtherThreadsCalls) {
  in_child(nullptr, [](Program& s) {
    CUevent event = nullptr;
    EXPECT_EQ(s.cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    const auto during_free = [&](const Case& c, bool waits) {
      const CUdeviceptr memory = s.take();
      s.gate(0, s.words[0] + 1);
      Other frees = s.meanwhile([&] { EXPECT_EQ(s.cu.cuMemFree_v2(memory), CUDA_SUCCESS); });
      EXPECT_TRUE(s.waits(frees));
      Other other = s.meanwhile([&] { c.call(s); });
      EXPECT_TRUE(waits ? s.waits(other) : s.goes(other)) << c.name;
      s.words[0] = s.words[0] + 1;
      EXPECT_TRUE(s.goes(other)) << c.name;
      EXPECT_TRUE(s.goes(frees));
      other.thread.join();
      frees.thread.join();
    };
    during_free({"launch", [](auto& t) { t.launch(1); }}, true);
    during_free(
        {"cuEventRecord",
         [&](auto& t) { EXPECT_EQ(t.cu.cuEventRecord(event, t.streams[1]), CUDA_SUCCESS); }},
        true);
    during_free({"cuMemAlloc", [](auto& t) { t.take(); }}, true);
    during_free({"cuStreamCreate",
                 [](auto& t) {
                   CUstream stream = nullptr;
                   EXPECT_EQ(t.cu.cuStreamCreate(&stream, 1), CUDA_SUCCESS);
                 }},
                true);
    during_free({"cuStreamQuery",
                 [](auto& t) { EXPECT_EQ(t.cu.cuStreamQuery(t.streams[1]), CUDA_SUCCESS); }},
                false);
    during_free(
        {"cuEventQuery", [&](auto& t) { EXPECT_EQ(t.cu.cuEventQuery(event), CUDA_SUCCESS); }},
        false);
    during_free({"cuStreamSynchronize",
                 [](auto& t) { EXPECT_EQ(t.cu.cuStreamSynchronize(t.streams[1]), CUDA_SUCCESS); }},
                false);
  });
}

TEST(SimGate, APartitionIsMadeBehindAClosedGateAndHoldsUpNobody) {
  in_child(nullptr, [](Program& s) {
    s.gate(0, 1);
    Other makes = s.meanwhile([] {
      CUdevResource all{};
      CUdevResourceDesc description = nullptr;
      CUgreenCtx green = nullptr;
      EXPECT_EQ((symbol<CUresult(CUdevice, CUdevResource*, CUdevResourceType)>(
                    "cuDeviceGetDevResource")(0, &all, CU_DEV_RESOURCE_TYPE_SM)),
                CUDA_SUCCESS);
      EXPECT_EQ((symbol<CUresult(CUdevResourceDesc*, CUdevResource*, unsigned)>(
                    "cuDevResourceGenerateDesc")(&description, &all, 1)),
                CUDA_SUCCESS);
      EXPECT_EQ((symbol<CUresult(CUgreenCtx*, CUdevResourceDesc, CUdevice, unsigned)>(
                    "cuGreenCtxCreate")(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM)),
                CUDA_SUCCESS);
    });
    EXPECT_TRUE(s.waits(makes));
    s.launch(1);
    EXPECT_TRUE(soon([&] { return s.ran(1, 1); }));
    s.words[0] = 1;
    EXPECT_TRUE(s.goes(makes));
    makes.thread.join();
  });
}

// ---- graphs ----

TEST(SimGate, ARunningGraphStandsAtTheGateBetweenItsNodes) {
  in_child(nullptr, [](Program& s) {
    EXPECT_EQ(s.cu.cuStreamBeginCapture_v2(s.streams[0], CU_STREAM_CAPTURE_MODE_GLOBAL),
              CUDA_SUCCESS);
    for (int i = 0; i < 3; ++i) s.launch(0);
    CUgraph graph = nullptr;
    EXPECT_EQ(s.cu.cuStreamEndCapture(s.streams[0], &graph), CUDA_SUCCESS);
    CUgraphNode nodes[3] = {}, gate = nullptr;
    size_t count = 3;
    EXPECT_EQ(s.cu.cuGraphGetNodes(graph, nodes, &count), CUDA_SUCCESS);
    CUstreamBatchMemOpParams op{};
    op.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    op.waitValue.address = s.at(0);
    op.waitValue.value = 1;
    CUDA_BATCH_MEM_OP_NODE_PARAMS params{s.primary, 1, &op, 0};
    const auto add =
        symbol<CUresult(CUgraphNode*, CUgraph, const CUgraphNode*, size_t,
                        const CUDA_BATCH_MEM_OP_NODE_PARAMS*)>("cuGraphAddBatchMemOpNode");
    EXPECT_EQ(add(&gate, graph, nodes, 2, &params), CUDA_SUCCESS);
    CUgraphNodeType type{};
    EXPECT_EQ((symbol<CUresult(CUgraphNode, CUgraphNodeType*)>("cuGraphNodeGetType")(gate, &type)),
              CUDA_SUCCESS);
    EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
    CUgraphExec executable = nullptr;
    EXPECT_EQ(s.cu.cuGraphInstantiateWithFlags(&executable, graph, 0), CUDA_SUCCESS);
    EXPECT_EQ(s.cu.cuGraphLaunch(executable, s.streams[1]), CUDA_SUCCESS);
    EXPECT_TRUE(soon([&] { return s.ran(0, 2); }));
    EXPECT_TRUE(never([&] { return s.ran(0, 3); }));
    s.words[0] = 1;
    EXPECT_TRUE(soon([&] { return s.ran(0, 3); }));
    // The next launch has a ticket of its own.
    op.waitValue.value = 2;
    EXPECT_EQ((symbol<CUresult(CUgraphExec, CUgraphNode, const CUDA_BATCH_MEM_OP_NODE_PARAMS*)>(
                  "cuGraphExecBatchMemOpNodeSetParams")(executable, gate, &params)),
              CUDA_SUCCESS);
    EXPECT_EQ(s.cu.cuGraphLaunch(executable, s.streams[1]), CUDA_SUCCESS);
    EXPECT_TRUE(soon([&] { return s.ran(0, 5); }));
    EXPECT_TRUE(never([&] { return s.ran(0, 6); }));
    s.words[0] = 2;
    EXPECT_TRUE(soon([&] { return s.ran(0, 6); }));
  });
}

}  // namespace
}  // namespace heddle::sim
