@0xd1f0c3b7a5e49268;
# What shim, daemon and command line say to each other.
#
# Two carriers use this schema. Control messages (Message) travel as single packets of a Unix
# SOCK_SEQPACKET socket. Launch records (Record) travel through the shared-memory rings of
# ipc/layout.h as one bare 64-byte segment: a root pointer and up to seven data words.
#
# Times are nanoseconds of the client's CLOCK_MONOTONIC, in both directions. All processes of one
# host share that clock, except those in a time namespace, whose offset the daemon computes from
# Attach. Predicted durations are microseconds.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("heddle::wire");

# ---- shared memory ---------------------------------------------------------------------------

enum Kind {
  kernel @0;      # one kernel launch
  graph @1;       # one graph launch: a unit whose cost is learned
  copy @2;        # recorded, never gated
  memset @3;      # recorded, never gated
  wait @4;        # a thread enters a synchronizing call: the queue drains, then a gap follows
  completion @5;  # the stream's work up to streamSeq is complete
  streamEnd @6;   # the stream is destroyed; its slot may be used again
}

enum Admission {
  lease @0;           # posted without a ticket
  gated @1;           # its stream waits on the GPU for its ticket `askSeq` (ipc/gate.h)
  ask @2;             # the thread waits for its ticket `askSeq` (ipc/slot.h)
  selfStarved @3;     # the launch waited longer than the starvation bound
  selfStale @4;       # the daemon's heartbeat stopped, or the daemon ended
  selfPool @5;        # no free ring, or a device beyond kDevices
  selfCapturing @6;   # the stream captures a graph: nothing runs yet
  selfExempt @7;      # a launch that must never wait (shim/DETAILS.md)
  bypass @8;          # `heddle bypass on`
  unmanaged @9;       # the client was refused
}

enum Evidence {
  none @0;
  synchronized @1;  # a synchronizing call returned
  marker @2;        # the shim saw that an event recorded after the work is complete
  failed @3;        # the driver refused the launch: it never ran
}

struct Record {
  atNs @0 :UInt64;         # when the call was entered, or when the completion was seen
  streamSeq @1 :UInt64;    # number of the work in its stream slot, from 1; completion: all up to it
  kernel @2 :UInt32;       # index into the client's kernel table, or kNoKernel
  stream @3 :UInt16;       # stream slot; completion: kAllStreams covers the device
  kind @4 :Kind;
  askSeq @5 :UInt32;       # the launch's ticket (ipc/gate.h); 0: it has none
  admission @6 :Admission;
  device @7 :UInt8;
  evidence @8 :Evidence;
  durationUs @9 :Float32;  # completion: GPU time of the measured kernel, 0 if none was measured;
                           # launch: predicted time of those of `untold` still on the device
  unmovable @10 :Bool;     # launch: it runs on all SMs, whatever SM set the daemon chooses
  mayFollow @11 :UInt16;   # launch: its thread may make so many launches next without a record;
                           # with admission `gated`: so many gates are inside the graph
  untold @12 :UInt32;      # launch, wait: its thread's launches without a record since the last
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
  # From a client with a memory limit; the daemon answers in DeviceTerms (ipc/layout.h). It has
  # totals, not differences, so a lost message loses nothing but its answer.
  device @0 :UInt8;
  number @1 :UInt32;      # number of the process's message, from 1
  bytes @2 :UInt64;       # what the process will hold there if the daemon grants it
  release @3 :Bool;       # the process returns what exceeds `bytes`, and waits for no answer
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
  sms @9 :Text;             # HEDDLE_SMS, the SMs to which it asks to be kept; may be empty
  smGroups @10 :List(UInt16); # SMs of each group of device 0 (sm_set.h); empty: no SM sets
  gpuIds @11 :Data;         # cuDeviceGetUuid of each device, 16 bytes each; zeros: unknown
  memoryTotal @12 :List(UInt64); # bytes of each device
  memoryHeld @13 :List(UInt64);  # bytes that it has allocated on each device
  memory @14 :Text;         # HEDDLE_MEMORY, the limit that it asks for; may be empty
  run @15 :Text;            # HEDDLE_RUN: processes with the same value share that limit
  mpsMemoryLimit @16 :Bool; # CUDA_MPS_PINNED_DEVICE_MEM_LIMIT is set in its environment
  streamsWait @17 :Bool;    # its launches can wait on the GPU (ipc/gate.h)
  monotonicNs @18 :UInt64;  # its CLOCK_MONOTONIC when it sent this, ...
  wallNs @19 :UInt64;       # ... and its CLOCK_REALTIME then: the daemon computes the offset
  modeTold @20 :Bool;       # `mps` is the driver's answer; else a guess by a socket
  issueMax @21 :Float32;    # HEDDLE_ISSUE_MAX and so on: most that it wants to
  l2Max @22 :Float32;       # use of a channel beside others, as a part of its peak; 0: no limit
  dramMax @23 :Float32;
  madeSets @24 :List(UInt64); # the SM sets that it made of each device (pack_made), also
                              # under an earlier daemon: it can make no others
  park @25 :Park;             # its shim waits for parked memory; HEDDLE_PARK=1 asks for it
}

enum Park {
  never @0;   # its calls would wait in the driver, and nobody would know
  byRule @1;  # where the administrator's rule allows it
  asked @2;   # it allows that itself
}

struct RegisterKernel {
  # Sent once per kernel ID, in the order of the indices: before the kernel's first record, or, if
  # the socket is full, as soon as it has room. A kernel whose message is missing has no name, and
  # is otherwise handled alike.
  index @0 :UInt32;
  id @1 :UInt64;            # ipc/kernel_id.h; equal in every process
  name @2 :Text;
  gridX @3 :UInt32;         # a graph's grid is its number of nodes x 1 x 1, its block 0
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
  nodes @15 :List(GraphNode); # a graph's kernels that it launches most often, at most kGraphNodes;
                              # each was registered before the graph
  otherNodes @16 :UInt32;     # number of kernel nodes of other kernels
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
    effective :group {         # the priority that a process of the sender would get
      priority @7 :Int8 = -1;
      label @8 :Text;
      command @9 :Text;
    }
    record @10 :Void;          # the reply carries the memory of a trace::Ring (daemon/trace/ring.h)
    profile @11 :UInt64;       # of this client's task: the reply carries its text in a memory
    mps @12 :MpsOrder;
    policyHistory @13 :Void;
    policyRollback @14 :UInt64;  # to this generation; 0: to the previous one
    policyShow @15 :Void;        # the reply carries the running policy as JSON in a memory
    policyKeep @16 :Void;        # ends policyTry: the policy on trial stays
    policyTry :group {           # policyLoad, and back to the running policy after so long
      policy @17 :Text;
      seconds @18 :Float64;
    }
    policyReset :group {         # undoes policySet: values as in the file or the configuration
      policy @19 :Text;
      params @20 :List(Text);    # empty: all of them
    }
    explain @21 :UInt64;         # why this client waits, and waited
    policyShadow @22 :Text;      # runs this policy as a shadow: asked, and not obeyed
    policyShadowTold @23 :Void;  # the reply carries what the shadow would have done, as JSON
    policyShadowStop @24 :Void;
    policyPromote :group {       # the shadow goes live; it is undone if it faults, or if runs take
      slowdown @25 :Float64;     # over so many times what they take alone,
      seconds @26 :Float64;      # within so long
    }
    psAfter @27 :UInt64;         # ps, only of the clients with a higher number
  }
}

struct Reply {
  ok @0 :Bool;
  error @1 :Text;   # one line: where, and the remedy
  json @2 :Text;    # the answer as one JSON document; the command line formats it
}
