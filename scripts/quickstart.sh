#!/usr/bin/env bash
# From a bare Debian to a trained network: installs packages, builds the programs, then trains the
# convolutional network of docs/examples/digits.ini on handwritten digits (they are in this
# repository) with one server and two workers, first in lockstep (sync), then without (async). At the
# end it compares strategies on the same job, which takes about 20 s on two cores.
# Needs root or sudo if packages are missing. Can be started again, from any folder.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

scripts/install-deps.sh

echo "[quickstart] building"
scripts/configure.sh
cmake --build --preset release --target pushpull pushpull-server pushpull-worker

for strategy in sync async; do
  echo
  echo "[quickstart] convnet on digits, 1 server, 2 workers, $strategy"
  build/release/bin/pushpull run --job docs/examples/digits.ini --servers 1 --workers 2 \
    --strategy "$strategy" --out "out/quickstart-$strategy"
done

echo
echo "[quickstart] the same job under several strategies, side by side"
build/release/bin/pushpull compare --job docs/examples/digits.ini --epochs 20 --strategies sync,async,ssp:2,local:8,allreduce:ring \
  --workers 1,2 --seeds 3 --target-accuracy 0.97 --out out/quickstart-compare

echo
echo "[quickstart] done; weights, metrics and summaries are in out/quickstart-sync and out/quickstart-async"
echo "[quickstart] the report of the comparison is out/quickstart-compare/report.html; open it in a browser"
