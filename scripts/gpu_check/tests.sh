# Part of gpu-check.sh: the tests that need a device, and those of kernels again under compute-sanitizer. A file beside
# each program contains the filter of its CUDA tests.

# run_tests PART LIMIT SHARDS PROGRAM FILTER [WORD...]: runs a GoogleTest program in SHARDS processes at once, with WORD...
# such as compute-sanitizer in front. Counts the tests of all processes, and names the last test of each process that
# failed or did not end. A skipped test is a failure, and so is a filter without tests.
run_tests() {
  local part=$1 limit=$2 shards=$3 program=$4 filter=$5 log=$out/$1-$4
  local i ok skip fail where ended oks=0 skips=0 fails=0 wrong=0 seen
  shift 5
  limited "$limit" "$log.log" bash "$package/gpu_check/shards.sh" "$shards" "$log" \
    env PUSHPULL_REQUIRE_DEVICE=1 "$@" "$package/tests/$program" "--gtest_filter=$filter"
  if [ "$code" = "$no_time" ]; then
    row "$part" "$program" "not run" "$(end_of "$log.log")"
    return
  fi
  seen=
  for ((i = 0; i < shards; i++)); do
    read -r ok skip fail where < <(tests_of "$log.$i.log")
    oks=$((oks + ok)) skips=$((skips + skip)) fails=$((fails + fail))
    ended=$(cat "$log.$i.code" 2>/dev/null)
    case $ended:$where in
      0:after*) ;;
      :*) seen+="; shard $i did not end, $where" ;;
      *:*"no test") wrong=1; seen+="; shard $i: $(code=$ended end_of "$log.$i.log")" ;;
      *) wrong=1; seen+="; shard $i: exit code $ended $where" ;;
    esac
  done
  [ "$fails" = 0 ] || seen=", $fails failed$seen"
  [ "$skips" = 0 ] || seen=", $skips skipped$seen"
  seen="$oks passed$seen"
  if [ "$code" = 9 ]; then
    row "$part" "$program" FAILED "$seen; the sanitizer has findings: $log.0.log"
  elif [ "$wrong" != 0 ] || [ "$skips" != 0 ] || [ "$fails" != 0 ] || [ "$code$oks" = 00 ]; then
    row "$part" "$program" FAILED "$seen; $log.*.log"
  elif [ "$code" != 0 ]; then
    row "$part" "$program" "$(verdict_of_end)" "$seen; $(end_of "$log.log")"
  else
    row "$part" "$program" passed "$seen"
  fi
}

# tests_of LOG: prints the numbers of tests that passed, were skipped and failed, and "within TEST" if that one has not
# ended. Otherwise "after TEST" names the first that failed, or the last.
tests_of() {
  tr -d '\000' 2>/dev/null <"$1" | awk '
    match($0, /\[ RUN      \] [^ ]+/) {last = substr($0, RSTART + 13, RLENGTH - 13); running = 1}
    / \([0-9]+ ms\)$/ && /\[       OK \]/ {ok++; running = 0}
    / \([0-9]+ ms\)$/ && /\[  SKIPPED \]/ {skip++; running = 0}
    / \([0-9]+ ms\)$/ && /\[  FAILED  \]/ {fail++; running = 0; if (wrong == "") wrong = last}
    END {
      where = running ? "within " last : "after " (wrong != "" ? wrong : last != "" ? last : "no test")
      print ok + 0, skip + 0, fail + 0, where
    }'
}

device_tests() {
  local filter
  for filter in "$package"/tests/*.filter; do
    basename "$filter" .filter
  done
}

part_tests() {
  local program shards
  shards=$(nproc)
  [ "$shards" -le 8 ] || shards=8
  for program in $(device_tests); do
    run_tests tests 60 "$shards" "$program" "$(cat "$package/tests/$program.filter")"
  done
}

# Skips the tests of failures, which fail on purpose.
part_sanitizer() {
  local sanitizer tool program runs=0 ahead
  local programs=() ours=()
  for program in $(device_tests); do
    [ "$program" = cuda_test ] || programs+=("$program")
  done
  took=0 command=
  if ! sanitizer=$(find_tool compute-sanitizer); then
    for tool in memcheck racecheck; do
      row "$tool" "${programs[*]}" "not run" "no compute-sanitizer here (it is part of the CUDA toolkit)"
    done
    return
  fi
  # Kernels of libraries are not pushpull's to judge, and would take most of the time.
  if [[ $("$sanitizer" --help 2>/dev/null </dev/null) == *--kernel-name* ]]; then
    ours=(--kernel-name kns=pushpull)
  fi
  for tool in memcheck racecheck; do
    for program in "${programs[@]}"; do
      runs=$((runs + 1))
      ahead=$((2 * ${#programs[@]} - runs))  # the remaining programs get ten seconds each
      run_tests "$tool" $(($(seconds_left) - 10 * ahead)) 1 "$program" \
        "$(cat "$package/tests/$program.filter"):-*TooMuchMemory*" "$sanitizer" --tool "$tool" "${ours[@]}" --error-exitcode 9
    done
  done
}
