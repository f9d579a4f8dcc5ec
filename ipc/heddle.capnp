@0xd1f0c3b7a5e49268;
# What shim, daemon and command line say to each other.
#
# Two carriers use this schema. Control messages (Message) travel as single packets of a Unix
# SOCK_SEQPACKET socket. Launch records (Record) travel through the shared-memory rings of
# ipc/layout.h as one bare 64-byte segment: a root pointer and up to seven data words.
#
# Times are nanoseconds of CLOCK_MONOTONIC as the client reads it, in both directions: all processes
# of one host share it but those of a time namespace, and the daemon knows how far theirs is apart.
# Durations are microseconds where they are predictions.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("heddle::wire");

# ---- shared memory ---------------------------------------------------------------------------

enum Kind {
  kernel @0;      # one kernel launch
  graph @1;       # one graph launch: a unit whose cost is learned
  copy @2;        # recorded, never gated
  memset @3;      # recorded, never gated
  wait @4;        # a thread enters a synchronizing call: the queue drains and a gap follows
  completion @5;  # work up to streamSeq is done
  streamEnd @6;   # the stream is destroyed; its slot may be used again
}

enum Admission {
  lease @0;           # posted without a ticket
  gated @1;           # its stream waits on the GPU for its ticket `askSeq` (ipc/gate.h)
  ask @2;             # the thread waits for its ticket `askSeq` (ipc/slot.h)
  selfStarved @3;     # waited longer than the starvation bound
  selfStale @4;       # the daemon's heartbeat stopped, or it went away
  selfPool @5;        # no free ring, or a device beyond kDevices
  selfCapturing @6;   # the stream is capturing: nothing runs yet
  selfExempt @7;      # must never be held back (shim/DETAILS.md)
  bypass @8;          # heddle bypass on
  unmanaged @9;       # the client was refused
}

enum Evidence {
  none @0;
  synchronized @1;  # a synchronizing call returned
  marker @2;        # an event recorded behind the work was seen complete
  failed @3;        # the driver refused the launch: it never ran
}

struct Record {
  atNs @0 :UInt64;         # when the call was entered, or when the completion was seen
  streamSeq @1 :UInt64;    # counts the work of one stream from 1; completion: all up to here
  kernel @2 :UInt32;       # index into the client's kernel table, or kNoKernel
  stream @3 :UInt16;       # stream slot; completion: kAllStreams covers the device
  kind @4 :Kind;
  askSeq @5 :UInt32;       # its ticket (ipc/gate.h); 0 where the launch has none
  admission @6 :Admission;
  device @7 :UInt8;
  evidence @8 :Evidence;
  durationUs @9 :Float32;  # completion: GPU time of the measured kernel, 0 if none was measured;
                           # launch: predicted time of what of `untold` is still on the device
  unmovable @10 :Bool;     # launch: it runs on all SMs, whatever SM set it is to have
  mayFollow @11 :UInt16;   # launch: so many of its thread may come next without a record; one at a
                           # gate (admission `gated`): so many more gates stand inside it
  untold @12 :UInt32;      # launch, wait: so many of its thread went without one since the last
}

# ---- socket ----------------------------------------------------------------------------------

struct Message {
  union {
    attach @0 :Attach;
    registerKernel @1 :RegisterKernel;
    request @2 :Request;
    reply @3 :Reply;
    memoryNeed @4 :MemoryNeed;
  }
}

struct MemoryNeed {
  # From a client with a memory limit, answered in its DeviceWindow (ipc/layout.h). Totals, not
  # differences: one that is lost costs nothing but its answer.
  device @0 :UInt8;
  number @1 :UInt32;      # counts the process's from 1
  bytes @2 :UInt64;       # what it will hold there if this is granted
  release @3 :Bool;       # it keeps to `bytes` from now on, and waits for no answer
}

