#!/usr/bin/env bash
# What can only be shown on a GPU, in one command and a few minutes: from a package that
# scripts/package.sh has made, on a machine with a driver. Needs no root, no network and no Python.
#   ./gpu-check.sh [--out DIR]
#     --out DIR  where logs, the table and gpu-check.json go (gpu-check-out)
# A part that fails or runs out of time is a row of the table, not the end. Exit code: 0 where all
# that is required has passed, 1 where something has not, 3 where nothing could run for lack of a GPU.
set -uo pipefail
package=$(dirname "$(readlink -f "$0")")
out="gpu-check-out"

while [ $# -gt 0 ]; do
  case $1 in
    --out) [ $# -gt 1 ] || { echo "[gpu-check] --out lacks a folder" >&2; exit 2; }; out=$2; shift ;;
    -h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "[gpu-check] unknown option $1; see gpu-check.sh --help" >&2; exit 2 ;;
  esac
  shift
done
if [ ! -x "$package/tests/device_test" ]; then
  echo "[gpu-check] $package is no package: scripts/package.sh makes one, and this script lies in it" >&2
  exit 2
fi
mkdir -p "$out" || exit 8
out=$(readlink -f "$out")

# One row: part, name, verdict (passed, FAILED, not run), what was seen, seconds, command.
rows=()
row() {
  local field line=
  for field in "$@"; do
    field=${field//$'\t'/ }
    line+=${line:+$'\t'}${field//$'\n'/ }
  done
  rows+=("$line")
  printf '%-10s %-34s %-8s %s\n' "$1" "$2" "$3" "$4"
}

# run_tests PART LIMIT PROGRAM FILTER [WORD...]: GoogleTest's tests, behind WORD... such as
# compute-sanitizer. A skipped test is a failure, and so is a filter that finds none.
run_tests() {
  local part=$1 limit=$2 program=$3 filter=$4 code passed seen begin=$SECONDS
  shift 4
  local words=("$@" "$package/tests/$program" "--gtest_filter=$filter")
  local log=$out/$part-$program.log
  PUSHPULL_REQUIRE_DEVICE=1 timeout -k 5 "$limit" "${words[@]}" >"$log" 2>&1
  code=$?
  passed=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$log")
  seen="${passed:-0} passed"
  case $code in
    0) ;;
    9) seen+=", the sanitizer has findings" ;;
    124) seen+=", not done within $limit s" ;;
    *) seen+=", exit code $code" ;;
  esac
  [ "$code" = 0 ] || seen+=": $log"
  local verdict=FAILED
  [ "$code" != 0 ] || [ "${passed:-0}" = 0 ] || verdict=passed
  row "$part" "$program $filter" "$verdict" "$seen" $((SECONDS - begin)) "${words[*]}"
}

find_tool() {
  local folder
  for folder in "${CUDA_HOME:-/usr/local/cuda}/bin" /usr/local/cuda/bin; do
    [ ! -x "$folder/$1" ] || { echo "$folder/$1"; return; }
  done
  command -v "$1"
}

# --- the machine

begin_all=$SECONDS
identity=$(head -n 1 "$package/PACKAGE" 2>/dev/null || echo unknown)
gpu=
if smi=$(find_tool nvidia-smi); then
  gpu=$("$smi" --query-gpu=name,driver_version,memory.total,ecc.mode.current --format=csv,noheader 2>/dev/null |
    head -n 1)
fi
echo "$identity; GPU: ${gpu:-none that nvidia-smi shows}; $(nproc) cores, $(uname -r)"

why=
if [ ! -x "$package/tests/cuda_test" ]; then
  why="this package has no CUDA in it"
else
  why=$(PUSHPULL_REQUIRE_DEVICE=1 timeout 60 "$package/tests/cuda_test" --gtest_filter='OnDevice.CudaGives*' 2>&1 |
    sed -n 's/^a device is required: //p' | head -n 1)
fi

# --- tests on the device, then under the sanitizer

# Beside each program lies the filter of its tests on CUDA.
mapfile -t programs < <(cd "$package/tests" && for f in *.filter; do echo "${f%.filter}"; done)
for program in "${programs[@]}"; do
  if [ -n "$why" ]; then
    row tests "$program" "not run" "$why" 0 ""
  else
    run_tests tests 120 "$program" "$(cat "$package/tests/$program.filter")"
  fi
done
sanitizer=$(find_tool compute-sanitizer)
for tool in memcheck racecheck; do
  for program in "${programs[@]}"; do
    # the tests of failures fail on purpose
    [ "$program" != cuda_test ] || continue
    if [ -n "$why" ]; then
      row "$tool" "$program" "not run" "$why" 0 ""
    elif [ -z "$sanitizer" ]; then
      row "$tool" "$program" "not run" "no compute-sanitizer here (it is part of the CUDA toolkit)" 0 ""
    else
      run_tests "$tool" 120 "$program" "$(cat "$package/tests/$program.filter"):-*TooMuchMemory*" \
        "$sanitizer" --tool "$tool" --error-exitcode 9
    fi
  done
done

# --- the table and the JSON

json_text() {
  local text=${1//\\/\\\\}
  printf '"%s"' "${text//\"/\\\"}" | tr -d '\000-\037'
}
failed=0
ran=0
{
  printf '{\n  "package": %s,\n  "gpu": %s,\n  "no_device": %s,\n  "seconds": %d,\n  "rows": [' \
    "$(json_text "$identity")" "$(json_text "$gpu")" "$(json_text "$why")" $((SECONDS - begin_all))
  separator=
  for line in "${rows[@]}"; do
    IFS=$'\t' read -r part name verdict seen seconds command <<<"$line"
    printf '%s\n    {"part": %s, "name": %s, "verdict": %s, "seen": %s, "seconds": %d, "command": %s}' \
      "$separator" "$(json_text "$part")" "$(json_text "$name")" "$(json_text "$verdict")" \
      "$(json_text "$seen")" "$seconds" "$(json_text "$command")"
    separator=,
  done
  printf '\n  ]\n}\n'
} >"$out/gpu-check.json"
for line in "${rows[@]}"; do
  case $line in
    *$'\tFAILED\t'*) failed=$((failed + 1)) ;;
    *$'\tpassed\t'*) ran=$((ran + 1)) ;;
  esac
done
echo "$ran passed, $failed failed, $((${#rows[@]} - ran - failed)) not run, $((SECONDS - begin_all)) s: $out/gpu-check.json"
[ -z "$why" ] || exit 3
[ "$failed" = 0 ]
