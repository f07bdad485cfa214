#!/usr/bin/env bash
# Configures build/release for scripts/quickstart.sh and scripts/test.sh, which share it. Where no GPU is, a new build
# folder is without CUDA: its kernels take a third of the build, and nothing could run them. A folder that was configured
# before keeps its options. A build by hand (`cmake --preset release`) has CUDA wherever nvcc is found, for login nodes
# have no GPU.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

options=()
if [ ! -f build/release/CMakeCache.txt ] && ! nvidia-smi --list-gpus >/dev/null 2>&1; then
  options=(-DPUSHPULL_CUDA=OFF)
fi
cmake --preset release "${options[@]}" "$@" >/dev/null
