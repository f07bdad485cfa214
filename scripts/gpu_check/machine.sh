# Part of gpu-check.sh: describes the machine, its GPU if there is one, and the limits of that GPU.

# Sets identity and commit of the package, machine, gpu, and why (the reason that nothing can run; "" if it can).
describe_machine() {
  local smi
  identity=$(head -n 1 "$package/PACKAGE" 2>/dev/null | tr -d '\000')
  identity=${identity:-unknown}
  commit=$(sed -n 's/.*, commit \([^ ]*\).*/\1/p' <<<"$identity")
  machine="$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores, Linux $(uname -r)"
  gpu=
  if smi=$(find_tool nvidia-smi); then
    # One line per GPU; the check uses the first.
    gpu=$(timeout 20 "$smi" --query-gpu=name,driver_version,memory.total,ecc.mode.current --format=csv,noheader 2>/dev/null |
      head -n 1)
  fi
  if [ ! -x "$package/tests/cuda_test" ]; then
    why="this package has no CUDA in it"
  else
    why=$(PUSHPULL_REQUIRE_DEVICE=1 timeout 60 "$package/tests/cuda_test" --gtest_filter='OnDevice.CudaGives*' 2>&1 |
      tr -d '\000' | sed -n 's/^a device is required: //p' | head -n 1)
  fi
  echo "$identity; ${gpu:-no GPU that nvidia-smi shows}; $machine" >&2
}

# bench PART LIMIT PROGRAM [WORD...]: runs a program of the package that prints rows.
bench() {
  local part=$1 limit=$2 program=$3 log
  shift 3
  log=$out/$part-$program${1:+-$1}.log
  if [ ! -x "$package/bench/$program" ]; then
    took=0 command=
    row "$part" "$program${1:+ $1}" "not run" "this package has no $program"
    return
  fi
  limited "$limit" "$log" "$package/bench/$program" "$@"
  take_rows "$part" "$program${1:+ $1}" "$log"
}

part_machine() { bench machine 30 gpu_copies_bench floors; }
