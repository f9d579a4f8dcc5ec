#!/bin/bash
# Two programs share a GPU: a latency-critical one and a best-effort one. Alone, shared without
# heddle, under the policies priority, gapfill and auto; the policy is switched while both run, by
# saving a file. Without an NVIDIA GPU it runs on the simulated one, and so it does today with one:
# real programs on a real GPU: heddle-bench run.
#
#   examples/quickstart.sh [--seed N] [--seconds S] [--five-seeds]
#
# Installs (tests/setup.sh), builds and installs dist/ first; --installed takes dist/ as it is.
# Results: out/quickstart/result.json and report.html. Exits 1, and says why, if sharing did not
# become better.
set -euo pipefail
usage() { sed -n '2,/^set /{/^set /d; s/^# \{0,1\}//; p}' "$0"; }
wrong() { echo "examples/quickstart.sh: $1 (--help tells the options)" >&2; exit 2; }

arguments=() installed=false
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --installed) installed=true ;;
    --five-seeds) arguments+=("$1") ;;
    --seed=* | --seconds=*) set -- "${1%%=*}" "${1#*=}" "${@:2}"; continue ;;
    --seed | --seconds)
      number='^[0-9]+$'
      [ "$1" = --seed ] || number='^[0-9]+([.][0-9]+)?$'
      [[ ${2:-} =~ $number ]] || wrong "$1 needs a number"
      arguments+=("$1" "$2")
      shift ;;
    *) wrong "no option '$1'" ;;
  esac
  shift
done
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

if ! $installed; then
  tests/setup.sh
  echo "build: release, installed to dist/ (build/quickstart.log)"
  mkdir -p build
  if ! { cmake --preset release && cmake --build --preset release &&
         cmake --install build/release; } >build/quickstart.log 2>&1; then
    tail -n 40 build/quickstart.log >&2
    echo "build failed (above: the end of build/quickstart.log)" >&2
    exit 1
  fi
fi
exec python3 examples/quickstart/main.py "${arguments[@]}"
