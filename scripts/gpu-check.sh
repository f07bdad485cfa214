#!/usr/bin/env bash
# Runs what needs a GPU and prints a table of rows: tests, jobs of every model and strategy, PyTorch beside them, benchmarks,
# compute-sanitizer. Runs in an unpacked package of scripts/package.sh, or from the sources on a finished build.
#   gpu-check.sh [--build DIR] [--out DIR] [--only PART,...] [--budget SECONDS]
#     --build DIR       the build, outside a package (build/release of these sources)
#     --out DIR         folder for logs (gpu-check-out)
#     --only PART,...   of tests, models, strategies, torch, kernels, sanitizer (all, in this order)
#     --budget SECONDS  time limit (540): what does not fit becomes a row "not run"
# Exit code: 0 no row failed, 1 a row failed, 2 wrong option, 4 no row failed but the time was too short, 8 DIR cannot be
# written, 77 no GPU (skipped, in one line), 130 and 143 after a signal.
set -uo pipefail
export LC_ALL=C
here=$(dirname "$(readlink -f "$0")")
readonly parts="tests models strategies torch kernels sanitizer"
readonly reserve=8  # seconds of the budget for a command that must be killed

build='' out=gpu-check-out only='' budget=540
usage() {
  echo "[gpu-check] $*; see gpu-check.sh --help" >&2
  exit 2
}
while [ $# -gt 0 ]; do
  case $1 in
    --build | --out | --only | --budget) [ $# -gt 1 ] || usage "$1 lacks a value"; declare "${1#--}=$2"; shift ;;
    -h | --help) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) usage "unknown option $1" ;;
  esac
  shift
done
[[ $budget =~ ^[1-9][0-9]{0,4}$ ]] || usage "--budget '$budget': must be a whole number of seconds"
for part in ${only//,/ }; do
  [[ " $parts " == *" $part "* ]] || usage "--only $part: there are $parts"
done
if [ -z "$build" ] && [ -d "$here/libexec" ]; then  # a package
  root=$here sources=$here benches=$here/bench digits=$here/share/pushpull/digits
else
  sources=$here/.. root=${build:-$here/../build/release}
  benches=$root/bin digits=$sources/datasets/digits
fi
[ -x "$root/bin/pushpull" ] || usage "no $root/bin/pushpull: build it, or name the build with --build"
for variable in ${!PUSHPULL_@}; do  # a caller's would be part of every job
  [[ $variable =~ ^PUSHPULL_(CUDA_LIBS|TEST_.*)$ ]] || unset "$variable"
done

# ---- rows ----

failed=0 passed=0 cut=0 signal=0
# row NAME RESULT [SEEN]: RESULT is passed, FAILED, measured or not run; the seconds are those of the latest `run`.
row() {
  local seen=${3:-}
  case $2 in passed) passed=$((passed + 1)) ;; FAILED) failed=$((failed + 1)) ;; esac
  printf '%-56s %-8s %4d s  %s\n' "$part: $1" "$2" "$took" "${seen//[^ -~]/?}" | sed 's/ *$//'
}

# run LIMIT LOG COUNT WORD...: runs a command in COUNT processes at once, which share a test program's tests. Process I writes
# LOG.I. After LIMIT seconds, or those left of the budget, they get SIGTERM, and SIGKILL 5 s later. Sets `took`, `code` (the
# first exit code other than 0) and `seen` (why it is not 0), and returns it.
running=()
run() {
  local limit=$1 log=$2 count=$3 left=$((budget - reserve - SECONDS)) begin=$SECONDS clipped=0 index ended process
  shift 3
  took=0 code=0 seen='' result=passed
  [ "$limit" -le "$left" ] || { limit=$left clipped=1; }
  if [ "$signal" != 0 ] || [ "$limit" -lt 2 ]; then
    code=1 result="not run" seen="out of time" cut=$((cut + 1))
    [ "$signal" = 0 ] || seen=interrupted
    return 1
  fi
  rm -f "$log".[0-9]*
  running=()
  for ((index = 0; index < count; index++)); do
    GTEST_TOTAL_SHARDS=$count GTEST_SHARD_INDEX=$index timeout -k 5 "$limit" "$@" >"$log.$index" 2>&1 </dev/null &
    running+=($!)
  done
  [ "$signal" = 0 ] || kill "${running[@]}" 2>/dev/null  # it came before the ids were known
  for process in "${running[@]}"; do
    wait "$process" 2>/dev/null  # without the shell's own line on a killed process
    ended=$?
    if [ "$signal" != 0 ]; then
      wait "$process" 2>/dev/null
      kill -KILL -- "-$process" 2>/dev/null  # what a signal between the fork and the first instruction has left
    fi
    [ "$code" != 0 ] || code=$ended
  done
  running=()
  took=$((SECONDS - begin))
  [ "$code" != 0 ] || return 0
  result=FAILED seen="exit code $code: $(cause_in "$log".[0-9]*)"
  if [ "$signal" != 0 ]; then
    result="not run" seen=interrupted
  elif [[ $code =~ ^(124|137)$ ]] && [ "$took" -ge "$limit" ]; then
    seen="not done within $limit s"
    [ "$clipped" = 0 ] || { result="not run" seen="out of time after $limit s" cut=$((cut + 1)); }
  fi
  return "$code"
}
# Prints the first line with an error, else the last line.
cause_in() {
  local line
  line=$(cat "$@" | tr -d '\000' | { grep -a -m 1 'error: ' || true; })
  [ -n "$line" ] || line=$(cat "$@" | tr -d '\000' | grep -av '^[[:space:]]*$' | tail -n 1)
  echo "${line:0:200}"
}

