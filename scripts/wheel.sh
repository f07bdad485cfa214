#!/usr/bin/env bash
# Builds the Python wheel: the package python/pushpull, the programs with all their libraries, as scripts/package.sh packs
# them, and a libpushpull.so.0 that contains its libraries and needs glibc only (cmake/Bundle.cmake). One build makes all:
# build/cpu. Installs the packages that it needs, and downloads Debian's source packages of two libraries. Uses neither
# PyPI nor pip. The last line names the wheel.
#   scripts/wheel.sh [--cuda] [FOLDER]
#     --cuda  programs for GPUs too, of build/cuda; needs nvcc. The version then ends with +cuda
#     FOLDER  for the wheel; an older wheel there is removed (dist)
set -euo pipefail
here=$(pwd)
cd "$(dirname "$(readlink -f "$0")")/.."

out=dist
preset=cpu
for option in "$@"; do
  case $option in
    --cuda) preset=cuda ;;
    -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) echo "[wheel] unknown option $option; see scripts/wheel.sh --help" >&2; exit 2 ;;
    "") ;;
    /*) out=$option ;;
    *) out=$here/$option ;;
  esac
done
[ "$(uname -m)" = x86_64 ] || { echo "[wheel] this machine is $(uname -m); wheels are built on x86_64 only" >&2; exit 1; }
[ -f python/pushpull/__init__.py ] || { echo "[wheel] python/pushpull/__init__.py is missing; the wheel contains that package" >&2; exit 1; }

scripts/install-deps.sh --wheel
scripts/wheel/sources.sh build/wheel-sources
build=build/$preset
cmake --preset $preset -Wno-dev -DPUSHPULL_BUNDLE="$PWD/build/wheel-sources" >/dev/null
cmake --build --preset $preset --target pushpull_bundled pushpull pushpull-server pushpull-worker pushpull-proxy manual

cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }
version=$(cached CMAKE_PROJECT_VERSION)
glibc=$(cached PUSHPULL_BUNDLE_GLIBC)
[ -n "$version" ] && [ -n "$glibc" ] || { echo "[wheel] $build/CMakeCache.txt lacks the version of pushpull or of glibc; remove $build and try again" >&2; exit 1; }
[ $preset = cpu ] || version+=+$preset
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
strip --strip-unneeded -o "$stage/libpushpull.so.0" "$build/bundled/libpushpull.so.0"
scripts/package.sh --build "$build" --no-gpu-check "$stage/programs.tar.gz" >/dev/null
licences=()
for package in libprotobuf-dev libzmq3-dev libsodium-dev libboost-program-options1.74-dev libssl-dev libstdc++-12-dev; do
  copyright=/usr/share/doc/$package/copyright
  [ ! -f "$copyright" ] || licences+=(--licence "$copyright")
done
wheel=$(scripts/wheel/write.py --library "$stage/libpushpull.so.0" --programs "$stage/programs.tar.gz" --version "$version" --glibc "$glibc" \
  "${licences[@]}" "$stage")
scripts/wheel/check.py "$wheel" >/dev/null
mkdir -p "$out"
rm -f "$out"/pushpull-*.whl
cp "$wheel" "$out/"
scripts/wheel/check.py "$out/$(basename "$wheel")"
