#!/bin/bash
# What credit and fences are worth under MPS, on four pairs: gapfill as shipped, without credit, and
# with fences of 16, 32 and 64 SMs, beside MPS with client priority and two static splits.
#
#   bench/experiments/fences.sh OUT [OPTIONS of heddle-bench run]
#   bench/experiments/fences.sh OUT --repetitions 8 --budget-s 140      on a GPU, 10 minutes
#   bench/experiments/fences.sh OUT --device sim --repetitions 1 --block-s 0.3 in short, without
#
# OUT gets PAIR.json and table.md. The frontier's question: which rows are above a line through the
# others (best effort over alone against the service's mean over alone). With --resume it goes on.
set -euo pipefail
root=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
bench=${HEDDLE_BENCH:-$root/dist/bin/heddle-bench}
out=$1
shift
mkdir -p "$out"
for pair in keypointrcnn resnet101 alexnet training; do
  "$bench" run "$root/bench/scenarios/$pair.toml" --json "$out/$pair.json" \
    --policies gapfill@mps gapfill:credit_pct=0@mps gapfill:fence_sm=16@mps \
    gapfill:fence_sm=32@mps gapfill:fence_sm=64@mps \
    --baselines mps mps+priority split:75/25 split:50/50 "$@"
done
"$bench" table --brief "$out"/*.json >"$out/table.md"
cat "$out/table.md"
