#!/bin/bash
# Runs both commands of README on a machine that has nothing: in a new root of Debian 12, made by
# debootstrap, on a clone of what is committed. Of this host it has the kernel, the network, the
# settings of apt and a compiler cache.
#
#   tests/fresh.sh                     examples/quickstart.sh, then tests/run.sh
#   tests/fresh.sh --release trixie    Debian 13
#   tests/fresh.sh --keep              leaves the new root there, and says where
#   tests/fresh.sh -- COMMAND...       another command in the clone
#
# Needs root or sudo, and 5 GB under TMPDIR (/var/tmp). CCACHE_DIR names the compiler cache.
set -euo pipefail
release=bookworm keep=false
usage() { sed -n '2,/^set /{/^set /d; s/^# \{0,1\}//; p}' "$0"; }
die() { printf 'fresh: %s\n' "$*" >&2; exit 1; }
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --keep) keep=true ;;
    --release)
      [ -n "${2:-}" ] || { echo "tests/fresh.sh: $1 needs a value" >&2; exit 2; }
      release=$2
      shift ;;
    --) shift; break ;;
    *) echo "tests/fresh.sh: no option '$1' (--help tells the options)" >&2; exit 2 ;;
  esac
  shift
done
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null || die "it makes a new root: run it as root, or install sudo"
  exec sudo -E "$0" --release "$release" $($keep && echo --keep) -- "$@"
fi
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
git -C "$source" rev-parse -q --verify HEAD >/dev/null || die "$source is no git repository"

work=$(mktemp -d "${TMPDIR:-/var/tmp}/heddle-fresh.XXXXXX")
root=$work/root cache=${CCACHE_DIR:-$HOME/.cache/ccache}
mkdir -p "$cache"
finish() { if $keep; then echo "fresh: the new root stays: $root"; else rm -rf "$work"; fi; }
trap finish EXIT

# Where this host has Debian's packages from. Its other repositories stay here: what needs them
# would need them on every machine.
host_mirror() {
  local host_release
  host_release=$(. /etc/os-release; echo "${VERSION_CODENAME:-}")
  apt-get indextargets --format '$(SITE) $(CODENAME) $(REPO_URI)' 2>/dev/null |
    awk -v release="$host_release" '$2 == release { print $3; exit }'
}

make_root() {
  local package mirror
  for package in debootstrap debian-archive-keyring; do
    dpkg-query -W "$package" >/dev/null 2>&1 ||
      apt-get install -y --no-install-recommends "$package" >"$work/log" 2>&1 ||
      { tail -n 20 "$work/log"; die "cannot install $package"; }
  done
  mirror=$(host_mirror)
  [ -n "$mirror" ] || die "this host is no Debian, or its apt names no packages of its release"
  debootstrap --variant=minbase --include=ca-certificates "$release" "$root" "$mirror" \
    >"$work/log" 2>&1 || { tail -n 20 "$work/log"; die "debootstrap of $release failed"; }
  cp -a /etc/apt/apt.conf.d/. "$root/etc/apt/apt.conf.d/"
  cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
  # Certificates that the host trusts beside Debian's.
  cp -a /usr/local/share/ca-certificates "$root/usr/local/share/"
  chroot "$root" update-ca-certificates >/dev/null
}

# In a mount namespace of its own. The new root becomes `/` by pivot_root: a chroot may make no user
# namespaces, which the tests of containers need.
enter() {
  mount --make-rprivate /
  mount --bind "$root" "$root"
  mount -t proc proc "$root/proc"
  mount --rbind /sys "$root/sys"
  mount -t tmpfs -o mode=755 tmpfs "$root/dev"
  local name
  for name in null zero full random urandom tty; do
    touch "$root/dev/$name"
    mount --bind "/dev/$name" "$root/dev/$name"
  done
  mkdir "$root/dev/pts" "$root/dev/shm"
  mount -t devpts -o newinstance,ptmxmode=666,mode=620 devpts "$root/dev/pts"
  ln -s pts/ptmx "$root/dev/ptmx"
  ln -s /proc/self/fd "$root/dev/fd"
  ln -s fd/0 "$root/dev/stdin"; ln -s fd/1 "$root/dev/stdout"; ln -s fd/2 "$root/dev/stderr"
  mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
  mkdir -p "$root/ccache" "$root/old"
  mount --bind "$cache" "$root/ccache"
  cd "$root"
  pivot_root . old
  umount -l /old
  cd /heddle
  # PID namespaces are not parted: the tests of `heddle doctor` look at all processes of a host.
  exec env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    LANG=C.UTF-8 ${JOBS:+JOBS="$JOBS"} CCACHE_DIR=/ccache CCACHE_NOHASHDIR=1 \
    CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache "$@"
}

run_there() {
  export -f enter
  export root cache
  unshare --mount --ipc --fork --kill-child bash -euc 'enter "$@"' enter "$@"
}

step() { printf '\n== fresh %s: %s (%d s)\n' "$release" "$*" "$SECONDS"; }

step "a new root"
make_root
git clone -q --no-hardlinks "$source" "$root/heddle"
chown -R 0:0 "$root/heddle"
# The one thing that is there before: it compiles nothing.
chroot "$root" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
  ccache >"$work/log" 2>&1 ||
  { tail -n 20 "$work/log"; die "cannot install ccache in the new root"; }
if [ $# -gt 0 ]; then
  step "$*"
  run_there "$@"
else
  step "examples/quickstart.sh"
  run_there examples/quickstart.sh
  step "tests/run.sh"
  run_there tests/run.sh
fi
