#!/usr/bin/env bash
# Installs the Debian packages that pushpull is built from. Does nothing if all are installed.
# The CUDA toolkit is optional and not among them: CMake finds an installed one (docs/gpu.md).
#   scripts/install-deps.sh [--tests] [--all-tests] [--tidy] [--package] [--wheel]
#     --tests    also the packages for scripts/test.sh: python3-torch as the reference, clang-format, and
#                mold, a faster linker
#     --all-tests  also those for scripts/test.sh --all: chromium, which opens the report of a comparison;
#                tools for labs of hosts; spin, which checks the model of a protocol; man-db, which checks man
#                pages; Slurm and Open MPI, which start jobs over several nodes
#     --tidy     also clang-tidy, which only `scripts/test.sh --tidy` runs
#     --package  also the packages that scripts/package.sh --deb and scripts/package/check.py need
#     --wheel    also the packages that scripts/wheel.sh needs, to unpack sources and to link libsodium
set -euo pipefail

packages=(
  g++ cmake ninja-build pkg-config git ca-certificates
  libzmq3-dev cppzmq-dev libprotobuf-dev protobuf-compiler libboost-program-options-dev
  nlohmann-json3-dev zlib1g-dev libssl-dev libdnnl-dev
  libjs-chart.js  # the charts of reports; it becomes part of the program
  libgloo-dev  # optional: without it the strategy allreduce:gloo is not available
  libpng-dev libjpeg-dev  # optional: without them the data set folder is not available
  libgtest-dev libgmock-dev libbenchmark-dev
)
tests=(python3 python3-torch clang-format-14 mold)
for option in "$@"; do
  case $option in
    --tests) packages+=("${tests[@]}") ;;
    --all-tests) packages+=("${tests[@]}" chromium iproute2 nftables spin man-db munge slurmctld slurmd slurm-client openmpi-bin) ;;
    --tidy) packages+=(clang-tidy) ;;
    --package) packages+=(dpkg-dev debootstrap lintian) ;;
    --wheel) packages+=(python3 dpkg-dev libsodium-dev) ;;
    -h | --help) sed -n '2,14s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "[deps] unknown option $option; known: --tests, --all-tests, --tidy, --package, --wheel" >&2; exit 2 ;;
  esac
done

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "[deps] this is not a Debian-based system; install these packages yourself: ${packages[*]}" >&2
  exit 1
fi

missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query --show --showformat '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$state" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
  echo "[deps] all ${#packages[@]} packages are installed"
  exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || {
    echo "[deps] run this as root, or install sudo; missing: ${missing[*]}" >&2
    exit 1
  }
  as_root=(sudo)
fi

# Shows apt's output only if it fails; the whole log then explains why.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 "$@" \
    >"$log" 2>&1 || {
    tail -n 20 "$log" >&2
    echo "[deps] apt-get $1 failed" >&2
    exit 1
  }
}

echo "[deps] installing ${#missing[@]} packages: ${missing[*]}"
apt update
apt install -y --no-install-recommends "${missing[@]}"
echo "[deps] done"
