#!/usr/bin/env bash
# Looks for rare failures, for hours: simulated clusters, fuzzers and chaos in rotation, at low priority.
#   scripts/soak.sh HOURS [FILE]
# HOURS count from the end of the builds; 0.2 are twelve minutes. If they are too few for full turns, each part gets an
# equal share of them in one round, and the simulations, at scale 1, are cut there.
# Appends one line of JSON per round of each to FILE (build/soak.jsonl), and per run of chaos to FILE.chaos, so that
# runs add up: `tests/chaos/chaos.py --show FILE.chaos` prints the table. Seeds continue after those of the last soak.
# Inputs found by fuzzers stay in build/soak/NAME; failing inputs are build/soak/NAME-crash-..., and logs of failed runs
# of chaos are in build/soak/chaos. Exits with 1 if anything failed.
# PUSHPULL_SOAK_S: seconds of each fuzzer, and of chaos, in a round (600). PUSHPULL_SIM_SCALE: seeds that are simulated
# in a round, as a multiple of the tests' own number (4, or 1 if they are cut).
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

case ${1:-} in
  -h | --help | '') sed -n '2,12s/^# \{0,1\}//p' "$0"; exit $(( $# == 0 ? 2 : 0 )) ;;
esac
total_s=$(awk -v hours="$1" 'BEGIN { printf "%d", 3600 * hours }')
table=$(realpath -m "${2:-build/soak.jsonl}")
turn_s=${PUSHPULL_SOAK_S:-600}
sim_scale=${PUSHPULL_SIM_SCALE:-}
work=$PWD/build/soak
failed=0
rounds=0
cut_s=0
mkdir -p "$work" "$(dirname "$table")"
touch "$table" "$table.chaos"

# note KIND NAME RUNS SECONDS EXIT_CODE: appends a line to the table.
note() {
  printf '{"when": "%s", "commit": "%s", "kind": "%s", "name": "%s", "runs": %s, "seconds": %s, "exit": %s}\n' \
    "$(date -u +%FT%TZ)" "$(git rev-parse --short HEAD 2>/dev/null || echo none)" "$1" "$2" "$3" "$4" "$5" >>"$table"
  [ "$5" -eq 0 ] || failed=1
  echo "[soak] $1 $2: $3 runs, $4 s, exit code $5"
}

# The first round is completed in any case: each part gets its share.
over() { [ "$rounds" -gt 0 ] && [ "$(date +%s)" -ge "$end" ]; }

# Prints the smaller of a turn and the remaining time, in seconds.
seconds_left() {
  local left=$((end - $(date +%s)))
  echo $((left < turn_s ? (left > 1 ? left : 1) : turn_s))
}

# The order of the tests is random, so that cut rounds reach all of them in time.
simulate() {
  local begin=$SECONDS code=0 round first cut=""
  round=$(grep -c '"kind": "simulate"' "$table" || true)
  # No test has more than 3,000 seeds at scale 1; seeds below the first round's are the tests' own.
  first=$((1 + 3000 * sim_scale * (round + 1)))
  PUSHPULL_SIM_FIRST=$first PUSHPULL_SIM_SCALE=$sim_scale timeout "$cut_s" nice \
    build/release/tests/simulation_test --gtest_shuffle >"$work/simulate.log" 2>&1 || code=$?
  if [ "$code" -eq 124 ]; then
    cut=", cut"
    code=$(grep -q '^\[  FAILED  \]' "$work/simulate.log" && echo 1 || echo 0)
  fi
  note simulate "seeds from $first at scale $sim_scale$cut" "$(grep -c '\[       OK \]' "$work/simulate.log" || true)" \
    $((SECONDS - begin)) "$code"
}

fuzz() {
  local begin=$SECONDS code=0 runs
  mkdir -p "$work/$1"
  nice "build/fuzz/tests/$1_fuzz" -max_total_time="$(seconds_left)" -max_len=4096 -timeout=20 -print_final_stats=1 \
    -artifact_prefix="$work/$1-" "$work/$1" "tests/fuzz/corpus/$1" >"$work/$1.log" 2>&1 || code=$?
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$work/$1.log")
  note fuzz "$1" "${runs:-0}" $((SECONDS - begin)) "$code"
}

chaos() {
  local begin=$SECONDS code=0 seed runs
  seed=$(wc -l <"$table.chaos")
  nice python3 tests/chaos/chaos.py --bin build/release/bin --runs 100000 --seed "$seed" --for-s "$(seconds_left)" \
    --table "$table.chaos" --logs "$work/chaos" >"$work/chaos.log" 2>&1 || code=$?
  runs=$(($(wc -l <"$table.chaos") - seed))
  note chaos "seeds from $seed" "$runs" $((SECONDS - begin)) "$code"
}

echo "[soak] builds"
cmake --preset release >/dev/null
cmake --build --preset release --target pushpull pushpull-server pushpull-worker pushpull-proxy simulation_test >/dev/null
fuzzers=()
if command -v clang++ >/dev/null; then
  cmake --preset fuzz >/dev/null
  cmake --build --preset fuzz >/dev/null
  for source in tests/fuzz/*_fuzz.cpp; do fuzzers+=("$(basename "$source" _fuzz.cpp)"); done
else
  echo "[soak] no clang++ here: the fuzzers are left out"
fi

parts=$((2 + ${#fuzzers[@]}))
if [ $((total_s / parts)) -lt "$turn_s" ]; then
  turn_s=$((total_s / parts > 1 ? total_s / parts : 1))
  cut_s=$turn_s
fi
: "${sim_scale:=$((cut_s > 0 ? 1 : 4))}"
end=$(($(date +%s) + total_s))
while ! over; do
  simulate
  over || chaos
  for name in "${fuzzers[@]}"; do
    over || fuzz "$name"
  done
  rounds=$((rounds + 1))
done
python3 tests/chaos/chaos.py --show "$table.chaos"
echo "[soak] all that was done is in $table"
exit "$failed"
