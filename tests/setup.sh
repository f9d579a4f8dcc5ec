#!/bin/bash
# Makes a fresh Debian 12, Ubuntu 24.04 or newer one ready to build heddle: distribution packages,
# and in .deps/ what the shim is built against: bullseye's C library and compiler headers, so that
# its glibc floor stays low, and a position-independent Cap'n Proto from Debian's own source.
#
#   tests/setup.sh           does what is missing; run again it takes a second
#   tests/setup.sh --check   changes nothing; exits 1 and says what is missing
#   tests/setup.sh --plots   and python3-matplotlib (60 MB to fetch, 360 on disk), which only
#                            `heddle-bench plot` and its test need
#
# Needs root or sudo for packages and debootstrap. HEDDLE_DEPS names another place than .deps.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
deps=${HEDDLE_DEPS:-$root/.deps}
check=false
case ${1:-} in
  '') ;;
  --check) check=true ;;
  --plots) ;;
  *) echo "usage: tests/setup.sh [--check|--plots]" >&2; exit 2 ;;
esac

packages=(g++ cmake ninja-build pkg-config binutils dpkg-dev ca-certificates git python3
  capnproto libcapnp-dev libuv1-dev libluajit-5.1-dev libspdlog-dev libfmt-dev libcli11-dev
  libtomlplusplus-dev nlohmann-json3-dev libexpected-dev libxxhash-dev
  libgtest-dev libbenchmark-dev valgrind clang-format clang-tidy clang libclang-rt-dev
  debootstrap debian-archive-keyring)
[ "${1:-}" != --plots ] || packages+=(python3-matplotlib)
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
  local recipe="bullseye 1 ${sysroot_packages[*]}" work package link target
  if made bullseye "$recipe"; then say "sysroot: present"; return; fi
  say "sysroot: fetching bullseye's C library and headers"
  rm -rf "$deps/bullseye"
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
  mv "$work/root" "$deps/bullseye"
  as_root rm -rf "$work"
  echo "$recipe" >"$deps/bullseye.stamp"
}

# Fetches the source package of Cap'n Proto $1 into $2/source, with an apt configuration of our
# own: the machine's sources, asked for source packages. Nothing under /etc changes.
fetch_capnp_source() {
  local version=$1 work=$2 file
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
  quietly apt-get "${options[@]}" source "capnproto=$version"
  cd "$root"
}

make_capnp() {
  local version recipe work source
  version=$(dpkg-query -W -f='${source:Version}' libcapnp-dev)
  recipe="capnproto $version 1 $(cat "$deps/bullseye.stamp" 2>/dev/null)"
  if made capnp-shim "$recipe"; then say "cap'n proto for the shim: present ($version)"; return; fi
  say "cap'n proto for the shim: building $version from its source package"
  rm -rf "$deps/capnp-shim"
  work=$(mktemp -d "$deps/capnp.XXXXXX")
  fetch_capnp_source "$version" "$work"
  source=$(find "$work/source" -maxdepth 4 -path '*/src/kj' -printf '%h' -quit)
  source=${source%/src}
  local sysroot=$deps/bullseye
  local flags="--sysroot=$sysroot -nostdinc++ -isystem $sysroot/usr/include/c++/10 \
-isystem $sysroot/usr/include/x86_64-linux-gnu/c++/10 -fno-exceptions -fvisibility=hidden \
-ffunction-sections -fdata-sections"
  # Exceptions off: the shim only builds records, and nothing may unwind through an application.
  quietly cmake -S "$source" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_CXX_COMPILER=g++ -DCMAKE_CXX_FLAGS="$flags" -DCMAKE_POSITION_INDEPENDENT_CODE=ON \
    -DCMAKE_TRY_COMPILE_TARGET_TYPE=STATIC_LIBRARY -DCAPNP_LITE=ON -DEXTERNAL_CAPNP=ON \
    -DBUILD_TESTING=OFF
  quietly cmake --build "$work/build" --target kj capnp
  mkdir -p "$deps/capnp-shim/lib" "$deps/capnp-shim/include"
  find "$work/build" \( -name libkj.a -o -name libcapnp.a \) -exec cp {} "$deps/capnp-shim/lib" \;
  cd "$source/src"
  find kj capnp -name '*.h' -exec cp --parents {} "$deps/capnp-shim/include" \;
  cd "$root"
  rm -rf "$work"
  echo "$recipe" >"$deps/capnp-shim.stamp"
}

[ "$(uname -m)" = x86_64 ] || die "this machine is $(uname -m); heddle builds on x86_64 for now"
command -v apt-get >/dev/null || die "no apt-get here; heddle's set-up knows Debian and Ubuntu"
check_release
$check || mkdir -p "$deps"
if ! $check; then
  exec 9>"$deps/lock"
  flock 9
fi
install_packages
make_sysroot
make_capnp
if ! command -v nvcc >/dev/null && [ ! -d /usr/local/cuda ]; then
  say "no CUDA toolkit: bench/workloads' CUDA programs and the check of driver_api.h are left out"
fi
