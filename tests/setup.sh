#!/bin/bash
# Makes a fresh Debian 12, Ubuntu 24.04 or newer one ready to build heddle: distribution packages,
# and in .deps/ what heddle is built against: bullseye's C library and compiler headers, so that it
# runs on hosts as old as that, and Cap'n Proto, libuv and LuaJIT from Debian's own sources.
#
#   tests/setup.sh           does what is missing; run again it takes a second
#   tests/setup.sh --check   changes nothing; exits 1 and says what is missing
#   tests/setup.sh --plots   and python3-matplotlib (60 MB to fetch, 360 on disk), which only
#                            `heddle-bench report --svg` and its test need
#   tests/setup.sh --packages   and rpm and lintian, for examples/packages/make.sh and its test
#   tests/setup.sh --prometheus   and prometheus with its promtool, which the test of
#                            `heddle metrics` scrapes and checks with
#   tests/setup.sh --slurm   and Slurm, whose slurmctld and slurmd the test of examples/slurm starts
#
# Needs root or sudo for packages and debootstrap. HEDDLE_DEPS names another place than .deps.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
deps=${HEDDLE_DEPS:-$root/.deps}
sysroot=$deps/bullseye
check=false
case ${1:-} in
  '') ;;
  --check) check=true ;;
  --plots | --packages | --prometheus | --slurm) ;;
  -h | --help) sed -n '2,/^set /{/^set /d; s/^# \{0,1\}//; p}' "$0"; exit 0 ;;
  *) echo "usage: tests/setup.sh [--check|--plots|--packages|--prometheus|--slurm]" >&2; exit 2 ;;
esac

packages=(g++ cmake ninja-build pkg-config binutils dpkg-dev ca-certificates git python3
  capnproto libcapnp-dev libuv1-dev libluajit-5.1-dev libspdlog-dev libfmt-dev libcli11-dev
  libtomlplusplus-dev nlohmann-json3-dev libexpected-dev libxxhash-dev
  libgtest-dev libbenchmark-dev valgrind clang-format clang-tidy clang libclang-rt-dev
  universal-ctags debootstrap debian-archive-keyring libjs-chart.js
  protobuf-compiler-grpc python3-grpcio python3-protobuf python3-yaml)
[ "${1:-}" != --plots ] || packages+=(python3-matplotlib)
[ "${1:-}" != --packages ] || packages+=(rpm lintian)
[ "${1:-}" != --prometheus ] || packages+=(prometheus)
[ "${1:-}" != --slurm ] || packages+=(slurmctld slurmd slurm-client libslurm-dev)
sysroot_packages=(libc6 libc6-dev linux-libc-dev libstdc++-10-dev libstdc++6 libgcc-10-dev
  libgcc-s1 libcrypt1 libcrypt-dev)

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

# Runs a command silently; if it fails, shows the end of what it printed.
quietly() {
  if ! "$@" >"$deps/setup.log" 2>&1; then
    tail -n 25 "$deps/setup.log" >&2
    die "'$1' failed (above: the end of $deps/setup.log)"
  fi
}

# What is older has a CMake older than 3.25, which would end the build after all of the set-up.
check_release() {
  local least
  case $(. /etc/os-release; echo "${ID:-}") in
    debian) least=12 ;;
    ubuntu) least=24.04 ;;
    *) return 0 ;;
  esac
  # Debian's testing has no VERSION_ID.
  (. /etc/os-release; dpkg --compare-versions "${VERSION_ID:-$least}" ge $least) ||
    die "$(. /etc/os-release; echo "$PRETTY_NAME") is too old: heddle is built on Debian 12," \
      "Ubuntu 24.04 or newer; build in a container of one"
}

missing_packages() {
  local package
  for package in "${packages[@]}"; do
    dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed ||
      echo "$package"
  done
}

install_packages() {
  local missing
  missing=$(missing_packages)
  if [ -z "$missing" ]; then
    say "packages: all ${#packages[@]} present"
    return
  fi
  ! $check || die "packages missing: ${missing//$'\n'/ }; run tests/setup.sh"
  say "packages: installing ${missing//$'\n'/ }"
  quietly as_root apt-get update
  # shellcheck disable=SC2086
  quietly as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y --no-install-recommends $missing
}

# True if $1 was made by this recipe ($2); in --check mode a stale one is the end.
made() {
  if [ "$(cat "$deps/$1.stamp" 2>/dev/null)" = "$2" ]; then return 0; fi
  ! $check || die "$1 is missing or stale in $deps; run tests/setup.sh"
  return 1
}

make_sysroot() {
  local recipe work package link target
  recipe="bullseye 2 ${sysroot_packages[*]} $(sha256sum <"$root/tests/newer_glibc.c")"
  if made bullseye "$recipe"; then say "sysroot: present"; return; fi
  say "sysroot: fetching bullseye's C library and headers"
  rm -rf "$sysroot"
  work=$(mktemp -d "$deps/sysroot.XXXXXX")
  quietly as_root debootstrap --foreign --variant=minbase \
    --include=libc6-dev,linux-libc-dev,libstdc++-10-dev,libgcc-10-dev bullseye "$work/full"
  for package in "${sysroot_packages[@]}"; do
    dpkg -x "$work"/full/var/cache/apt/archives/"$package"_*.deb "$work/root"
  done
  # Absolute links would leave the sysroot.
  find "$work/root" -type l -lname '/*' | while read -r link; do
    target=$(readlink "$link")
    ln -sfnr "$work/root$target" "$link"
  done
  # What the archives of today's g++ want of a newer C library: its unwinder does with bullseye's.
  ln -s ../gcc/x86_64-linux-gnu/10/libgcc_eh.a "$work/root/usr/lib/x86_64-linux-gnu"
  quietly gcc --sysroot="$work/root" -O2 -fPIC -c "$root/tests/newer_glibc.c" -o "$work/newer.o"
  quietly ar r "$work/root/usr/lib/x86_64-linux-gnu/libc_nonshared.a" "$work/newer.o"
  mv "$work/root" "$sysroot"
  as_root rm -rf "$work"
  echo "$recipe" >"$deps/bullseye.stamp"
}

