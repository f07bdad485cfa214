#!/usr/bin/env bash
# Checks that clang-format 14 (Debian 12) would change no source file. Exit code 77 (skipped) with another
# version, which formats differently.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

formatter=
for name in clang-format-14 clang-format; do
  case $("$name" --version 2>/dev/null || true) in
    *"version 14."*) formatter=$name; break ;;
  esac
done
if [ -z "$formatter" ]; then
  echo "skipped: no clang-format 14 here (scripts/install-deps.sh --tests installs it)"
  exit 77
fi

mapfile -d '' files < <(find bench cli common datasets models ps tests worker \
  \( -name '*.cpp' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \) -print0)
[ ${#files[@]} -gt 0 ] || { echo "no source files below $PWD" >&2; exit 1; }
"$formatter" --dry-run -Werror "${files[@]}"
echo "${#files[@]} files are formatted"
