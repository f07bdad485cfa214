#!/usr/bin/env python3
"""Checks whether two revisions differ only in comments: the proof for a commit that changes no code.

    scripts/same_code.py OLD [NEW] [--messages] [--tests] [--path PATH]...

OLD, NEW    revisions; without NEW the work tree.
--messages  text between double quotes may differ too; each difference is printed.
--tests     names in TEST, TEST_F and TEST_P may differ too; each difference is printed.

Compares C++, CUDA, .proto, Python and shell files as streams of tokens, so that a comment, a docstring or a line
break that moves is no difference. Ends with 1 and the first differing line of each file that has other code.
"""
import argparse
import io
import pathlib
import re
import subprocess
import sys
import tokenize

C_LIKE = {".cpp", ".h", ".cu", ".cuh", ".proto"}
C_TOKEN = re.compile(
    r"""(?P<comment>//(?:[^\n\\]|\\.)*|/\*.*?\*/)
      |(?P<raw>R"(?P<tag>[^()\s]*)\(.*?\)(?P=tag)")
      |(?P<text>"(?:[^"\\\n]|\\.)*")
      |(?P<char>(?<![0-9A-Fa-f])'(?:[^'\\\n]|\\.)+')
      |(?P<word>[A-Za-z_0-9.']+)
      |(?P<space>\s+)
      |(?P<other>.)""",
    re.S | re.X)
TEST_NAME = {"TEST", "TEST_F", "TEST_P", "TYPED_TEST"}


def c_tokens(text):
    """Returns a list of (kind, token, line) without comments. Adjacent string literals are one token."""
    out, line = [], 1
    for match in C_TOKEN.finditer(text):
        kind, token = match.lastgroup, match.group()
        if kind == "tag":
            kind = "raw"
        if kind not in ("comment", "space"):
            if kind == "text" and out and out[-1][0] == "text":
                out[-1] = ("text", out[-1][1][:-1] + token[1:], out[-1][2])
            else:
                out.append((kind, token, line))
        line += token.count("\n")
    return out


def python_tokens(text):
    """Does the same for Python. A docstring (a statement of one string) counts as a comment."""
    skip = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENCODING, tokenize.ENDMARKER}
    out, first = [], True
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
            first = True
        if token.type in skip:
            continue
        docstring = first and token.type == tokenize.STRING
        if token.type not in (tokenize.INDENT, tokenize.DEDENT):
            first = False
        if docstring:
            continue
        kind = "text" if token.type == tokenize.STRING else "word"
        value = "" if token.type in (tokenize.INDENT, tokenize.DEDENT) else token.string
        if kind == "text" and out and out[-1][0] == "text":
            out[-1] = ("text", out[-1][1] + value, out[-1][2])
        else:
            out.append((kind, tokenize.tok_name[token.type] if not value else value, token.start[0]))
    return out


def shell_tokens(text):
    """Returns the lines without comments: whole lines, and text behind two spaces and a #."""
    lines = enumerate(text.splitlines(), 1)
    kept = ((re.sub(r"\s\s#\s.*$", "", line).strip(), number) for number, line in lines)
    return [("word", line, number) for line, number in kept
            if line and (not line.startswith("#") or line.startswith("#!"))]


def tokens_of(path, text):
    suffix = pathlib.Path(path).suffix
    if suffix in C_LIKE:
        return c_tokens(text)
    return python_tokens(text) if suffix == ".py" else shell_tokens(text)


def git(*words):
    return subprocess.run(("git", *words), check=True, capture_output=True, text=True).stdout


def text_at(revision, path):
    if revision is None:
        file = pathlib.Path(path)
        return file.read_text() if file.exists() else ""
    done = subprocess.run(("git", "show", f"{revision}:{path}"), capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else ""


def compare(path, old, new, messages, tests):
    """Returns (the differences that are allowed, the first difference that is not, or None)."""
    before, after = tokens_of(path, old), tokens_of(path, new)
    allowed = []
    for index, (one, two) in enumerate(zip(before, after)):
        if one[:2] == two[:2]:
            continue
        if messages and one[0] == two[0] and one[0] in ("text", "raw"):
            allowed.append(f"{path}:{two[2]}: {one[1]} -> {two[1]}")
        elif tests and index >= 4 and before[index - 4][1] in TEST_NAME and one[0] == two[0] == "word":
            allowed.append(f"{path}:{two[2]}: {one[1]} -> {two[1]}")
        else:
            return allowed, f"{path}:{two[2]}: {one[1]} -> {two[1]}"
    if len(before) != len(after):
        rest = (before + after)[min(len(before), len(after)):]
        return allowed, f"{path}: {len(before)} tokens -> {len(after)}, from {rest[0][1]}"
    return allowed, None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new", nargs="?")
    parser.add_argument("--messages", action="store_true")
    parser.add_argument("--tests", action="store_true")
    parser.add_argument("--path", action="append", default=[], help="only what lies under it; may be repeated")
    options = parser.parse_args()
    revisions = [options.old] + ([options.new] if options.new else [])
    changed = git("diff", "--name-only", "--no-renames", *revisions, "--", *options.path).split()
    code = [path for path in changed if pathlib.Path(path).suffix in C_LIKE | {".py", ".sh"}]
    wrong = 0
    for path in code:
        allowed, difference = compare(path, text_at(options.old, path), text_at(options.new, path),
                                      options.messages, options.tests)
        for line in allowed:
            print(line)
        if difference:
            print(f"OTHER CODE {difference}")
            wrong += 1
    print(f"{len(code)} files of code differ, {wrong} in more than words")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
