#!/usr/bin/env python3
"""The pages about the code name what is there: every source file stands once in the table "Where is
what" of ARCHITECTURE.md, every file named there exists, and no link of any page leads nowhere."""

import itertools
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = "ARCHITECTURE.md"
HEADING = "## Where is what"
SOURCES = (".h", ".cpp", ".cu", ".cuh", ".proto", ".py", ".sh")
NOT_OURS = {"build", "out", ".git", ".cache", "__pycache__"}


def kept_files():
    """Paths from the root of what git keeps; of all files where there is no git."""
    git = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], capture_output=True, check=False)
    names = [name for name in git.stdout.decode().split("\0") if name]
    if git.returncode != 0 or not names:
        for folder, folders, files in os.walk(ROOT):
            folders[:] = [f for f in folders if f not in NOT_OURS]
            names += [os.path.relpath(os.path.join(folder, f), ROOT) for f in files]
    return {name for name in names if (ROOT / name).is_file()}


def expand(pattern):
    """ps/shard.{h,cpp} -> ps/engine/shard.h, ps/engine/shard.cpp; several braces give all combinations."""
    pieces = re.split(r"\{([^{}]*)\}", pattern)
    choices = [p.split(",") if i % 2 else [p] for i, p in enumerate(pieces)]
    return ["".join(parts) for parts in itertools.product(*choices)]


def named_files(page):
    """Files in the first column of the tables below the heading, in order."""
    if HEADING not in page:
        return []
    section = page.split(HEADING, 1)[1].split("\n## ", 1)[0]
    cells = re.findall(r"^\| *(`[^|]*`) *\|", section, re.MULTILINE)
    return [file for cell in cells for name in re.findall(r"`([^`]+)`", cell) for file in expand(name)]


def table_mistakes(page, files):
    named = named_files(page)
    sources = {f for f in files if f.endswith(SOURCES)}
    mistakes = [f"{PAGE} lacks {f}: add a line to \"Where is what\"" for f in sorted(sources - set(named))]
    mistakes += [f"{PAGE} names {f}, which does not exist" for f in sorted(set(named) - files)]
    mistakes += [f"{PAGE} names {f} twice" for f in sorted({f for f in named if named.count(f) > 1})]
    return mistakes


def anchors(page):
    """The names that GitHub gives to a page's headings."""
    lines = re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ +(.*)$", lines, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def link_mistakes(name, page, read):
    """Links of the page to files or headings that are not there. read: path -> text, None: no file."""
    mistakes = []
    text = re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", link):
            continue  # needs the network
        path, _, anchor = link.partition("#")
        target = os.path.normpath(os.path.join(os.path.dirname(name), path)) if path else name
        content = page if target == name else read(target)
        if content is None:
            mistakes.append(f"{name}: the link {link} leads nowhere")
        elif anchor and anchor not in anchors(content):
            mistakes.append(f"{name}: {target} has no heading for {link}")
    return mistakes


def check_the_check():
    page = f"# A b: `c`\n{HEADING}\n| `ps/a.{{h,cpp}}` | x |\n| `b.sh` | y |\n## Next\n| `no.h` | z |\n"
    assert named_files(page) == ["ps/a.h", "ps/a.cpp", "b.sh"]
    assert table_mistakes(page, {"ps/a.h", "ps/a.cpp", "b.sh", "README.md"}) == []
    assert len(table_mistakes(page, {"ps/a.h", "ps/a.cpp", "b.sh", "c.py"})) == 1
    assert len(table_mistakes(page, {"ps/a.h", "b.sh"})) == 1
    assert len(table_mistakes(page + page.split(HEADING)[1], {"ps/a.h", "ps/a.cpp", "b.sh"})) == 0
    assert len(table_mistakes("no heading", {"b.sh"})) == 1
    texts = {"docs/a.md": "# Two words"}
    assert link_mistakes("x.md", "[a](docs/a.md#two-words) [b](https://c) [d](#e-f)\n# E f", texts.get) == []
    assert len(link_mistakes("docs/b.md", "[a](c.md) [b](a.md#three) [c](a.md)", texts.get)) == 2
    assert anchors(page) == {"a-b-c", "where-is-what", "next"}


def main():
    check_the_check()
    files = kept_files()
    if len([f for f in files if f.endswith(SOURCES)]) < 20:
        sys.exit("the sources were not found")

    def read(path):
        if (ROOT / path).is_file():
            return (ROOT / path).read_text(encoding="utf-8", errors="replace")
        return "" if (ROOT / path).is_dir() else None

    mistakes = table_mistakes(read(PAGE) or "", files)
    for name in sorted(f for f in files if f.endswith(".md")):
        mistakes += link_mistakes(name, read(name), read)
    for mistake in mistakes:
        print(mistake)
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main())
