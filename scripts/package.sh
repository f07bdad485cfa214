#!/usr/bin/env bash
# Packs a finished build for machines where nothing is installed and users are not root: the programs,
# the tests and benchmarks that need a GPU, the digits, and all shared libraries, with the C library and
# its loader (scripts/package/launch.sh). The NVIDIA driver, cuBLAS and cuDNN come from that machine.
#   scripts/package.sh [--build DIR] [--no-gpu-check] [--deb FOLDER] [OUT]
#     --build DIR   a finished build (build/release)
#     --no-gpu-check  without gpu-check.sh, and the tests and benchmarks that it runs
#     --deb FOLDER  also writes pushpull_VERSION_amd64.deb and libpushpull-dev_VERSION_amd64.deb there
#     OUT           the package: OUT.tar.gz or OUT.tar.zst (pushpull-VERSION-COMMIT.tar.gz here)
set -euo pipefail
here=$(pwd)
cd "$(dirname "$(readlink -f "$0")")/.."

fail() {
  echo "[package] $*" >&2
  exit 1
}

readonly max_bytes=$((80 << 20))
# Not packed: these belong to the machine's driver or toolkit.
readonly machines='^(linux-vdso|lib(cuda|cudart|cublas|cublasLt|cudnn.*|nvidia-.*))\.so'
# Parts of glibc that a library of the machine may need, such as its driver's. All must be of one version.
readonly glibc=(libc.so.6 libm.so.6 libmvec.so.1 libpthread.so.0 libdl.so.2 librt.so.1 libutil.so.1 libresolv.so.2
  libanl.so.1 libnsl.so.1 libnss_files.so.2 libnss_dns.so.2 libnss_compat.so.2)
readonly loader=ld-linux-x86-64.so.2

build=build/release
out=
deb=
gpu_check=1
while [ $# -gt 0 ]; do
  case $1 in
    --build) [ $# -gt 1 ] || fail "--build lacks a folder"; build=$(cd "$here" && readlink -f "$2"); shift ;;
    --deb) [ $# -gt 1 ] || fail "--deb lacks a folder"; deb=$(cd "$here" && readlink -m "$2"); shift ;;
    --no-gpu-check) gpu_check= ;;
    -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
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

mkdir -p "$(dirname "$out")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
stage=$work/$name
cmake --install "$build" --prefix "$stage" --strip >/dev/null
if [ -n "$gpu_check" ]; then
  cmake --install "$build" --prefix "$stage" --strip --component tests >/dev/null
  cp scripts/gpu-check.sh "$stage/"
fi

# Puts the package's launcher in the place of each program.
libraries=$stage/lib/pushpull
mkdir -p "$libraries/loader" "$stage/libexec"
programs=()
for file in "$stage"/bin/* "$stage"/tests/* "$stage"/bench/*; do
  if [ ! -f "$file" ] || ! head -c 4 "$file" | grep -q ELF; then continue; fi
  program=${file##*/}
  [ ! -e "$stage/libexec/$program" ] || fail "two programs are named $program"
  mv "$file" "$stage/libexec/$program"
  cp scripts/package/launch.sh "$file"
  programs+=("$stage/libexec/$program")
done

# libraries_of FILE...: prints "NAME PATH" of every shared library that the files need, directly or not.
libraries_of() {
  local file
  for file in "$@"; do
    ldd "$file" | awk '$2 == "=>" {print $1, ($3 == "not" ? "missing" : $3)}'
  done | sort -u
}
licences=$stage/share/doc/pushpull/licences
mkdir -p "$licences"
c_library=$(ldd "${programs[0]}" | awk '$1 == "libc.so.6" {print $3}')
system=$(dirname "$(readlink -f "$c_library")")
while read -r library path; do
  [[ ! $library =~ $machines ]] || continue
  [ "$path" != missing ] || fail "$library is not on this machine"
  cp -L "$path" "$libraries/$library"
  chmod 644 "$libraries/$library"
  [[ " $loader ${glibc[*]} " == *" $library "* ]] || strip --strip-unneeded "$libraries/$library"
  # The loader reports /lib where the package has /usr/lib, or the other way round.
  real=$(readlink -f "$path")
  owner=$({ dpkg-query --search "$real" "/usr$real" "${real#/usr}" 2>/dev/null || true; } | head -n 1 | cut -d: -f1)
  if [ -n "$owner" ]; then
    echo "$library $owner $(dpkg-query --show --showformat '${Version} ' "$owner" | cut -d' ' -f1)"
    cp -L "/usr/share/doc/$owner/copyright" "$licences/$owner" 2>/dev/null || true
  else
    echo "$library"
  fi
done < <({
  libraries_of "${programs[@]}"
  for library in "$loader" "${glibc[@]}"; do echo "$library $system/$library"; done
} | sort -u -k 1,1) >"$work/libraries"
chmod 755 "$libraries/$loader"
# Hard links: the name of the executed file tells a program where the package is.
for program in "${programs[@]}"; do ln "$libraries/$loader" "$libraries/loader/${program##*/}"; done

{
  echo "pushpull $version, commit ${commit:-unknown}"
  echo "needs: x86-64 Linux 3.17 or newer, a shell"
  echo "libraries, with the Debian packages that they are of (their licences: share/doc/pushpull/licences):"
  sed 's/^/  /' "$work/libraries"
} >"$stage/PACKAGE"

tar -C "$work" --owner=0 --group=0 --sort=name -cf - "$name" | "${pack[@]}" >"$out"
bytes=$(stat -c %s "$out")
echo "[package] $out: $((bytes >> 20)) MiB, unpacked $(du -sm "$stage" | cut -f1) MiB"
[ "$bytes" -le "$max_bytes" ] || fail "that is more than $((max_bytes >> 20)) MiB"

[ -n "$deb" ] || exit 0
ldd "${programs[@]}" | grep -q 'libcublas' && fail "no .deb: this build uses CUDA, which is no Debian package; build the preset cpu, and give --build build/cpu"
command -v dpkg-shlibdeps >/dev/null || fail "no .deb: dpkg-shlibdeps is missing; scripts/install-deps.sh --package"
cpack -G DEB --config "$build/CPackConfig.cmake" -B "$work/deb" >"$work/cpack.log" 2>&1 || { tail -n 20 "$work/cpack.log" >&2; fail "cpack failed"; }
mkdir -p "$deb"
for file in "$work"/deb/*.deb; do
  mv "$file" "$deb/"
  echo "[package] $deb/${file##*/}: $(($(stat -c %s "$deb/${file##*/}") >> 10)) KiB"
done