# Ends the running commands; the rows that remain are not run.
stop() {
  signal=$1
  [ ${#running[@]} = 0 ] || kill "${running[@]}" 2>/dev/null
}
trap 'stop 2' INT
trap 'stop 15' TERM

# ---- tests: a file beside each program has the filter of those that need a device ----

programs() { find "$root/tests" -maxdepth 2 -name '*.filter' -printf '%f %p\n' | sort; }

# tests LIMIT COUNT PROGRAM FILTER [WORD...]: a row for a GoogleTest program, with WORD... in front. A skipped test is a failure,
# and so is a filter without tests.
tests() {
  local limit=$1 count=$2 program=$3 filter=$4 log=$out/${name// /-} ok skip fail where
  shift 4
  run "$limit" "$log" "$count" env PUSHPULL_REQUIRE_DEVICE=1 "$@" "$root/tests/$program" "--gtest_filter=$filter"
  read -r ok skip fail where < <(cat "$log".[0-9]* 2>/dev/null | tr -d '\000' | awk '
    $1 == "[" && $3 == "]" {
      sub(/,$/, "", $4)
      if ($2 == "RUN") running[$4]
      else if (/ms\)$/) {count[$2]++; delete running[$4]; if ($2 == "FAILED") where = where " " $4}
    }
    END {
      for (test in running) where = where " within " test
      print count["OK"] + 0, count["SKIPPED"] + 0, count["FAILED"] + 0, where
    }')
  if [ "$result" = passed ] && [ "$ok" != 0 ] && [ "$skip$fail" = 00 ]; then
    seen="$ok passed"
  else
    [ "$result" = "not run" ] || result=FAILED
    seen="$ok passed, $skip skipped, $fail failed${where:+ ($where)}; ${seen:+$seen; }$log.*"
  fi
  row "$name" "$result" "$seen"
}

part_tests() {
  local file filter count
  count=$(nproc)
  [ "$count" -le 8 ] || count=8
  while read -r file filter; do
    name=${file%.filter}
    tests 120 "$count" "$name" "$(cat "$filter")"
  done < <(programs)
}

# Kernels of libraries are not ours to judge, and would take most of the time. Tests of failures fail on purpose.
part_sanitizer() {
  local tool sanitizer='' file filter ours=()
  for tool in "${CUDA_HOME:-/usr/local/cuda}/bin" /usr/local/cuda/bin; do
    [ -n "$sanitizer" ] || [ ! -x "$tool/compute-sanitizer" ] || sanitizer=$tool/compute-sanitizer
  done
  [ -n "$sanitizer" ] || sanitizer=$(type -P compute-sanitizer)
  if [ -z "$sanitizer" ]; then
    took=0 row "memcheck, racecheck" "not run" "no compute-sanitizer here (it is part of the CUDA toolkit)"
    return
  fi
  [[ $("$sanitizer" --help 2>/dev/null </dev/null) != *--kernel-name* ]] || ours=(--kernel-name kns=pushpull)
  for tool in memcheck racecheck; do
    while read -r file filter; do
      name="$tool ${file%.filter}"
      [ "$file" = cuda_test.filter ] ||
        tests 120 1 "${file%.filter}" "$(cat "$filter"):-*TooMuchMemory*" "$sanitizer" --tool "$tool" "${ours[@]}" --error-exitcode 9
    done < <(programs)
  done
}

# ---- jobs: all workers share the first device ----

# job NAME WORD...: runs `pushpull run` with one server. Sets hash, loss and rate from its summary; fails without them.
job() {
  local folder=$out/${1//[ ,:]/-}
  name=$1 hash='' loss='' rate=''
  shift
  mkdir -p "$folder"
  rm -f "$folder/summary.json"
  run 60 "$folder/log" 1 "$root/bin/pushpull" run --servers 1 "$@" --out "$folder"
  rm -rf "$folder/checkpoints"
  [ "$code" = 0 ] || return
  read -r hash loss rate < <(sed -n 's/^ *"\(weights_sha256\|test_loss\|samples_per_second\)": "\{0,1\}\([^",]*\).*/\1 \2/p' \
    "$folder/summary.json" 2>/dev/null | awk '{value[$1] = $2} END {print value["weights_sha256"], value["test_loss"], value["samples_per_second"]}')
  [[ $hash =~ ^[0-9a-f]{64}$ && $loss =~ ^[0-9] && $rate =~ ^[0-9] ]] || code=1 result=FAILED seen="its summary lacks a hash, a loss or a rate"
}
# near LOSS LIMIT: judges the latest job by its loss, as a fraction of the processor's.
near() {
  [ "$code" = 0 ] || return
  seen=$(awk -v a="$loss" -v b="$1" -v limit="$2" 'BEGIN {
    d = a - b; printf "%s loss %.5g, on the processor %.5g", (b != 0 && d * d <= limit * limit * b * b ? "passed" : "FAILED"), a, b}')
  result=${seen%% *} seen="weights ${hash:0:12}, ${seen#* }"
}
# same HASH: judges the latest job by its bits.
same() {
  [ "$code" = 0 ] || return
  seen="weights ${hash:0:12}"
  [ "$hash" = "$1" ] || result=FAILED seen="$seen, those of one worker ${1:0:12}"
}

# Largest difference of the loss from the processor's after twenty steps, as a fraction. The tests compare the weights.
declare -Ar tolerance=([fp32]=0.01 [tf32]=0.03 [bf16]=0.06)
readonly image="--dataset digits --global-batch 64 --micro-batch 8 --optimizer momentum"
readonly words="--layers 2 --heads 2 --embed 32 --sequence 16 --global-batch 32 --micro-batch 4 --optimizer adamw --lr 0.002"
declare -Ar models=(
  [mlp]="$image --lr 0.05 --hidden 64,64" [convnet]="$image --lr 0.05 --slice-bytes 8192" [resnet18]="$image --lr 0.002 --stem cifar"
  [gpt]="$words --dataset text" [bert]="$words --dataset dummy-qa --vocab 64 --train-samples 640 --test-samples 64")

part_models() {
  local model precision cpu one keys more
  awk 'BEGIN {for (i = 0; i < 20000; i++) printf "%c", 48 + i * 7 % 61}' >"$out/text.txt"
  for model in mlp convnet resnet18 gpt bert; do
    read -ra more <<<"${models[$model]}"
    keys=(--model "$model" "${more[@]}" --steps 20 --seed 7)
    [ "$model" != gpt ] || keys+=(--data-dir "$out/text.txt")
    job "$model on the processor" "${keys[@]}" --workers 1
    row "$name" "$result" "${seen:-loss ${loss:0:6}}"
    cpu=$loss
    for precision in fp32 tf32 bf16; do
      [ "$precision" = fp32 ] || [ "$model" = convnet ] || continue
      job "$model $precision, 1 worker" "${keys[@]}" --precision "$precision" --device cuda:0 --workers 1
      near "${cpu:-0}" "${tolerance[$precision]}"
      ! grep -aqs 'without cuDNN' "$out/${name//[ ,:]/-}/log.0" || seen+="; convolutions without cuDNN"
      row "$name" "$result" "$seen"
      one=${hash:-none}
      job "$model $precision, 2 workers" "${keys[@]}" --precision "$precision" --device cuda:0 --workers 2
      same "$one"
      row "$name" "$result" "$seen"
      job "$model $precision, 2 workers, server on cuda:0" "${keys[@]}" --precision "$precision" --device cuda:0 --workers 2 --server-device cuda:0
      same "$one"
      row "$name" "$result" "$seen"
    done
  done
}

part_strategies() {
  local strategy server workers
  while read -r strategy workers server; do
    job "$strategy, $workers workers, server on $server" --strategy "$strategy" --workers "$workers" --device cuda:0 --server-device "$server" \
      --model convnet --dataset dummy --train-samples 1600 --test-samples 100 --global-batch 400 --micro-batch 100 --optimizer momentum --lr 0.01 --steps 96
    row "$name" "$result" "${seen:-${rate%.*} samples/s}"
  done <<'END'
sync 4 cuda:0
async 2 cpu
async 4 cuda:0
ssp:4 2 cuda:0
backup:1 2 cuda:0
local:8 2 cuda:0
allreduce:ring 2 cpu
allreduce:tree 4 cpu
END
}

# ---- programs that print rows (bench/gpu_parts.h) ----

# measured LIMIT NAME WORD...: a row for each line that the command prints, and one if it fails or prints none.
measured() {
  local limit=$1 verdict what lines=0 log
  name=$2 log=$out/${2// /-}
  shift 2
  run "$limit" "$log" 1 "$@"
  while IFS=$'\t' read -r verdict what text; do
    lines=$((lines + 1))
    row "$what" "$verdict" "$text"
  done < <(tr -d '\000' <"$log.0" 2>/dev/null | awk -F '\t' -v OFS='\t' '
    function is_number(text) {return text ~ /^-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?$/}
    $1 == "skip" {print "not run", $2, $3}
    $1 == "fail" {print "FAILED", $2, $3}
    $1 == "row" {
      limit = substr($7, 3)
      if (NF != 7 || !is_number($3) || ($7 != "-" && !(is_number($6) && is_number(limit)))) verdict = "FAILED"
      else if ($7 == "-") verdict = "measured"
      else verdict = ($7 ~ /^>=/ ? $6 + 0 >= limit + 0 : $6 + 0 <= limit + 0) ? "passed" : "FAILED"
      print verdict, $2, $3 " " $4 ($5 != "-" ? ", floor " $5 : "") ($6 != "-" ? ", ratio " $6 : "") ($7 != "-" ? " " $7 : "")
    }')
  [ "$result" = passed ] && [ "$lines" != 0 ] && return
  [ "$result" != passed ] || result=FAILED seen="it printed no rows"
  [ "$code" != 77 ] || result="not run"
  row "$name" "$result" "$seen; $log.0"
}

part_kernels() {
  measured 30 "gpu_copies_bench floors" "$benches/gpu_copies_bench" floors
  measured 30 "gpu_copies_bench pipeline" "$benches/gpu_copies_bench" pipeline
  measured 30 "gpu_matmul_bench" "$benches/gpu_matmul_bench" 4096 bf16 --rows
  measured 90 "gpu_bench" "$benches/gpu_bench" --rows
}

# Twenty steps of small networks in fp32 beside PyTorch in f64 on the same GPU.
part_torch() {
  local python
  for python in "${PYTHON:-python3}" "${PYTHON:-/usr/bin/python3}"; do
    if timeout 60 "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' >/dev/null 2>&1 </dev/null; then
      measured 120 torch_networks_check.py "$python" "$sources/tests/e2e/torch_networks_check.py" "$root/bin" "$digits" --device cuda:0
      return
    fi
  done
  took=0 row "networks beside PyTorch" "not run" "no python3 with a PyTorch that sees the GPU; PYTHON names another one"
}

# ---- the whole ----

if [ ! -x "$root/tests/cuda_test" ]; then
  why="this build has no CUDA in it, or not its tests"
else
  why=$(PUSHPULL_REQUIRE_DEVICE=1 timeout 60 "$root/tests/cuda_test" --gtest_filter='OnDevice.CudaGives*' 2>&1 |
    tr -d '\000' | sed -n 's/^a device is required: //p' | head -n 1)
fi
if [ -n "$why" ]; then
  echo "[gpu-check] skipped: $why"
  exit 77
fi
mkdir -p "$out" || exit 8
out=$(readlink -f "$out")
gpu=$(timeout 20 nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null | head -n 1)
echo "$({ cat "$root/PACKAGE" || "$root/bin/pushpull" --version; } 2>/dev/null | head -n 1); ${gpu:-a GPU that nvidia-smi does not show}; $(nproc) cores; $(date -u +%F)"
for part in $parts; do
  [[ -n $only && ,$only, != *,$part,* ]] || "part_$part"
done
echo "[gpu-check] $passed passed, $failed failed, $cut not run for lack of time, $SECONDS s; logs: $out"
if [ "$signal" != 0 ]; then
  exit $((128 + signal))
elif [ "$failed" != 0 ]; then
  exit 1
fi
[ "$cut" = 0 ] && exit 0 || exit 4
