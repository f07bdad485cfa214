# Part of gpu-check.sh: commands under their limits. There are three: that of the command, of its
# part, and of the whole check; the tightest holds.

readonly no_time=200  # instead of an exit code: there was no time to start it
readonly reserve=8    # seconds of the budget for a command that must be killed, and for the table
signal=0
running=
part_end=0
code=0
allowed=0
clipped=0
was_late=0

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
  took=0 clipped=0
  left=$(seconds_left)
  [ "$limit" -le "$left" ] || { limit=$left; clipped=1; }
  allowed=$limit
  if [ "$signal" != 0 ] || [ "$limit" -lt 2 ]; then
    code=$no_time
    cut=$((cut + 1))
    : >"$log"
    return
  fi
  timeout -k 5 "$limit" "$@" >"$log" 2>&1 </dev/null &
  running=$!
  # a signal that came before its number was known
  [ "$signal" = 0 ] || kill "$running" 2>/dev/null
  wait "$running"
  code=$?
  [ "$signal" = 0 ] || wait "$running" 2>/dev/null
  running=
  took=$((SECONDS - begin))
  # its own limit is a verdict on it; that of the part or of all is none
  was_late=0
  if [[ $code =~ ^(124|137)$ ]] && [ "$took" -ge "$allowed" ]; then
    was_late=1
    cut=$((cut + clipped))
  fi
}

# What the latest `limited` has come to where success was not to be seen, for a row.
verdict_of_end() {
  if [ "$signal" != 0 ] || [ "$code" = "$no_time" ] || [ "$was_late$clipped" = 11 ]; then
    echo "not run"
  else
    echo FAILED
  fi
}
end_of() {
  local log=$1 last
  if [ "$signal" != 0 ]; then
    echo "interrupted"
    return
  elif [ "$code" = "$no_time" ]; then
    echo "out of time"
    return
  elif [ "$was_late" = 1 ]; then
    [ "$clipped" = 1 ] && echo "out of time after $allowed s: $log" || echo "not done within $allowed s: $log"
    return
  fi
  # the first that names an error is the cause
  last=$(tr -d '\000' <"$log" | grep -a -m 1 'error: ' || tr -d '\000' <"$log" | grep -av '^[[:space:]]*$' | tail -n 1)
  last=${last:0:200}
  echo "exit code $code: ${last:-it said nothing}; $log"
}

find_tool() {
  local folder
  for folder in "${CUDA_HOME:-/usr/local/cuda}/bin" /usr/local/cuda/bin; do
    [ ! -x "$folder/$1" ] || { echo "$folder/$1"; return; }
  done
  type -P "$1"
}
