#!/bin/sh
# Makes a Python environment with PyTorch 2, torchvision, transformers, accelerate, Lightning, safetensors, datasets, webdataset,
# JAX and Keras, to compare the models with theirs (docs/models.md), and to test the Trainers, streams and docs/examples:
# PUSHPULL_TORCH_PYTHON=DIR/bin/python. Other tests do not need it.
#   scripts/torch-env.sh DIR    then DIR/bin/python runs with these packages
# Fetches the small builds for processors if their index can be reached, else those of PyPI, which
# have several gigabytes.
set -eu
if [ $# != 1 ] || [ "${1#-}" != "$1" ]; then
    echo "usage: scripts/torch-env.sh DIR" >&2
    exit 2
fi
dir=$1
index=https://download.pytorch.org/whl/cpu
[ -x "$dir/bin/python" ] || python3 -m venv "$dir" || {
    echo "[torch-env] python3 -m venv failed: install python3-venv, or choose another directory than $dir" >&2
    exit 3
}
pip() { "$dir/bin/python" -m pip --disable-pip-version-check "$@"; }
if "$dir/bin/python" -c "import urllib.request as u; u.urlopen('$index/torch/', timeout=10)" 2>/dev/null; then
    pip install --index-url "$index" torch torchvision
else
    pip install torch torchvision
fi
pip install numpy transformers safetensors accelerate lightning datasets webdataset jax keras
"$dir/bin/python" -c "
import safetensors, torch, torchvision, transformers
print('torch', torch.__version__, 'torchvision', torchvision.__version__, 'transformers', transformers.__version__)"
