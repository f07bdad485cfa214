#!/usr/bin/env bash
# Compares all-reduce over loopback TCP: ring, tree and Gloo, alternating in one run, 2 and 4 ranks.
#   run_all_reduce.sh [--ranks 2,4] [--rounds 30] [--segment BYTES] [--whole BYTES]
# BIN names another folder of programs than build/release/bin. Needs a build with libgloo-dev.
set -euo pipefail

bin=${BIN:-$(dirname "$0")/../../build/release/bin}
if [ ! -x "$bin/all_reduce_bench" ]; then
  echo "[bench] no $bin/all_reduce_bench; build it: cmake --preset release && cmake --build --preset release" >&2
  exit 1
fi
echo "$(nproc) cores, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)," \
  "tcp $(cat /proc/sys/net/ipv4/tcp_congestion_control), load $(cut -d' ' -f1 /proc/loadavg)"
exec "$bin/all_reduce_bench" "$@"
