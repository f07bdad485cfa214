#!/usr/bin/env bash
# Compares samples per second of `convnet` with 1 and 2 workers and of single-process PyTorch, in one run on the same
# cores. Needs a release build and a Python with PyTorch (Debian: python3-torch).
#   run_convnet.sh [--rounds 5] [--steps 100] [--cores 0,1] [--bin DIR] [--json FILE]
# PYTHON names another interpreter than /usr/bin/python3.
set -euo pipefail

python=${PYTHON:-/usr/bin/python3}
if ! "$python" -c 'import torch' 2>/dev/null; then
  echo "[bench] $python has no PyTorch; install python3-torch, or set PYTHON to one that has" >&2
  exit 1
fi
exec "$python" "$(dirname "$0")/convnet_compare.py" "$@"