# Fetches the source packages $2... (name=version) into $1/source, with an apt configuration of our
# own: the machine's sources, asked for source packages. Nothing under /etc changes.
fetch_sources() {
  local work=$1 file
  shift
  mkdir -p "$work/parts" "$work/lists/partial" "$work/cache/archives/partial" "$work/source"
  : >"$work/sources.list"
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
    [ -f "$file" ] || continue
    sed -n 's/^[[:space:]]*deb[[:space:]]/deb-src /p' "$file" >>"$work/sources.list"
  done
  for file in /etc/apt/sources.list.d/*.sources; do
    [ -f "$file" ] || continue
    sed 's/^Types:.*/Types: deb-src/' "$file" >"$work/parts/$(basename "$file")"
  done
  local options=(-o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts="$work/parts"
    -o Dir::State::Lists="$work/lists" -o Dir::Cache="$work/cache" -o APT::Sandbox::User=)
  # A third-party repository without source packages fails here and matters to nobody.
  apt-get "${options[@]}" update >"$deps/setup.log" 2>&1 || true
  cd "$work/source"
  quietly apt-get "${options[@]}" source "$@"
  cd "$root"
}

# cmake_archives SOURCE BUILD FLAGS TARGETS [OPTIONS...]: static libraries against the sysroot.
cmake_archives() {
  local source=$1 build=$2 flags="--sysroot=$sysroot $3" targets=$4
  shift 4
  quietly cmake -S "$source" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_TESTING=OFF \
    -DCMAKE_C_COMPILER=gcc -DCMAKE_CXX_COMPILER=g++ -DCMAKE_C_FLAGS="$flags" \
    -DCMAKE_CXX_FLAGS="$flags" -DCMAKE_POSITION_INDEPENDENT_CODE=ON \
    -DCMAKE_TRY_COMPILE_TARGET_TYPE=STATIC_LIBRARY "$@"
  # shellcheck disable=SC2086
  quietly cmake --build "$build" --target $targets
}

# The archives that we link are Debian's sources against the sysroot, for Debian's archives need
# its own C library. The shim's Cap'n Proto: without exceptions, for it only builds records and
# nothing may unwind through an application, and with bullseye's C++ headers.
make_libraries() {
  local package sources=() recipe work from
  for package in libcapnp-dev libuv1-dev libluajit-5.1-dev; do
    sources+=("$(dpkg-query -W -f='${source:Package}=${source:Version}' $package)")
  done
  recipe="2 ${sources[*]} $(cat "$deps/bullseye.stamp" 2>/dev/null)"
  if made libraries "$recipe"; then say "libraries: present (${sources[*]})"; return; fi
  say "libraries: building ${sources[*]}"
  rm -rf "$deps/libraries"
  work=$(mktemp -d "$deps/libraries.XXXXXX")
  fetch_sources "$work" "${sources[@]}"
  from=$work/source
  cmake_archives "$from"/capnproto-*/ "$work/shim" "-nostdinc++ \
-isystem $sysroot/usr/include/c++/10 -isystem $sysroot/usr/include/x86_64-linux-gnu/c++/10 \
-fno-exceptions -fvisibility=hidden -ffunction-sections -fdata-sections" "kj capnp" \
    -DCAPNP_LITE=ON -DEXTERNAL_CAPNP=ON
  cmake_archives "$from"/capnproto-*/ "$work/capnp" -D_GLIBCXX_GTHREAD_USE_WEAK=0 "kj capnp" \
    -DCAPNP_LITE=ON -DEXTERNAL_CAPNP=ON
  cmake_archives "$from"/libuv1-*/ "$work/libuv" "" uv_a
  quietly make -C "$from"/luajit-*/src CC=gcc CCDEBUG= TARGET_FLAGS="--sysroot=$sysroot" \
    XCFLAGS=-fPIC BUILDMODE=static LJCORE_O=ljamalg.o libluajit.a
  mkdir -p "$deps/libraries/shim"
  cp "$work"/shim/src/{kj/libkj.a,capnp/libcapnp.a} "$deps/libraries/shim"
  cp "$work"/capnp/src/{kj/libkj.a,capnp/libcapnp.a} "$work/libuv/libuv_a.a" \
    "$from"/luajit-*/src/libluajit.a "$deps/libraries"
  rm -rf "$work"
  echo "$recipe" >"$deps/libraries.stamp"
}

[ "$(uname -m)" = x86_64 ] || die "this machine is $(uname -m); heddle builds on x86_64 for now"
command -v apt-get >/dev/null || die "no apt-get here; heddle's set-up knows Debian and Ubuntu"
check_release
if ! $check && [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null; then
  die "it installs packages: run it as root, or install sudo"
fi
$check || mkdir -p "$deps"
if ! $check; then
  exec 9>"$deps/lock"
  flock 9
fi
install_packages
make_sysroot
make_libraries
if ! command -v nvcc >/dev/null && [ ! -d /usr/local/cuda ]; then
  say "no CUDA toolkit: bench/workloads' CUDA programs and the check of driver_api.h are left out"
fi
