#!/bin/sh
# Writes the file that job_submit.lua reads: for each two programs the throughput that `heddle plan`
# predicts of them on one GPU, and the nodes that a job may prefer by a feature of the same name.
# Run it by a timer on slurmctld's host: a plan takes some tenths of a second.
#
# usage: pairs.sh DATA OUTPUT PROGRAM...    DATA: measured tables; PROGRAM: rows of it, vgg16/32
set -eu
heddle=${HEDDLE:-/opt/heddle/bin/heddle}
[ $# -ge 3 ] || { echo "usage: pairs.sh DATA OUTPUT PROGRAM..." >&2; exit 2; }
data=$1 output=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$heddle" plan train --data "$data" --output "$work/forest" >&2
for a in "$@"; do
  for b in "$@"; do
    printf '[[job]]\nname = "%s"\nkind = "offline"\nlike = "%s"\n' "1 $a" "$a" "2 $b" "$b" \
      >"$work/jobs.toml"
    "$heddle" plan jobs "$work/jobs.toml" --data "$data" --predictor "$work/forest" \
      >"$work/plan"
    sed -n "s|.*predicted throughput \([0-9.]*\).*|pair $a $b \1|p" "$work/plan"
  done
  shift # b after a has been asked for as a before b
done >"$work/pairs"
sinfo --noheader --Node --states=idle,mixed,alloc --format='%N,%b' >"$work/nodes"
sort -u "$work/nodes" |
  awk -F, '{ for (i = 2; i <= NF; ++i) if ($i == $1) print "node", $1 }' >>"$work/pairs"
# slurmctld sees the old file or the new one.
cp "$work/pairs" "$output.new"
chmod 644 "$output.new"
mv "$output.new" "$output"
