#!/usr/bin/env bash
# Installs the packages that the tests need, builds everything and runs all tests; the last lines are
# ctest's own summary. README names this script, and CI runs it.
#   scripts/test.sh            the release build: all tests, and the check of the formatting
#   scripts/test.sh STEP...    these steps instead, in the given order:
#     --release  as above
#     --fast     only the unit tests, in the preset dev; run it after each edit
#     --headers  compiles each header and each source by itself
#     --asan     all tests with the address and undefined-behaviour sanitizers
#     --tsan     all tests with the thread sanitizer
#     --tidy     builds with clang-tidy, whose warnings are errors
#     --format   only the check of the formatting
#     --simulate the simulations of the release build with seventy times as many seeds, or with
#                PUSHPULL_SIM_SCALE times as many
#     --packages builds the tarball and the .deb into dist, and installs and uses them in bare systems
#                (scripts/package/check.py; as root, with a mirror of Debian)
#     --all      --tidy --asan --tsan --release
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

# Tests of whole jobs wait more than they compute: four of them share two cores.
jobs=$(nproc)
[ "$jobs" -ge 4 ] || jobs=4

# build_and_test PRESET [CTEST OPTION...]
build_and_test() {
  local preset=$1
  shift
  echo "[test] $preset"
  cmake --preset "$preset" >/dev/null
  cmake --build --preset "$preset"
  ctest --preset "$preset" -j "$jobs" "$@"
}

release() { build_and_test release; }
asan() { build_and_test asan; }
tsan() { build_and_test tsan; }
tidy() {
  echo "[test] tidy"
  cmake --preset tidy >/dev/null
  cmake --build --preset tidy
}
fast() { cmake --workflow --preset fast; }
headers() {
  echo "[test] headers"
  cmake --preset headers >/dev/null
  cmake --build --preset headers
  scripts/each_alone.py build/headers
}
simulate() {
  echo "[test] simulate"
  cmake --preset release >/dev/null
  cmake --build --preset release --target simulation_test
  # not through ctest, which limits the time of a test; one shard per core
  local shards shard failed=0
  running=()
  shards=$(nproc)
  trap 'kill "${running[@]}" 2>/dev/null || true' EXIT  # background processes of a script ignore SIGINT
  for ((shard = 0; shard < shards; ++shard)); do
    PUSHPULL_SIM_SCALE=${PUSHPULL_SIM_SCALE:-70} GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$shard \
      build/release/tests/simulation_test &
    running+=($!)
  done
  for shard in "${running[@]}"; do wait "$shard" || failed=1; done
  return "$failed"
}
packages() {
  echo "[test] packages"
  cmake --preset cpu >/dev/null
  cmake --build --preset packages
  scripts/package.sh --build build/cpu --no-gpu-check --deb dist dist/pushpull.tar.gz
  scripts/package/check.py dist
}
format() {
  echo "[test] format"
  tests/format_test.sh
}

steps=()
for option in "$@"; do
  case $option in
    --release | --fast | --headers | --asan | --tsan | --tidy | --format | --simulate | --packages) steps+=("${option#--}") ;;
    --all) steps+=(tidy asan tsan release) ;;
    -h | --help) sed -n '2,17s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "[test] unknown option $option; see scripts/test.sh --help" >&2; exit 2 ;;
  esac
done
[ ${#steps[@]} -gt 0 ] || steps=(release)

needs=(--tests)
[[ " ${steps[*]} " != *" tidy "* ]] || needs+=(--tidy)
[[ " ${steps[*]} " != *" packages "* ]] || needs+=(--package)
scripts/install-deps.sh "${needs[@]}"

for step in "${steps[@]}"; do
  "$step"
done
