#!/usr/bin/env python3
"""Checks that each header and each source compiles by itself, without precompiled headers and unity builds.

    scripts/each_alone.py BUILD_FOLDER [--only PATTERN]

BUILD_FOLDER is configured with the preset `headers`, and its generated sources are built. Every command of its
compile_commands.json runs with -fsyntax-only, as many at once as there are cores. CMake's header sets add a source
for each header. Prints the compiler's errors and ends with 1 if a file fails.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys


def syntax_only(command):
    """Returns the command without its output file."""
    words = shlex.split(command)
    kept, skip = [], False
    for word in words:
        if skip:
            skip = False
        elif word == "-o":
            skip = True
        elif word != "-c":
            kept.append(word)
    return [*kept, "-fsyntax-only"]


def check(entry):
    done = subprocess.run(syntax_only(entry["command"]), cwd=entry["directory"], capture_output=True, text=True)
    return entry["file"], done.returncode, done.stderr


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--only", default="", help="a regular expression of the files to check")
    options = parser.parse_args()
    entries = json.loads((options.build / "compile_commands.json").read_text())
    # other sources in the build folder are generated
    build = str(options.build.resolve())
    entries = [entry for entry in entries if re.search(options.only, entry["file"]) and
               (not entry["file"].startswith(build) or "_verify_interface_header_sets" in entry["file"])]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for file, code, errors in pool.map(check, entries):
            if code != 0:
                failed += 1
                print(f"[headers] {file} does not compile alone:\n{errors}", flush=True)
    print(f"[headers] {len(entries)} files, {failed} do not compile alone")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
