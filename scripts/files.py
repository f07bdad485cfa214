#!/usr/bin/env python3
"""Prints a description of the files in a folder: each file that git tracks, with the first sentence of its header
comment.

  scripts/files.py [FOLDER...]      default: all folders

A .cpp or .cu without a comment is listed with its header. For a test without a comment, prints the header that it
tests.
"""

import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CPP = (".h", ".cpp", ".cu", ".cuh", ".proto")
SOURCES = (*CPP, ".py", ".sh")
NOT_OURS = {"build", "out", ".git", ".cache", "__pycache__"}


def kept_files(root=ROOT):
    """Returns the paths of all tracked files relative to the root, or of all files without git."""
    git = subprocess.run(["git", "-C", root, "ls-files", "-z"], capture_output=True, check=False)
    names = [name for name in git.stdout.decode().split("\0") if name]
    if git.returncode != 0 or not names:
        for folder, folders, files in os.walk(root):
            folders[:] = [f for f in folders if f not in NOT_OURS]
            names += [os.path.relpath(os.path.join(folder, f), root) for f in files]
    return {name for name in names if (pathlib.Path(root) / name).is_file()}


def header_comment(name, text):
    """Returns the comment at the start of a file, on one line; "" if there is none."""
    lines = text.splitlines()
    if name.endswith(".py"):
        found = re.match(r'(?:#![^\n]*\n)?\s*"""(.*?)"""', text, re.DOTALL)
        return " ".join(found.group(1).split("\n\n")[0].split()) if found else ""
    mark = "#" if name.endswith(".sh") else "//"
    if lines and lines[0].startswith("#!"):
        lines = lines[1:]
    comment = []
    for line in lines:
        if not line.startswith(mark):
            break
        body = line[len(mark):]
        if not body.strip() or body.startswith("  "):  # a new paragraph or a list
            break
        comment.append(body.strip())
    return " ".join(comment)


def first_sentence(comment):
    """Returns the text up to the first full stop before a new sentence, which begins with a capital letter or a quoted
    name."""
    found = re.match(r"(.+?[.!?])(?:\)|\")?(?= [A-Z`(\"]|$)", comment)
    return found.group(0) if found else comment


def sentence_of(name, files, read):
    """Returns the first sentence of the file's header comment; for a test without one, the header that it tests."""
    text = read(name)
    sentence = first_sentence(header_comment(name, text))
    if sentence or not name.endswith("_test.cpp"):
        return sentence
    included = [path for path in re.findall(r'^#include "([^"]+)"', text, re.MULTILINE) if path in files]
    stem = re.sub(r"_test$", "", pathlib.PurePath(name).stem)
    own = [path for path in included if pathlib.PurePath(path).stem == stem] or included
    return f"Tests {own[0]}." if own else ""


def rows(folder, files, read):
    """Returns (names, sentence) of each file directly in the folder. A header and its .cpp are one row."""
    found = []
    here = sorted(f for f in files if os.path.dirname(f) == folder and f.endswith(SOURCES))
    for name in here:
        base, extension = os.path.splitext(name)
        if extension != ".h" and base + ".h" in files and not header_comment(name, read(name)):
            continue  # listed with its header
        twins = [e for e in (".cpp", ".cu") if extension == ".h" and base + e in files
                 and not header_comment(base + e, read(base + e))]
        shown = os.path.basename(base) + "." + ",".join([extension[1:], *(e[1:] for e in twins)])
        found.append((re.sub(r"\.([^.]*,.*)$", r".{\1}", shown), sentence_of(name, files, read)))
    return found


def folders_of(files):
    """Returns every folder with sources."""
    return sorted({os.path.dirname(f) for f in files if f.endswith(SOURCES)})


def main(words):
    files = kept_files()

    def read(name):
        return (ROOT / name).read_text(encoding="utf-8", errors="replace")

    folders = folders_of(files)
    if words:
        asked = [os.path.relpath(os.path.abspath(word), ROOT) for word in words]
        folders = [f for f in folders if any(f == a or f.startswith(a + "/") for a in asked)]
        if not folders:
            sys.exit(f"[files] no sources in {' '.join(words)}")
    for folder in folders:
        found = rows(folder, files, read)
        width = max(len(name) for name, _ in found)
        print(f"{folder or '.'}/")
        for name, sentence in found:
            print(f"  {name:{width}}  {sentence}".rstrip())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
