#!/usr/bin/env bash
# Runs a GoogleTest program in several processes at once, which share its tests.
#   shards.sh COUNT LOG WORD...
# Process i writes LOG.i.log. When it ends, LOG.i.code gets its exit code, unless SIGTERM to all of them ended it. Exit
# code: 0 if every process ended with 0, else that of the first in the order of their numbers.
set -u
count=$1 log=$2
shift 2
rm -f "$log".[0-9]*.log "$log".[0-9]*.code

# shard INDEX WORD...
shard() {
  local index=$1 stopped=0 code process
  shift
  # The program gets the signal, too. This shell waits for its end, so that `timeout` kills a program that ignores it.
  trap 'stopped=1' TERM
  GTEST_TOTAL_SHARDS=$count GTEST_SHARD_INDEX=$index "$@" >"$log.$index.log" 2>&1 &
  process=$!
  wait "$process"
  code=$?
  if [ "$stopped" = 1 ]; then
    wait "$process"
    code=$?
  fi
  [ "$stopped$code" = 1143 ] || echo "$code" >"$log.$index.code"
}

stopped=0
trap 'stopped=1' TERM
for ((i = 0; i < count; i++)); do shard "$i" "$@" & done
wait
[ "$stopped" = 0 ] || wait
for ((i = 0; i < count; i++)); do
  code=$(cat "$log.$i.code" 2>/dev/null || echo 143)
  [ "$code" = 0 ] || exit "$code"
done
