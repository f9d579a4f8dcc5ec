#!/bin/bash
# Whether the GPU of this machine, or the simulated one where there is none, does what our programs
# and the GPU model rely on: the driver API, and how two processes share, time-sliced and under MPS.
#
#   tests/gpu/conformance.sh [DIST] [PROGRAMS]     an install tree, default dist/, and a build's
#                                                  tests/gpu, default that of the preset release
#
# MPS runs in a private directory and is ended again. Exits 1 if a check failed.
set -uo pipefail
root=$(dirname "${BASH_SOURCE[0]}")/../..
dist=$(realpath "${1:-$root/dist}") programs=$(realpath "${2:-$root/build/release/tests/gpu}")
scratch=$(mktemp -d) failed=0

check() {
  "$@" || failed=1
}
finish() {
  if [ -n "${CUDA_MPS_PIPE_DIRECTORY:-}" ]; then echo quit | nvidia-cuda-mps-control; fi
  rm -rf "$scratch"
}
trap finish EXIT

if nvidia-smi -L 2>/dev/null | grep -q '^GPU 0'; then
  check "$programs/heddle-conformance"
  check "$programs/heddle-sharing" timeslice
  export CUDA_MPS_PIPE_DIRECTORY=$scratch/pipe CUDA_MPS_LOG_DIRECTORY=$scratch/log
  mkdir "$scratch/pipe" "$scratch/log"
  nvidia-cuda-mps-control -d || exit 1
  check "$programs/heddle-sharing" mps
else
  echo "no NVIDIA GPU: on the simulated one"
  export LD_LIBRARY_PATH=$dist/lib/heddle/sim
  for mode in timeslice mps; do
    export HEDDLE_SIM_MODE=$mode HEDDLE_SIM_SOCKET=$scratch/$mode
    if [ $mode = timeslice ]; then check "$programs/heddle-conformance"; fi
    check "$programs/heddle-sharing" $mode
  done
fi
exit $failed
