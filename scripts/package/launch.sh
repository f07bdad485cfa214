#!/bin/sh
# Starts the program of this name that a package of pushpull brings, with the loader and the C library of the package
# instead of the host's. scripts/package.sh copies this file for each program into the package's bin, and the wheel also
# into the bin of a Python environment, or of the folder that `pip install --target` was given.
#
# The loader is executed by a name of its own for each program, so that ps(1) and top(1) show that name. Its option
# names the libraries, not a variable: commands that the program starts get the host's libraries. The folders of the
# user's LD_LIBRARY_PATH, such as CUDA's, come after the package's.
self=$(readlink -f "$0")
root=${self%/*/*}
name=${self##*/}
for package in "$root" "$root/pushpull/_programs" "$root"/lib*/*/*-packages/pushpull/_programs; do
  libraries=$package/lib/pushpull
  [ ! -x "$libraries/loader/$name" ] ||
    exec "$libraries/loader/$name" --argv0 "$0" --library-path "$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" \
      "$package/libexec/$name" "$@"
done
echo "[pushpull] $root has no package of pushpull that brings $name; install the package or the wheel again" >&2
exit 2
