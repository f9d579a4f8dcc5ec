#!/bin/sh
# Slurm's TaskProlog: what it prints as "export NAME=value" gets into the task's environment. A job
# says HEDDLE_CLASS=latency or batch, and HEDDLE_MEMORY=20GiB; its partition or QOS may say it too.
# Whatever goes wrong, the task runs, without heddle, and its output says so.
heddle=/opt/heddle/bin/heddle

# The plugin, or the batch script that this step is of, has done it.
case ${HEDDLE_CLASS:-}:${LD_PRELOAD:-} in
  :*/libcuda.so.1*) exit 0 ;;
esac

# A site's own choice for jobs that name no class.
case ${HEDDLE_CLASS:-}:${SLURM_JOB_PARTITION:-}:${SLURM_JOB_QOS:-} in
  :serving:* | :*:serving) HEDDLE_CLASS=latency ;;
  :training:* | :*:training) HEDDLE_CLASS=batch ;;
esac

set --
[ -z "${HEDDLE_CLASS:-}" ] || set -- "$@" --class "$HEDDLE_CLASS"
[ -z "${HEDDLE_MEMORY:-}" ] || set -- "$@" --memory "$HEDDLE_MEMORY"
[ $# -gt 0 ] || exit 0

# A file system that hangs must not hold the task.
heddle_run() {
  timeout -k 1 5 "$heddle" run --quiet "$@"
}

if ! why=$(heddle_run "$@" -- true 2>&1); then
  echo "print heddle: the task runs without heddle: $(echo "$why" | tr '\n' ' ')"
  exit 0
fi
# Values of several lines cannot be exported so; none of these has any.
heddle_run "$@" -- env -0 |
  grep -zE '^(LD_PRELOAD|LD_LIBRARY_PATH|HEDDLE_[A-Z0-9_]+|CUDA_[A-Z_]+)=' |
  tr '\0' '\n' | sed 's/^/export /'
# All tasks of the job on this node share the limit, not each its own.
[ -z "${HEDDLE_MEMORY:-}" ] || echo "export HEDDLE_RUN=slurm.$SLURM_JOB_ID"
