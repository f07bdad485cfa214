#!/usr/bin/env bash
# Writes the man pages and the completion of shells, which the programs make from their tables of options. CMake calls
# it after building the programs.
#   scripts/manual.sh BIN OUT
#     BIN  folder of the programs
#     OUT  gets man/man1, man/man5, bash, zsh and fish
set -euo pipefail
[ $# -eq 2 ] || { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
bin=$1
out=$2
rm -rf "$out"
mkdir -p "$out/man/man1" "$out/man/man5" "$out/bash" "$out/zsh" "$out/fish"

for program in pushpull pushpull-server pushpull-worker pushpull-proxy; do
  "$bin/$program" --help-as man >"$out/man/man1/$program.1"
  "$bin/$program" --help-as bash >"$out/bash/$program"
  "$bin/$program" --help-as zsh >"$out/zsh/_$program"
  "$bin/$program" --help-as fish >"$out/fish/$program.fish"
done
"$bin/pushpull" --help-as job >"$out/man/man5/pushpull-job.5"
for command in $("$bin/pushpull" --help-as commands); do
  "$bin/pushpull" "$command" --help-as man >"$out/man/man1/pushpull-$command.1"
done
gzip -9n "$out"/man/man*/*
