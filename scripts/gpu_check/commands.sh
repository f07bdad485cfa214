# Part of gpu-check.sh: commands under their limits. There are three: that of the command, of its
# part, and of the whole check; the tightest holds.

readonly no_time=200  # instead of an exit code: there was no time to start it
readonly reserve=8    # seconds of the budget for a command that must be killed, and for the table
signal=0
running=
part_end=0

# Ends what runs; what is left is not run, and the table still comes.
stop() {
  signal=$1
  [ -z "$running" ] || kill "$running" 2>/dev/null
}
trap 'stop 2' INT
trap 'stop 15' TERM

# open_part SECONDS
open_part() {
  part_end=$((SECONDS + $1))
  [ "$part_end" -le $((budget - reserve)) ] || part_end=$((budget - reserve))
}

seconds_left() { echo $((part_end - SECONDS)); }

# limited LIMIT LOG WORD...: its output goes to LOG, its exit code to `code`, its time to `took`, its
# words to `command`. Past the limit it gets SIGTERM, and SIGKILL 5 s later.
limited() {
  local limit=$1 log=$2 left begin=$SECONDS
  shift 2
  command="$*"
  took=0
  left=$(seconds_left)
  [ "$limit" -le "$left" ] || limit=$left
  allowed=$limit
  if [ "$signal" != 0 ] || [ "$limit" -lt 2 ]; then
    code=$no_time
    cut=$((cut + 1))
    : >"$log"
    return
  fi
  timeout -k 5 "$limit" "$@" >"$log" 2>&1 </dev/null &
  running=$!
  wait "$running"
  code=$?
  [ "$signal" = 0 ] || wait "$running" 2>/dev/null
  running=
  took=$((SECONDS - begin))
}

# Of the latest `limited`, for a row.
verdict_of_end() {
  case $code in
    0) echo FAILED ;;  # asked only where success was not to be seen
    "$no_time") echo "not run" ;;
    *) [ "$signal" = 0 ] && echo FAILED || echo "not run" ;;
  esac
}
end_of() {
  local log=$1 last
  if [ "$signal" != 0 ]; then
    echo "interrupted"
    return
  fi
  case $code in
    "$no_time") echo "out of time"; return ;;
    124 | 137) [ "$took" -lt "$allowed" ] || { echo "not done within $allowed s: $log"; return; } ;;
  esac
  last=$(grep -av '^[[:space:]]*$' "$log" | tail -n 1 | tr -d '\000' | cut -c 1-200)
  echo "exit code $code: ${last:-it said nothing}; $log"
}

find_tool() {
  local folder
  for folder in "${CUDA_HOME:-/usr/local/cuda}/bin" /usr/local/cuda/bin; do
    [ ! -x "$folder/$1" ] || { echo "$folder/$1"; return; }
  done
  type -P "$1"
}
