#!/usr/bin/env bash
# Checks everything that needs a GPU, in one command and at most 8 minutes: from a package made by
# scripts/package.sh, on a machine with a driver. Needs no root and no network; two parts need Python.
#   ./gpu-check.sh [--out DIR] [--only PART,...] [--budget SECONDS]
#     --out DIR         folder for logs, the table and gpu-check.json (gpu-check-out)
#     --only PART,...   of machine, tests, bits, networks, kernels, peers, training, sanitizer (all, in this order)
#     --budget SECONDS  time limit; the parts that remain are not run (480)
# A part that fails or runs out of time becomes a row of the table; the others still run. Exit code: 0
# without a failure, 1 with one, 3 if nothing could run for lack of a GPU, 4 if nothing failed but the
# time was too short for all parts, 2 for a wrong option, 8 if DIR cannot be written, 130 and 143 after
# a signal.
set -uo pipefail
export LC_ALL=C
package=$(dirname "$(readlink -f "$0")")

# name, time limit in seconds, purpose; the most important part first
readonly parts=(
  "machine    30 the GPU, and what copies and launches take"
  "tests     100 the tests that need a GPU"
  "bits       70 the same weights for 1, 2 and 4 workers"
  "networks   60 twenty steps of every model beside PyTorch in f64"
  "kernels    60 products, kernels and copies beside their floors"
  "peers     180 training beside PyTorch"
  "training   80 each strategy with 1, 2 and 4 workers on the device"
  "sanitizer 480 memcheck and racecheck of our kernels"
)

out=gpu-check-out
only=
budget=480
usage() {
  echo "[gpu-check] $*; see gpu-check.sh --help" >&2
  exit 2
}
while [ $# -gt 0 ]; do
  case $1 in
    --out) [ $# -gt 1 ] || usage "--out lacks a folder"; out=$2; shift ;;
    --only) [ $# -gt 1 ] || usage "--only lacks a part"; only=$2; shift ;;
    --budget) [ $# -gt 1 ] || usage "--budget lacks a number of seconds"; budget=$2; shift ;;
    -h | --help) sed -n '2,12s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) usage "unknown option $1" ;;
  esac
  shift
done
[[ $budget =~ ^[1-9][0-9]{0,4}$ ]] || usage "--budget '$budget': must be a whole number of seconds"
for part in ${only//,/ }; do
  [[ " ${parts[*]%% *} " == *" $part "* ]] || usage "--only $part: there are ${parts[*]%% *}"
done
if [ ! -x "$package/tests/device_test" ]; then
  echo "[gpu-check] $package is not a package: scripts/package.sh makes one, which contains this script" >&2
  exit 2
fi
mkdir -p "$out" || exit 8
out=$(readlink -f "$out")
for variable in ${!PUSHPULL_@}; do  # a caller's would be part of every job
  [[ $variable =~ ^PUSHPULL_(CUDA_LIBS|TEST_.*)$ ]] || unset "$variable"
done

for file in rows commands machine tests networks kernels jobs peers; do
  # shellcheck source=/dev/null
  . "$package/gpu_check/$file.sh" || exit 2
done

describe_machine
for line in "${parts[@]}"; do
  read -r part seconds title <<<"$line"
  [[ -z $only || ,$only, == *,$part,* ]] || continue
  if [ -n "$why" ]; then
    row "$part" "$title" "not run" "$why"
  elif [ "$signal" != 0 ]; then
    took=0 command=
    row "$part" "$title" "not run" "interrupted"
  else
    open_part "$seconds"
    "part_$part"
  fi
done
write_json
write_table
[ -z "$why" ] || echo "[gpu-check] nothing could run: $why" >&2
exit "$(exit_code)"
