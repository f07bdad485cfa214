#!/usr/bin/env bash
# From a bare Debian to a trained network: installs packages, builds the programs, then trains the
# convolutional network of docs/examples/digits.ini on real handwritten digits (they are in this
# repository) with one server and two workers, first in lockstep (sync), then without (async).
# Needs root or sudo where packages are missing. May be started again, from any folder.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

scripts/install-deps.sh

echo "[quickstart] building"
cmake --preset release >/dev/null
cmake --build --preset release --target pushpull pushpull-server pushpull-worker

for strategy in sync async; do
  echo
  echo "[quickstart] convnet on digits, 1 server, 2 workers, $strategy"
  build/release/bin/pushpull run --job docs/examples/digits.ini --servers 1 --workers 2 \
    --strategy "$strategy" --out "out/quickstart-$strategy"
done

echo
echo "[quickstart] done; weights, metrics and summaries are in out/quickstart-sync and out/quickstart-async"
