#!/bin/sh
# Starts the program of this name that a package of pushpull brings, with the loader and the C library of the package
# instead of the host's. scripts/package.sh copies this file for each program.
#
# The loader is executed by a name of its own for each program, so that ps(1) and top(1) show that name. Its option
# names the libraries, not a variable: commands that the program starts get the host's libraries. The folders of the
# user's LD_LIBRARY_PATH, such as CUDA's, come after the package's.
self=$(readlink -f "$0")
package=${self%/*/*}
name=${self##*/}
libraries=$package/lib/pushpull
exec "$libraries/loader/$name" --argv0 "$0" --library-path "$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" \
  "$package/libexec/$name" "$@"
