#!/usr/bin/env python3
"""Checks that each header and each source compiles by itself, without precompiled headers and unity builds.

    scripts/each_alone.py [--only PATTERN] [--changed]

Configures the preset `headers` and writes its generated sources. Every command of its compile_commands.json runs with
-fsyntax-only, as many at once as there are cores. CMake's header sets add a source for each header. --changed takes the
files that differ from the last commit or that the newest commits have touched, the newest first, ten at most. Prints the
compiler's errors and ends with 1 if a file fails.
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

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "headers"
SOURCES = re.compile(r"[.](h|cpp)$")
MOST = 10  # about a quarter of a minute on two cores
COMMITS = 10


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


def git(*words):
    return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True).stdout.splitlines()


def changed():
    """Returns the changed sources as paths from the root, the newest first. Empty where git has no history."""
    files = git("diff", "--name-only", "HEAD") + git("log", f"-{COMMITS}", "--name-only", "--format=")
    return [file for file in dict.fromkeys(files) if SOURCES.search(file) and (ROOT / file).exists()]


def source_of(entry):
    """Returns the file of the tree that a command checks, as a path from the root, or None for generated code."""
    path = pathlib.Path(entry["file"])
    if not path.is_relative_to(BUILD):
        return str(path.relative_to(ROOT))
    header = re.search(r"_verify_interface_header_sets/(.*)[.]cxx$", str(path))
    return header and header.group(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="a regular expression of the files to check")
    parser.add_argument("--changed", action="store_true", help="only files that changed lately")
    options = parser.parse_args()
    for words in (["--preset", "headers"], ["--build", "--preset", "headers"]):
        subprocess.run(["cmake", *words], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    entries = {}
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        source = source_of(entry)
        if source and re.search(options.only, source):
            entries.setdefault(source, entry)
    if options.changed:
        newest = [file for file in changed() if file in entries]
        entries = {file: entries[file] for file in newest[:MOST]}
        if len(newest) > MOST:
            print(f"[headers] {len(newest) - MOST} older changes are left to scripts/test.sh --headers")
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for file, code, errors in pool.map(check, entries.values()):
            if code != 0:
                failed += 1
                print(f"[headers] {file} does not compile alone:\n{errors}", flush=True)
    print(f"[headers] {len(entries)} files, {failed} do not compile alone")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
