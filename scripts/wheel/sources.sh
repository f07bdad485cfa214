#!/usr/bin/env bash
# Downloads Debian's source packages of libraries that the wheel compiles (cmake/Bundle.cmake says why) into FOLDER,
# as FOLDER/protobuf and FOLDER/zeromq3, with Debian's patches. Does nothing if they are there. Needs no root: apt
# gets a list of source packages of its own, made of the machine's list of binary packages.
#   scripts/wheel/sources.sh FOLDER
set -euo pipefail
[ $# -eq 1 ] || { sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2; }
mkdir -p "$1"
folder=$(readlink -f "$1")
work=$folder/apt
packages=()
for package in protobuf zeromq3; do
  [ -d "$folder/$package" ] || packages+=("$package")
done
[ ${#packages[@]} -gt 0 ] || exit 0

fail() {
  tail -n 20 "$work/log" >&2
  echo "[wheel] $*" >&2
  exit 1
}

rm -rf "$work"
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/sources"
# Each archive that this machine installs Debian's packages from also has their sources.
keys=/usr/share/keyrings/debian-archive-keyring.gpg
signed=
[ ! -f $keys ] || signed="[signed-by=$keys] "
apt-get indextargets --format "deb-src $signed\$(SITE) \$(RELEASE) \$(COMPONENT)" 'Created-By: Packages' 'Origin: Debian' |
  sort -u >"$work/sources.list"
: >"$work/log"
[ -s "$work/sources.list" ] || fail "apt knows no archive of Debian; run apt-get update as root and try again"
options=(-o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=/dev/null -o "Dir::State::Lists=$work/lists"
  -o "Dir::Cache=$work/cache" -o APT::Sandbox::User= -o Acquire::Retries=3 -o Acquire::Languages=none)
apt-get "${options[@]}" update >>"$work/log" 2>&1 || fail "apt-get update failed for $(tr '\n' ';' <"$work/sources.list")"
for package in "${packages[@]}"; do
  (cd "$work/sources" && apt-get "${options[@]}" source "$package") >>"$work/log" 2>&1 ||
    fail "apt-get source $package failed; the archives need source packages: $(tr '\n' ';' <"$work/sources.list")"
  unpacked=$(find "$work/sources" -mindepth 1 -maxdepth 1 -type d)
  mv "$unpacked" "$folder/$package"
  echo "[wheel] $package: source of $(cd "$work/sources" && echo "$package"_*.dsc)"
done
rm -rf "$work"
