#!/usr/bin/env bash
# Compares samples per second of every model with PyTorch on the processor, in one interleaved run on the same cores, and prints
# Markdown. Needs a release build and a Python with PyTorch 2 and torchvision: scripts/torch-env.sh makes one.
#   run_models.sh [--rounds 3] [--models gpt,bert,...] [--parts one,pair,compile] [--bin DIR] [--json FILE]
# PYTHON names another interpreter than /usr/bin/python3.
set -euo pipefail

python=${PYTHON:-/usr/bin/python3}
if ! "$python" -c 'import torch' 2>/dev/null; then
  echo "[bench] $python has no PyTorch; run scripts/torch-env.sh DIR and set PYTHON=DIR/bin/python" >&2
  exit 1
fi
exec "$python" "$(dirname "$0")/models_compare.py" "$@"
