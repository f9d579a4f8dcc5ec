-- Slurm's JobSubmitPlugins=lua: a job that says what it is like, --comment=heddle:vgg16/32, prefers
-- the node whose running job is its best neighbour by `heddle plan`.
--
-- slurmctld holds its locks while this runs. So `heddle plan` is asked ahead, by pairs.sh; here one
-- small local file is read, no program is started, and every loop has a bound. A missing file, an
-- unknown program or an error of ours: the job goes as it is. It is never refused here.
local PAIRS = os.getenv("HEDDLE_SLURM_PAIRS") or "/etc/slurm/heddle_pairs"
-- 2 000 jobs take some 4 ms of slurmctld's locks. On a cluster with more, jobs go as they are.
local BYTES_MAX, JOBS_MAX = 256 * 1024, 2000
local RUNNING = 1 -- of Slurm's job states

local function program_of(comment)
  return type(comment) == "string" and comment:match("heddle:(%S+)") or nil
end

-- Throughputs by "A B" in either order, the set of nodes that have a feature of their own name, and
-- that of the programs.
local function read_pairs()
  local file = io.open(PAIRS)
  if not file then return nil end
  local text = file:read(BYTES_MAX) or ""
  file:close()
  local throughput, nodes, known = {}, {}, {}
  for a, b, value in text:gmatch("pair (%S+) (%S+) ([%d.]+)\n") do
    throughput[a .. " " .. b] = tonumber(value)
    throughput[b .. " " .. a] = tonumber(value)
    known[a], known[b] = true, true
  end
  for node in text:gmatch("node (%S+)\n") do nodes[node] = true end
  return throughput, nodes, known
end

-- What runs on each of the nodes: its jobs' number, and the program of the last.
local function residents(nodes)
  local on, looked_at = {}, 0
  for _, job in pairs(slurm.jobs) do
    looked_at = looked_at + 1
    if looked_at > JOBS_MAX then return nil end
    if job.job_state == RUNNING and nodes[job.nodes] then
      local here = on[job.nodes] or { count = 0 }
      here.count, here.program = here.count + 1, program_of(job.comment)
      on[job.nodes] = here
    end
  end
  return on
end

-- nil: none is better than another, or a node is empty and the job had better run there.
local function best_node(program)
  local throughput, nodes, known = read_pairs()
  local on = known and known[program] and residents(nodes)
  if not on then return nil end
  local best, most
  for node in pairs(nodes) do
    local here = on[node]
    if not here then return nil end
    local value = here.count == 1 and here.program and throughput[program .. " " .. here.program]
    if value and (not most or value > most) then best, most = node, value end
  end
  return best
end

function slurm_job_submit(job, partitions, uid)
  local program = program_of(job.comment)
  if not program or job.prefer or job.req_nodes then return slurm.SUCCESS end
  local good, node = pcall(best_node, program)
  if not good then
    slurm.log_error("heddle: %s; the job goes as it is", tostring(node))
  elseif node then
    job.prefer = node
    slurm.log_info("heddle: %s prefers %s", program, node)
  end
  return slurm.SUCCESS
end

function slurm_job_modify(job, record, partitions, uid) return slurm.SUCCESS end
