---@meta
-- What a policy may use, for language servers. Made by `heddle policy reference --lua`; do not edit.

---@class Verdict
---@class Map
---@field get fun(self: Map, key: any): number?
---@field set fun(self: Map, key: any, number: number): boolean
---@field add fun(self: Map, key: any, number: number): number?
---@field erase fun(self: Map, key: any)
---@field len fun(self: Map): integer

---@class Launch
---@field client Client # whose launch it is
---@field kernel Kernel # its kernel ID
---@field kind string # "kernel" or "graph"
---@field seq integer # its ticket
---@field grid_blocks integer # blocks; of a graph its nodes
---@field block_threads integer # threads of a block; of a graph 0
---@field dynamic_smem integer # bytes of dynamic shared memory of a block
---@field predicted_us number # µs that this launch is predicted to take; held on the device: until it can be stopped
---@field wave_us number # of that, µs of one wave of blocks; of a graph the mean node
---@field gap_after_us number # predicted µs without work after it and a synchronize
---@field wait_us number # µs that it waits so far; in `stopping`: waited
---@field run_us number # in `stopping`: measured µs, 0 if it was not measured, or not on its SM set
---@field priority integer # its client's, 0 (first) to 9
---@field fenceable boolean # it can run on fewer SMs; held on the device: what its client launches next can (`c:keep_to`)
---@field open_us number # predicted µs that its client launched at open gates since it last asked
---@field right_size integer? # as `kn.right_size`

---@class Kernel
---@field name string # the function's name
---@field id string # 16 hexadecimal digits: name, launch shape, cluster size
---@field mean_us number # µs, mean of all its launches
---@field gap_us number # as `k.gap_after_us`
---@field p90_us number # µs, 0 if it was not measured
---@field profiled boolean # it was measured to the end
---@field launches integer # by its client's task
---@field registers integer # of a thread
---@field static_smem integer # bytes of a block
---@field blocks_per_sm integer # that fit one SM at most
---@field grid_blocks integer # blocks
---@field block_threads integer # threads of a block
---@field right_size integer? # SMs of the latency size: the least within 5 % of all; nil without a curve
---@field size_for fun(self: Kernel, lambda): integer? # SMs of the throughput size: least time × (1 + lambda × SMs); nil without a curve
---@field ipc number? # executed by one SM while it has work, at most 4 (instructions/cycle); nil without it
---@field issue_pct number? # cycles in which a scheduler issued, of an SM with work (%); nil without it
---@field fma_pct number? # use of the fp32 pipe (%); nil without it
---@field fp64_pct number? # use of the fp64 pipe (%); nil without it
---@field tensor_pct number? # use of the tensor pipe (%); nil without it
---@field smem_pct number? # shared-memory bandwidth (%); nil without it
---@field l1_pct number? # L1 bandwidth (%); nil without it
---@field l1_hit_pct number? # hits of the L1 cache (%); nil without it
---@field l2_pct number? # L2 bandwidth (%); nil without it
---@field l2_hit_pct number? # hits of the L2 cache (%); nil without it
---@field dram_pct number? # DRAM bandwidth (%); nil without it
---@field occupancy_pct number? # resident warps, of those that an SM can hold (%); nil without it
---@field us_on_1 number? # duration on 1 group of SMs (us); nil without it
---@field us_on_2 number? # duration on 2 groups of SMs (us); nil without it
---@field us_on_4 number? # duration on 4 groups of SMs (us); nil without it
---@field us_on_8 number? # duration on 8 groups of SMs (us); nil without it
---@field us_on_12 number? # duration on 12 groups of SMs (us); nil without it
---@field us_on_all number? # duration on all SMs, measured with those (us); nil without it
---@field sm_active_pct number? # cycles in which an SM has a resident warp (%); nil without it
---@field us_profiled number? # duration in the profiler's run, which the others are of (us); nil without it
---@field tensor_active_pct number? # cycles in which the tensor pipe works, of an SM with work (%); nil without it
---@field dram_read_mb number? # read from DRAM by a launch (MB); nil without it
---@field dram_write_mb number? # written to DRAM during a launch (MB); nil without it
---@field l2_write_mb number? # written to the L2 by a launch, fabric included (MB); nil without it
---@field unknown_pct number? # time of a graph that is in kernels which nobody measured (%); nil without it

