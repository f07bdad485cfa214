# Part of gpu-check.sh: the tests that need a device, and those of kernels again under compute-sanitizer. A file beside
# each program contains the filter of its CUDA tests.

# run_tests PART LIMIT PROGRAM FILTER [WORD...]: runs a GoogleTest program, with WORD... such as compute-sanitizer in
# front. A skipped test is a failure, and so is a filter without tests.
run_tests() {
  local part=$1 limit=$2 program=$3 filter=$4 log=$out/$1-$3.log number
  shift 4
  limited "$limit" "$log" env PUSHPULL_REQUIRE_DEVICE=1 "$@" "$package/tests/$program" "--gtest_filter=$filter"
  number=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$log")
  if [ "$code" = 0 ] && [ "${number:-0}" != 0 ]; then
    row "$part" "$program" passed "$number passed"
  elif [ "$code" = 9 ]; then
    row "$part" "$program" FAILED "${number:-0} passed, the sanitizer has findings: $log"
  else
    row "$part" "$program" "$(verdict_of_end)" "${number:-0} passed, $(end_of "$log")"
  fi
}

device_tests() {
  local filter
  for filter in "$package"/tests/*.filter; do
    basename "$filter" .filter
  done
}

part_tests() {
  local program
  for program in $(device_tests); do
    run_tests tests 100 "$program" "$(cat "$package/tests/$program.filter")"
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
      run_tests "$tool" $(($(seconds_left) - 10 * ahead)) "$program" \
        "$(cat "$package/tests/$program.filter"):-*TooMuchMemory*" "$sanitizer" --tool "$tool" "${ours[@]}" --error-exitcode 9
    done
  done
}