struct Attach {
  # First message of a shim. The daemon answers with the fixed struct ipc::Attached (ipc/layout.h)
  # and four descriptors: the shim only ever builds Cap'n Proto, so that no decoder can throw or
  # abort inside an application. Identity (uid, pid) comes from the socket, never from here.
  protocolVersion @0 :UInt32;
  label @1 :Text;           # HEDDLE_LABEL, may be empty
  command @2 :Text;         # executable and arguments: the task key, with the label (FIKIT 3.2)
  priority @3 :Int8 = -1;   # HEDDLE_PRIORITY, 0 to 9; -1 leaves it to the administrator's rules
  driverVersion @4 :UInt32; # cuDriverGetVersion
  deviceCount @5 :UInt32;
  smCount @6 :UInt32;       # of device 0, 0 if unknown
  mps @7 :Bool;             # the process shares the GPU by MPS, as far as it knows
  gpuName @8 :Text;         # cuDeviceGetName of device 0, may be empty
  sms @9 :Text;             # HEDDLE_SMS, the SMs that it asks to be kept on; may be empty
  smGroups @10 :List(UInt16); # SMs of each group of device 0 (sm_set.h); empty: no SM sets
  gpuIds @11 :Data;         # cuDeviceGetUuid of each device, 16 bytes each; zeros: unknown
  memoryTotal @12 :List(UInt64); # bytes of each device
  memoryHeld @13 :List(UInt64);  # what it has allocated of them
  memory @14 :Text;         # HEDDLE_MEMORY, the limit that it asks for; may be empty
  run @15 :Text;            # HEDDLE_RUN: processes with the same one share that limit
  mpsMemoryLimit @16 :Bool; # CUDA_MPS_PINNED_DEVICE_MEM_LIMIT is set where it runs
  streamsWait @17 :Bool;    # its launches can wait on the GPU (ipc/gate.h)
  monotonicNs @18 :UInt64;  # its CLOCK_MONOTONIC when it sent this, ...
  wallNs @19 :UInt64;       # ... and CLOCK_REALTIME, by which the daemon knows when that was
  modeTold @20 :Bool;       # its driver says what `mps` is; else it is a guess by a socket
  issueMax @21 :Float32;    # HEDDLE_ISSUE_MAX and its like: most that it wants to use of a channel
  l2Max @22 :Float32;       # beside others, a part of its peak; 0: no limit
  dramMax @23 :Float32;
  madeSets @24 :List(UInt64); # of each device the SM sets that it made (pack_made), under whatever
                              # daemon: it can make no others
}

struct RegisterKernel {
  # Sent once per kernel ID, in the order of the indices: before its first record, or, where the
  # socket is full, as soon as it is not. One that is missing costs the name, nothing else.
  index @0 :UInt32;
  id @1 :UInt64;            # ipc/kernel_id.h; equal in every process
  name @2 :Text;
  gridX @3 :UInt32;         # of a graph its number of nodes, x 1 x 1; its block is 0
  gridY @4 :UInt32;
  gridZ @5 :UInt32;
  blockX @6 :UInt32;
  blockY @7 :UInt32;
  blockZ @8 :UInt32;
  dynamicSmemBytes @9 :UInt32;
  clusterBlocks @10 :UInt32;
  registersPerThread @11 :UInt32;  # 0 if unknown
  staticSmemBytes @12 :UInt32;
  maxBlocksPerSm @13 :UInt32;      # occupancy; 0 if unknown
  isGraph @14 :Bool;
  nodes @15 :List(GraphNode); # of a graph the kernels that it launches most often, kGraphNodes of
                              # them; each was registered before it
  otherNodes @16 :UInt32;     # kernel nodes beyond those
}

struct GraphNode {
  kernel @0 :UInt32;  # index
  count @1 :UInt32;   # nodes that launch it
}

struct Param {
  name @0 :Text;
  value @1 :Text;
}

enum MpsOrder {
  status @0;
  start @1;
  stop @2;
}

struct Request {
  # A question or order of the heddle command line.
  union {
    ps @0 :Void;
    status @1 :Void;
    policyList @2 :Void;
    policyLoad @3 :Text;       # a name of the policy directory, or a path; "builtin" unloads
    policySet :group {
      policy @4 :Text;
      params @5 :List(Param);
    }
    bypass @6 :Bool;
    effective :group {         # what priority would a process of mine get?
      priority @7 :Int8 = -1;
      label @8 :Text;
      command @9 :Text;
    }
    record @10 :Void;          # the reply brings the memory of a trace::Ring (daemon/trace/ring.h)
    profile @11 :UInt64;       # of this client's task: the reply brings its text in a memory
    mps @12 :MpsOrder;
    policyHistory @13 :Void;
    policyRollback @14 :UInt64;  # to this generation; 0: to the one that ran before
    policyShow @15 :Void;        # the reply brings what runs as JSON in a memory
    policyKeep @16 :Void;        # what was loaded for a while stays
    policyTry :group {           # policyLoad, and back to what runs now after so long
      policy @17 :Text;
      seconds @18 :Float64;
    }
    policyReset :group {         # what policySet has set is as in the file or the configuration
      policy @19 :Text;
      params @20 :List(Text);    # empty: all of them
    }
    explain @21 :UInt64;         # this client: why it waits, and waited
    policyShadow @22 :Text;      # this one beside what runs, asked and not obeyed
    policyShadowTold @23 :Void;  # the reply brings what it would have done, as JSON in a memory
    policyShadowStop @24 :Void;
    policyPromote :group {       # it goes live; back if it faults, or runs are slower than so much
      slowdown @25 :Float64;     # times what they take alone,
      seconds @26 :Float64;      # within so long
    }
    psAfter @27 :UInt64;         # ps, of the clients with a higher number only
  }
}

struct Reply {
  ok @0 :Bool;
  error @1 :Text;   # one line: place and remedy
  json @2 :Text;    # the answer as one JSON document; the command line formats it
}
