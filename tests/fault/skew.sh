#!/bin/bash
# Version skew with real binaries: the tests of deaths with an older heddled, with an older shim,
# and with both heddleds in turns, which is an upgrade and a way back under programs that run. By
# hand: an older build is needed.
#
#   git worktree add /tmp/old COMMIT && cd /tmp/old && cmake -G Ninja -B build \
#     -DCMAKE_BUILD_TYPE=Release -DHEDDLE_DEPS=HERE/.deps && cmake --build build &&
#     cmake --install build --prefix /tmp/old/dist
#   tests/fault/skew.sh /tmp/old/dist        needs an installed dist/ here
set -euo pipefail
old=$(realpath "${1:?usage: tests/fault/skew.sh OLD_DIST}")
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mix() {  # name: a copy of dist/
  cp -a "$root/dist" "$work/$1"
}

for same in bin/heddled lib/heddle/libcuda.so.1; do
  ! cmp -s "$root/dist/$same" "$old/$same" || { echo "$old has today's $same" >&2; exit 2; }
done

mix old-heddled
cp "$old/bin/heddled" "$work/old-heddled/bin/"

mix old-shim
cp "$old"/lib/heddle/libcuda* "$work/old-shim/lib/heddle/"

mix in-turns
mv "$work/in-turns/bin/heddled" "$work/in-turns/bin/heddled.new"
cp "$old/bin/heddled" "$work/in-turns/bin/heddled.old"
cat >"$work/in-turns/bin/heddled" <<'TURNS'
#!/bin/bash
here=$(dirname "$0")
if rmdir "$here/turn" 2>/dev/null; then exec "$here/heddled.old" "$@"; fi
mkdir "$here/turn"
exec "$here/heddled.new" "$@"
TURNS
chmod +x "$work/in-turns/bin/heddled"

for name in old-heddled old-shim in-turns; do
  for test in daemon_killed client_killed fail_closed; do
    printf '%-12s %-14s ' "$name" "$test"
    HEDDLE_DIST=$work/$name python3 "$root/tests/fault/$test.py" 2>&1 | tail -n 1
  done
done
