#!/usr/bin/env bash
# Installs the packages that the tests need, builds what they run, and runs them. README names this script, and CI
# runs it. It ends with a table of parts and seconds and the line `tests: N passed, N failed, N skipped`.
#   scripts/test.sh              the first tier: is it whole? Ten to twelve minutes on two cores, with the build
#   scripts/test.sh --all        both tiers: all of the following, in hours
#   scripts/test.sh --PART...    these parts of both tiers:
#     --units       the programs of unit tests
#     --reference   comparisons with PyTorch and Python
#     --simulation  clusters on a simulated network and clock
#     --jobs        whole jobs in real processes
#     --clusters    jobs under Slurm and Open MPI
#     --labs        jobs over emulated links and hosts
#     --chaos       jobs under faults that a seed chooses
#     --protocols   the models of protocols, by spin
#     --fuzz        the inputs that the fuzzers have kept
#     --isa         models and operations with the kernels of other processors
#     --browser     the report of a comparison in Chromium
#     --packages    the packages, also in bare systems (as root, with a mirror of Debian)
#     --scripts     the scripts of bench/ and scripts/, and the manual
#     --tree        checks of the sources
#     --headers     each header and each source compiles by itself
#     --cuda        a build with CUDA for sm_80 and sm_90, and CUDA's code on the processor
#     --asan, --tsan  all tests with sanitizers
#     --tidy        builds with clang-tidy, whose warnings are errors
#   scripts/test.sh --fast       only the unit tests, in the preset dev; run it after each edit
#   scripts/test.sh --simulate   the simulations with seventy times as many seeds, or with PUSHPULL_SIM_SCALE times as many
#   --record (with any of these) writes the seconds to tests/seconds.txt
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

readonly with_ctest="units reference simulation jobs clusters labs chaos protocols fuzz isa browser packages scripts tree"
readonly alone="headers cuda asan tsan tidy"
# Tests of whole jobs wait more than they compute: six of them share two cores.
jobs=$(nproc)
[ "$jobs" -ge 6 ] || jobs=6
results=build/results
begin=$(date +%s)

# step TIER/NAME COMMAND...: runs a command and notes its seconds and its exit code.
step() {
  local name=$1 start code=0
  shift
  echo "[test] ${name#*/}"
  start=$(date +%s.%N)
  "$@" || code=$?
  echo "$name $(awk "BEGIN {print $(date +%s.%N) - $start}") $code $*" >>"$results/steps.txt"
  return "$code"
}

# run_tests PRESET NAME [CTEST OPTION...]: runs tests of a build and keeps ctest's report. Failures are in the table.
run_tests() {
  local preset=$1 name=$2
  shift 2
  echo "build/$preset" >"$results/$name.build"
  ctest --preset "$preset" --show-only=json-v1 "$@" >"$results/$name.json"
  ctest --preset "$preset" -j "$jobs" --output-junit "$PWD/$results/$name.xml" "$@" || true
}

# Exits if the build fails: there is nothing to run.
build() {
  local tier=$1 preset=$2
  shift 2
  step "$tier/build" cmake --build --preset "$preset" "$@" || exit 1
}

first() {
  scripts/configure.sh
  build first release --target first_tier
  step first/alone scripts/each_alone.py --changed || true
  run_tests release first -L '^first$'
}

both_tiers() {  # PART
  scripts/configure.sh
  build second release
  run_tests release "$1" -L "^$1\$"
}

sanitized() {  # PRESET
  cmake --preset "$1" >/dev/null
  build second "$1"
  run_tests "$1" "$1"
}

packages() {  # the wheel first: a test of the part takes the one in dist
  step second/wheel scripts/wheel.sh || true
  both_tiers packages
  cmake --preset cpu >/dev/null
  build second packages
  step second/packages-bare scripts/package.sh --build build/cpu --no-gpu-check --deb dist dist/pushpull.tar.gz &&
    step second/packages-bare scripts/package/check.py dist || true
}
headers() { step second/headers scripts/each_alone.py || true; }
cuda() {
  cmake --preset cuda >/dev/null
  build second cuda --target cuda_tests pushpull pushpull-server pushpull-worker
  run_tests cuda cuda -L '^(cuda|gpu)$'
}
tidy() {
  cmake --preset tidy >/dev/null
  step second/tidy cmake --build --preset tidy || true
}
simulate() {
  scripts/configure.sh
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
  exit "$failed"
}

parts=()
record=
for option in "$@"; do
  case $option in
    --all) read -ra parts <<<"$with_ctest $alone" ;;
    --fast | --simulate) parts+=("${option#--}") ;;
    --record) record=--record ;;
    -h | --help) sed -n '2,30s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --*)
      [[ " $with_ctest $alone " == *" ${option#--} "* ]] || { echo "[test] unknown option $option; see scripts/test.sh --help" >&2; exit 2; }
      parts+=("${option#--}") ;;
    *) echo "[test] unknown option $option; see scripts/test.sh --help" >&2; exit 2 ;;
  esac
done

needs=(--tests)
[ ${#parts[@]} -eq 0 ] || [[ " fast simulate " == *" ${parts[0]} "* ]] || needs=(--all-tests)
[[ " ${parts[*]} " != *" tidy "* ]] || needs+=(--tidy)
[[ " ${parts[*]} " != *" packages "* ]] || needs+=(--package)
scripts/install-deps.sh "${needs[@]}"

rm -rf "$results"
mkdir -p "$results"
[ ${#parts[@]} -gt 0 ] || first
for part in "${parts[@]}"; do
  case $part in
    fast) cmake --workflow --preset fast; exit ;;
    simulate) simulate ;;
    asan | tsan) sanitized "$part" ;;
    packages | headers | cuda | tidy) "$part" ;;
    *) both_tiers "$part" ;;
  esac
done
tier=second
[ ${#parts[@]} -gt 0 ] || tier=first
echo "$tier/wall $(($(date +%s) - begin)) 0 -" >>"$results/steps.txt"
scripts/test_table.py "$results" $record
