#!/usr/bin/env bash
# Compares pushpull with its alternatives, interleaved: exchanges with Gloo's all-reduce and PyTorch's SGD, and with
# Open MPI's all-reduce; training with PyTorch's DDP; each with its floor. Prints Markdown to stdout and progress to
# stderr. Reports and skips peers that are not installed.
#   run_speed.sh [--rounds 3] [--quick] [--only exchange|training] [--models mlp,...] [--out FILE.json] [--bin DIR]
# PYTHON names another interpreter with PyTorch than /usr/bin/python3.
set -euo pipefail

exec python3 "$(dirname "$0")/speed_compare.py" "$@"
