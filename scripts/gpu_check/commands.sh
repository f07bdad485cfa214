# Part of gpu-check.sh: runs commands under time limits. There are three limits: of the command, of its part, and of
# the whole check; the tightest applies.

readonly no_time=200  # instead of an exit code: there was no time to start it
readonly reserve=8    # seconds of the budget for a command that must be killed, and for the table
signal=0
running=
part_end=0
code=0
allowed=0
clipped=0
was_late=0

# Ends the running command. The remaining commands are not run; the table is still written.
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

# limited LIMIT LOG WORD...: writes the command's output to LOG. Sets `code` (exit code), `took` (seconds) and
# `command` (its words). After LIMIT seconds the command gets SIGTERM, and SIGKILL 5 s later.
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
  # A signal may have arrived before the process id was known.
  [ "$signal" = 0 ] || kill "$running" 2>/dev/null
  wait "$running"
  code=$?
  [ "$signal" = 0 ] || wait "$running" 2>/dev/null
  # A signal between its fork and the next instruction ends `timeout` without its child, which is in its process group.
  [ "$signal" = 0 ] || kill -KILL -- "-$running" 2>/dev/null
  running=
  took=$((SECONDS - begin))
  # Exceeding its own limit is a verdict on the command; exceeding the limit of the part or of the check is not.
  was_late=0
  if [[ $code =~ ^(124|137)$ ]] && [ "$took" -ge "$allowed" ]; then
    was_late=1
    cut=$((cut + clipped))
  fi
}

# Prints the verdict on the latest `limited`, for a row, if the output does not show success.
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
  # The first line with an error is the cause.
  last=$(tr -d '\000' <"$log" | grep -a -m 1 'error: ' || tr -d '\000' <"$log" | grep -av '^[[:space:]]*$' | tail -n 1)
  last=${last:0:200}
  echo "exit code $code: ${last:-no output}; $log"
}

find_tool() {
  local folder
  for folder in "${CUDA_HOME:-/usr/local/cuda}/bin" /usr/local/cuda/bin; do
    [ ! -x "$folder/$1" ] || { echo "$folder/$1"; return; }
  done
  type -P "$1"
}

# Finds a Python with a PyTorch that sees a GPU. Sets python, or no_python to the reason if there is none.
python=
no_python=
find_python() {
  local candidate seen
  took=0 command=
  [ -z "$python$no_python" ] || return 0
  no_python="no python3 with PyTorch here; PYTHON names one elsewhere"
  for candidate in "${PYTHON:-python3}" "${PYTHON:-/usr/bin/python3}"; do
    type -P "$candidate" >/dev/null || continue
    seen=$(timeout 60 "$candidate" -c \
      'import torch; print(torch.__version__, torch.cuda.is_available())' 2>/dev/null </dev/null | tail -n 1)
    case $seen in
      *" True") python=$candidate no_python=; return ;;
      *" False") no_python="PyTorch ${seen% *} of $candidate sees no GPU" ;;
    esac
  done
}