---@class Client
---@field id integer # its number in `heddle ps`
---@field name string # its program's name
---@field label string # what `heddle run --label` or its rule gives it
---@field uid integer # its user
---@field pid integer # its process
---@field priority integer # 0 (first) to 9
---@field share number # by its rule, else 1
---@field slo_ms number # by its rule, else 0
---@field request number # part of the GPU's time beside others, by its rule, else 0
---@field limit number # part of the GPU's time at most, by its rule, else 0
---@field slowdown_max number # promised by its rule, else 0
---@field slowdown_p99_max number # the same of all its runs but one in a hundred
---@field gated boolean # its launches wait until they are let go
---@field held string # "device": its launches wait on the GPU, where more important work stops them; "thread": its threads wait
---@field queued integer # 1: its oldest held launch waits
---@field inflight_us number # predicted µs of what it has on the GPU
---@field gpu_us number # µs of GPU time that it has had; of n clients on the GPU each has 1/n
---@field launches integer # so far, whether it asked or not; take differences
---@field work_us number # predicted µs of those, each as alone on all SMs; take differences
---@field active boolean # it has work, or had some within `idle_us`
---@field profiled boolean # its task's measurement is over
---@field lease fun(self: Client, for_us) # as `LEASE`, at once; with `for_us` for so long, a second at most
---@field gate fun(self: Client, for_us) # the same as `GATE`, for good or for so long
---@field launch_priority fun(self: Client, n) # what its launches carry, -5 (first) to 0; nil: the built-in's
---@field stopped_us number # µs in all that what ran of it was stopped
---@field stoppable boolean # that can be, and it can have a slice (time-sliced)
---@field keep_to fun(self: Client, sm [, for_us]) # its launches run on so many SMs from the next one on, at open gates and leased, too; 0: on all that it has. With `for_us`, a second at most, for so long. Kernels with a size keep that
---@field stop fun(self: Client, when) # time-sliced: what runs of it is stopped in its middle while somebody above is at work; "never", "long": what outlasts a stop, or "always"
---@field slice fun(self: Client, us) # time-sliced: for so long it has the GPU at a time, 100 to 1000000; 0: as the driver set it
---@field resident_bytes number # bytes of device memory that it has on the GPU
---@field parked boolean # its memory is on the host, or on its way
---@field park fun(self: Client) # time-sliced: its memory leaves the GPU within 0.1 s, if its rule has `park` and it has no work; its next call brings it back. Who has just come back stays
---@field unpark fun(self: Client) # its memory comes back before that call
---@field resize fun(self: Client) # `kernel_init` is called again for its kernels

---@class Gpu
---@field index integer # the device's number
---@field sm_total integer # SMs
---@field sm_free integer # SMs in no SM set of a launch in flight
---@field inflight_us number # predicted µs in flight below the highest active priority
---@field fenced_us number # of that, what is on SM sets under MPS, and so in nobody's way
---@field switch_us number # µs that letting another client in costs
---@field mode string # "mps" or "timeslice"
---@field stops boolean # what runs of some client can be stopped
---@field budget Budget # what those at work leave of each channel
---@field gap_us fun(self: Gpu, priority): number # least predicted remaining gap of all clients above `priority`; `math.huge` if none is active, 0 if one has work outstanding
---@field gap_length_us fun(self: Gpu, priority): number # the same from the gap's start
---@field busy fun(self: Gpu, priority): boolean # a client above has work outstanding
---@field idle_us fun(self: Gpu, priority): number # µs in all that those above have left to others; take differences
---@field runs fun(self: Gpu, priority): number, number, number, number, number # runs of those above that ended, µs that they took with the pauses before them, µs that the same take alone, µs of pauses in either, square roots of each of these pauses; take differences
---@field slower_runs fun(self: Gpu, priority, times): number, number # of these runs those that took longer than their client's `slowdown_p99_max`, and of how many. Without that promise they count by `times` what they take alone, rounded up to 1 %; by `math.huge` they do not. Take differences
---@field comparing fun(self: Gpu, priority): boolean # one of those above is to be left alone, so that its time alone is known
---@field clients fun(self: Gpu): fun(): Client # for `for c in g:clients() do`

---@class Budget
---@field issue number # issue slots, of the peak
---@field fma number # the fp32 pipe
---@field fp64 number # the fp64 pipe
---@field tensor number # the tensor pipe
---@field smem number # shared-memory bandwidth
---@field l2 number # L2 bandwidth
---@field dram number # DRAM bandwidth

---@type Verdict # The client launches without a ticket.
LEASE = nil
---@type Verdict # Its oldest held launch asks.
GATE = nil
---@type Verdict # It is unmanaged; held back if its rule says fail = "closed".
REFUSE = nil
---@type Verdict # This launch goes; of what waits on the GPU a unit, but for policies with `per_launch`.
RUN = nil
---@type Verdict # It goes, and the gates of its client open, until somebody more important works or somebody as important waits. Of a launch that its thread waits for: as `RUN`.
OPEN = nil
---@type Verdict # Nothing that the policy placed goes now.
IDLE = nil

queue, map, sm_set, budget = {}, {}, {}, {}

--- at the top level
function queue.create(name) end

--- the least key first; among equal keys clients of one priority in turn, by their share
---@return Verdict
function queue.insert(name, k, key) end

--- the first, or that in the place of its order; nil if there are fewer. Not seen is what waits on the device until a pause above has lasted
---@return Launch?
function queue.peek(name, place) end

--- the least key, and among equals the longest predicted time that fits; none of a client with a launch on an SM set in flight
---@return Launch?
function queue.best_fit(name, us) end

--- launches in it
---@return integer
function queue.len(name) end

--- at the top level; options: key ("number", "string", "client"), max, reload ("keep")
---@return Map
function map.hash(name, options) end

--- the same; where it is full, the entry goes that was used longest ago
---@return Map
function map.lru(name, options) end

--- places 1 to max, 0 at first
---@return Map
function map.array(name, options) end

--- at the top level: which SM sets processes make (REFERENCE.md, SM sets)
function sm_set.family(options) end

--- with `placement = "live"`: SMs of the set that it would get; 0 if others work there
---@return integer
function sm_set.free(k, sm) end

--- each client with a promise can afford the launch; else false and the channel that costs
---@return boolean, string?
function budget.fits(k, sm) end

--- predicted, of the client beside what the others at work run
---@return number
function budget.slowdown(c) end

--- a line for the log and `heddle status`
function trace(format, ...) end

--- the clock, in µs
---@return number
function now_us() end

--- a file of the policy directory, as "lib/name"; at the top level
---@return table
function import(name) end

--- declares the policy; the file returns it
---@return table
function policy(declaration) end
