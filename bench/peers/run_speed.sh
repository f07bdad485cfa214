#!/usr/bin/env bash
# pushpull beside its alternatives, interleaved: exchanges beside Gloo's all-reduce with PyTorch's SGD and Open MPI's
# all-reduce, training beside PyTorch's DDP; each beside its floor. Prints Markdown on stdout, progress on stderr.
# Reports and skips peers that are not installed.
#   run_speed.sh [--rounds 3] [--quick] [--only exchange|training] [--models mlp,...] [--out FILE.json] [--bin DIR]
# PYTHON names another interpreter with PyTorch than /usr/bin/python3.
set -euo pipefail

exec python3 "$(dirname "$0")/speed_compare.py" "$@"
