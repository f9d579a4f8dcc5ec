#!/bin/sh
# Makes deb and rpm packages of an installed tree, without compiling: make.sh [TREE [OUT]]
#
#   examples/packages/make.sh               of dist/, into out/packages
#   GENERATORS=DEB HEDDLE_CONTACT=me@company.com examples/packages/make.sh
set -eu
here=$(cd "$(dirname "$0")" && pwd -P)
tree=$(cd "${1:-$here/../../dist}" && pwd -P)
out=${2:-$here/../../out/packages}
mkdir -p "$out"
out=$(cd "$out" && pwd -P)
version=$("$tree/bin/heddled" --version | cut -d' ' -f2)

rm -rf "$out/tree" "$out"/DEB "$out"/RPM
cp -a "$tree" "$out/tree"
for file in $(find "$out"/tree/bin "$out"/tree/lib "$out"/tree/libexec -type f); do
  case $(head -c4 "$file" | tr -d '\0') in *ELF) strip --strip-unneeded "$file" ;; esac
done

for generator in ${GENERATORS:-DEB RPM}; do
  if [ $generator = RPM ] && ! command -v rpmbuild >/dev/null; then
    echo "make.sh: no rpmbuild here, so no rpm: install the package rpm"
    continue
  fi
  cmake -S "$here" -B "$out/$generator" -DHEDDLE_TREE="$out/tree" -DHEDDLE_VERSION="$version" \
    ${HEDDLE_CONTACT:+"-DHEDDLE_CONTACT=$HEDDLE_CONTACT"} \
    -DCPACK_GENERATOR=$generator -DCPACK_PACKAGE_DIRECTORY="$out" >"$out/log" 2>&1 &&
    cmake --build "$out/$generator" --target package >>"$out/log" 2>&1 ||
    { tail -n 40 "$out/log"; exit 1; }
  rm -rf "${out:?}/$generator" "$out/_CPack_Packages"
done
rm -rf "$out/tree" "$out/log"
ls "$out"
