#!/usr/bin/env bash
# Packs a finished build for machines where nothing is installed and users are not root: the programs,
# the tests and benchmarks that need a GPU, the digits, and the shared libraries that a bare machine
# lacks, which the programs find relative to their own folder. glibc, the NVIDIA driver, cuBLAS and
# cuDNN come from that machine.
#   scripts/package.sh [--build DIR] [OUT]
#     --build DIR  a finished build (build/release)
#     OUT          the package: OUT.tar.gz or OUT.tar.zst (pushpull-VERSION-COMMIT.tar.gz here)
set -euo pipefail
here=$(pwd)
cd "$(dirname "$(readlink -f "$0")")/.."

fail() {
  echo "[package] $*" >&2
  exit 1
}

readonly max_bytes=$((60 << 20))
# Not packed: glibc must match the machine's loader; the others belong to its driver or toolkit.
readonly machines='^(linux-vdso|ld-linux.*|lib(c|m|mvec|dl|rt|pthread|resolv|util|anl|nsl|nss_.*|cuda|cudart|cublas|cublasLt|cudnn.*|nvidia-.*))\.so'

build=build/release
out=
while [ $# -gt 0 ]; do
  case $1 in
    --build) [ $# -gt 1 ] || fail "--build lacks a folder"; build=$(cd "$here" && readlink -f "$2"); shift ;;
    -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) echo "[package] unknown option $1; see scripts/package.sh --help" >&2; exit 2 ;;
    *) out=$1 ;;
  esac
  shift
done
[ -x "$build/bin/pushpull" ] || fail "$build has no programs; build them first: cmake --preset release && cmake --build --preset release"

version=$("$build/bin/pushpull" --version | awk '{print $2}')
commit=$(sed -n 's/.*"\([0-9a-f-]*\(dirty\)\{0,1\}\)".*/\1/p' "$build/cli/commit.cpp" | head -n 1)
name=pushpull-$version${commit:+-$commit}
[ -n "$out" ] || out=$name.tar.gz
case $out in
  /*) ;;
  *) out=$here/$out ;;
esac
case $out in
  *.tar.gz) pack=(gzip) ;;
  *.tar.zst) pack=(zstd -q -19 -T0) ;;
  *) fail "$out: a package ends with .tar.gz or .tar.zst" ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
stage=$work/$name
cmake --install "$build" --prefix "$stage" --strip >/dev/null
cmake --install "$build" --prefix "$stage" --strip --component tests >/dev/null
cp -r scripts/gpu-check.sh scripts/gpu_check "$stage/"

# libraries_of FILE...: prints "NAME PATH" of every shared library that the files need, directly or not.
libraries_of() {
  local file
  for file in "$@"; do
    ldd "$file" | awk '$2 == "=>" {print $1, ($3 == "not" ? "missing" : $3)}'
  done | sort -u
}
mapfile -t programs < <(find "$stage" -type f -exec sh -c \
  'for f; do head -c 4 "$f" | grep -q ELF && echo "$f"; done' sh {} +)
libraries=$stage/lib/pushpull
licences=$stage/share/doc/pushpull/licences
mkdir -p "$libraries" "$licences"
while read -r library path; do
  [[ ! $library =~ $machines ]] || continue
  [ "$path" != missing ] || fail "$library is not on this machine"
  cp -L "$path" "$libraries/$library"
  chmod 644 "$libraries/$library"
  strip --strip-unneeded "$libraries/$library"
  # Searches by file name: the loader reports /lib where the package has /usr/lib, or the other way round.
  owner=$(dpkg-query --search "*/$(basename "$(readlink -f "$path")")" 2>/dev/null | head -n 1 | cut -d: -f1) || owner=
  if [ -n "$owner" ]; then
    echo "$library $owner $(dpkg-query --show --showformat '${Version} ' "$owner" | cut -d' ' -f1)"
    cp -L "/usr/share/doc/$owner/copyright" "$licences/$owner" 2>/dev/null || true
  else
    echo "$library"
  fi
done < <(libraries_of "${programs[@]}") >"$work/libraries"

glibc=$(objdump -T "${programs[@]}" "$libraries"/* 2>/dev/null | grep -o 'GLIBC_2\.[0-9]*' |
  sort -u -V | tail -n 1)
{
  echo "pushpull $version, commit ${commit:-unknown}"
  echo "needs: x86-64 Linux, glibc ${glibc#GLIBC_}"
  echo "libraries, with the Debian packages that they are of (their licences: share/doc/pushpull/licences):"
  sed 's/^/  /' "$work/libraries"
} >"$stage/PACKAGE"

tar -C "$work" --owner=0 --group=0 --sort=name -cf - "$name" | "${pack[@]}" >"$out"
bytes=$(stat -c %s "$out")
echo "[package] $out: $((bytes >> 20)) MiB, unpacked $(du -sm "$stage" | cut -f1) MiB, needs glibc ${glibc#GLIBC_}"
[ "$bytes" -le "$max_bytes" ] || fail "that is more than $((max_bytes >> 20)) MiB"
