#!/usr/bin/env bash
# Builds the Python wheel: the package python/pushpull with a libpushpull.so.0 that contains its libraries and needs
# glibc only (cmake/Bundle.cmake). Installs the packages that the build needs, and downloads Debian's source packages
# of two libraries. Uses neither PyPI nor pip. The last line names the wheel.
#   scripts/wheel.sh [FOLDER]
#     FOLDER  for the wheel; an older wheel there is removed (dist)
set -euo pipefail
here=$(pwd)
cd "$(dirname "$(readlink -f "$0")")/.."

out=dist
case ${1:-} in
  -h | --help) sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 0 ;;
  -*) echo "[wheel] unknown option $1; see scripts/wheel.sh --help" >&2; exit 2 ;;
  "") ;;
  /*) out=$1 ;;
  *) out=$here/$1 ;;
esac
[ "$(uname -m)" = x86_64 ] || { echo "[wheel] this machine is $(uname -m); wheels are built on x86_64 only" >&2; exit 1; }
[ -f python/pushpull/__init__.py ] || { echo "[wheel] python/pushpull/__init__.py is missing; the wheel contains that package" >&2; exit 1; }

scripts/install-deps.sh --wheel
scripts/wheel/sources.sh build/wheel-sources
cmake --preset wheel -Wno-dev >/dev/null
cmake --build --preset wheel

cached() { sed -n "s/^$1:[A-Z]*=//p" build/wheel/CMakeCache.txt; }
version=$(cached CMAKE_PROJECT_VERSION)
glibc=$(cached PUSHPULL_BUNDLE_GLIBC)
[ -n "$version" ] && [ -n "$glibc" ] || { echo "[wheel] build/wheel/CMakeCache.txt lacks the version of pushpull or of glibc; remove build/wheel and try again" >&2; exit 1; }
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
strip --strip-unneeded -o "$stage/libpushpull.so.0" build/wheel/lib/libpushpull.so.0
licences=()
for package in libprotobuf-dev libzmq3-dev libsodium-dev libboost-program-options1.74-dev libssl-dev libstdc++-12-dev; do
  copyright=/usr/share/doc/$package/copyright
  [ ! -f "$copyright" ] || licences+=(--licence "$copyright")
done
wheel=$(scripts/wheel/write.py --library "$stage/libpushpull.so.0" --version "$version" --glibc "$glibc" "${licences[@]}" "$stage")
scripts/wheel/check.py "$wheel" >/dev/null
mkdir -p "$out"
rm -f "$out"/pushpull-*.whl
cp "$wheel" "$out/"
scripts/wheel/check.py "$out/$(basename "$wheel")"
