#!/usr/bin/env python3
"""Tests that the pages match the code, and that each file describes itself.

Each folder with sources has one row in the table "Where is what" of ARCHITECTURE.md, and the table has no other
rows. Each file begins with a comment that describes it (scripts/files.py prints these). Paths in
backticks exist, links lead to existing files and headings, and scripts are executable. docs/protocol.md lists
exactly the reasons for which messages are refused.
"""

import fnmatch
import itertools
import os
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import files as listing  # noqa: E402

PAGE = "ARCHITECTURE.md"
HEADING = "## Where is what"
PAGES_OF_PATHS = (PAGE, "README.md", "CONTRIBUTING.md")
PAGE_OF_REASONS = "docs/protocol.md"
REASONS = "### Reasons"
REASONS_OF_COUNTS = {"frame", "other"}  # reasons given without a check of the message
LEAST_WORDS = 3  # in a header's sentence; the .cpp of a variant may just name it


def named_folders(page):
    """Returns the folders in the first column of the table below the heading, in order."""
    if HEADING not in page:
        return []
    section = page.split(HEADING, 1)[1].split("\n## ", 1)[0]
    cells = re.findall(r"^\| *(`[^|]*`) *\|", section, re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def table_mistakes(page, files):
    named = named_folders(page)
    there = {f for f in listing.folders_of(files) if f}
    mistakes = [f'{PAGE} lacks the folder {f}: add a line to "Where is what"' for f in sorted(there - set(named))]
    mistakes += [f"{PAGE} names the folder {f}, which holds no sources" for f in sorted(set(named) - there)]
    mistakes += [f"{PAGE} names {f} twice" for f in sorted({f for f in named if named.count(f) > 1})]
    return mistakes


def sentence_mistakes(files, read):
    """Returns a line for each file without a description. A .cpp file may leave it to its header, a test to its
    name."""
    mistakes = []
    for folder in listing.folders_of(files):
        for shown, sentence in listing.rows(folder, files, read):
            whole = sentence.rstrip("\")").endswith((".", ":", "?")) or shown.endswith((".py", ".sh"))
            least = LEAST_WORDS if re.search(r"\.(h|\{h,.*\})$", shown) else 1
            if len(sentence.split()) < least or not whole:
                mistakes.append(f"{folder}/{shown}: begin with a comment that describes the file in its first sentence")
    return mistakes


def expand(pattern):
    """Expands braces: ps/shard.{h,cpp} gives ps/shard.h and ps/shard.cpp; several braces give all
    combinations."""
    pieces = re.split(r"\{([^{}]*)\}", pattern)
    choices = [p.split(",") if i % 2 else [p] for i, p in enumerate(pieces)]
    return ["".join(parts) for parts in itertools.product(*choices)]


def path_mistakes(name, page, files):
    """Returns a line for each path in backticks that does not exist: text that begins with one of our folders,
    or ends like a source file."""
    folders = {str(parent) for f in files for parent in pathlib.PurePath(f).parents if str(parent) != "."}
    known = files | folders
    tops = {f.split("/")[0] for f in files if "/" in f}
    text = re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL)
    mistakes = []
    for quoted in re.findall(r"`([^`\n]+)`", text):
        word = quoted.split()[0].removeprefix("./").rstrip("/") if quoted.strip() else ""
        if not re.fullmatch(r"[\w.*-][\w./*{},-]*", word) or word in listing.SOURCES:
            continue
        source = word.endswith(listing.CPP) or word.endswith("}")
        if "/" in word:
            wrong = word.split("/")[0] in tops and any(not fnmatch.filter(known, p) for p in expand(word))
        else:
            wrong = source and any(not any(fnmatch.fnmatch(os.path.basename(f), p) for f in files) for p in expand(word))
        if wrong:
            mistakes.append(f"{name} names {quoted}, which is not there")
    return mistakes


def anchors(page):
    """Returns the anchors that GitHub generates for a page's headings."""
    lines = re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ +(.*)$", lines, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def link_mistakes(name, page, read):
    """Returns a line for each link to a missing file or heading. read: path -> text, or None if there is no
    such file."""
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


def refused_for(sources):
    """Returns the tags of all refusals in the sources."""
    return {tag for text in sources for tag in re.findall(r"\brefused\(\s*\"([a-z-]+)\"", text)}


def reason_mistakes(page, tags):
    """Returns a line for each tag that is missing in the page's table of reasons, and for each row without a
    refusal."""
    section = page.split(REASONS, 1)[-1].split("\n#", 1)[0]
    cells = re.findall(r"^\| *(`[^|]*`) *\|", section, re.MULTILINE)
    named = {name for cell in cells for name in re.findall(r"`([a-z-]+)`", cell)}
    mistakes = [f"{PAGE_OF_REASONS} lacks the reason {tag}" for tag in sorted(tags - named)]
    return mistakes + [f"{PAGE_OF_REASONS} names the reason {tag}, which no refusal has" for tag in sorted(named - tags)]


def check_the_tables_check():
    page = f"# A b: `c`\n{HEADING}\n| `ps` | x | `a` |\n| `ps/a`, `b` | y | – |\n## Next\n| `no` | z |\n"
    assert named_folders(page) == ["ps", "ps/a", "b"]
    files = {"ps/m.cpp", "ps/a/a.h", "b/b.sh", "README.md", "docs/a.md"}
    assert table_mistakes(page, files) == []
    assert len(table_mistakes(page, files | {"c/c.py"})) == 1
    assert len(table_mistakes(page, files - {"b/b.sh"})) == 1
    assert len(table_mistakes(page.replace("`b`", "`ps`"), files)) == 2
    assert len(table_mistakes("no heading", {"b/b.sh"})) == 1
    assert anchors(page) == {"a-b-c", "where-is-what", "next"}


def check_the_reasons_check():
    tags = refused_for(['  return refused("one-two",\n', 'refused(\n "three", 1); header.refused();'])
    assert tags == {"one-two", "three"}
    page = f"| `none` | x |\n{REASONS}\n| `one-two`, `three` | `x` |\n### Next\n| `none` | x |\n"
    assert reason_mistakes(page, tags) == []
    assert len(reason_mistakes(page, {"one-two", "four"})) == 2


def check_the_sentences_check():
    texts = {"a/a.h": "// A thing of two words. One thread.\n#pragma once\n", "a/a.cpp": '#include "a/a.h"\n',
             "a/b.cpp": "#include <x>\n", "a/c.h": "#pragma once\n", "a/d.py": '#!/usr/bin/env python3\n"""Does d."""\n',
             "tests/a_test.cpp": '#include "a/b.h"\n#include "a/a.h"\n', "a/e.sh": "#!/bin/sh\n# Does e; then more.\n#\n#   e.sh\n"}

    def reported(names):
        return sentence_mistakes(set(names), texts.__getitem__)

    assert reported(["a/a.h", "a/a.cpp", "a/d.py", "a/e.sh", "tests/a_test.cpp"]) == []
    assert [m.split(":")[0] for m in reported(texts)] == ["a/b.cpp", "a/c.h"]
    assert listing.rows("a", {"a/a.h", "a/a.cpp"}, texts.__getitem__) == [("a.{h,cpp}", "A thing of two words.")]
    assert listing.rows("tests", set(texts), texts.__getitem__) == [("a_test.cpp", "Tests a/a.h.")]
    assert listing.first_sentence("Reads a.h and (b.) c, e.g. d. Then more.") == "Reads a.h and (b.) c, e.g. d."


def check_the_paths_check():
    files = {"ps/a.h", "ps/a.cpp", "ps/x/y.h", "docs/z.md"}
    good = "`ps/a.{h,cpp}` `ps/x` `ps/*.h` `y.h` `a.{h,cpp}` `build/bin` `https://a/b` `w / 2` `ps/a.h --flag` `checkpoints/`\n```\n`ps/no`\n```\n"
    assert path_mistakes("x.md", good, files) == []
    for bad in ("ps/no.h", "ps/a.{h,cu}", "ps/x/", "no.cpp", "ps/x/*.cpp", "docs/no.md"):
        assert len(path_mistakes("x.md", f"see `{bad}`", files)) == (0 if bad == "ps/x/" else 1), bad
    texts = {"docs/a.md": "# Two words"}
    assert link_mistakes("x.md", "[a](docs/a.md#two-words) [b](https://c) [d](#e-f)\n# E f", texts.get) == []
    assert len(link_mistakes("docs/b.md", "[a](c.md) [b](a.md#three) [c](a.md)", texts.get)) == 2


def script_mistakes(files, read, may_run):
    """Returns a line for each file that begins with #! but is not executable."""
    return [f"{f} begins with #! and is not executable: chmod +x, git add"
            for f in sorted(files) if (read(f) or "").startswith("#!") and not may_run(f)]


def check_the_scripts_check():
    texts = {"run.sh": "#!/bin/sh\n", "not.sh": "#!/bin/sh\n", "part.py": "x = 1\n"}
    found = script_mistakes(texts, texts.get, {"run.sh"}.__contains__)
    if found != ["not.sh begins with #! and is not executable: chmod +x, git add"]:
        sys.exit(f"the check of scripts does not check: {found}")


def main():
    check_the_scripts_check()
    check_the_tables_check()
    check_the_reasons_check()
    check_the_sentences_check()
    check_the_paths_check()
    files = listing.kept_files()
    if len([f for f in files if f.endswith(listing.SOURCES)]) < 20:
        sys.exit("the sources were not found")

    def read(path):
        if (ROOT / path).is_file():
            return (ROOT / path).read_text(encoding="utf-8", errors="replace")
        return "" if (ROOT / path).is_dir() else None

    mistakes = table_mistakes(read(PAGE) or "", files) + sentence_mistakes(files, read)
    for name in PAGES_OF_PATHS:
        mistakes += path_mistakes(name, read(name) or "", files)
    for name in sorted(f for f in files if f.endswith(".md")):
        mistakes += link_mistakes(name, read(name), read)
    sources = [read(f) for f in files if f.startswith(("common/", "ps/")) and f.endswith(".cpp")]
    mistakes += reason_mistakes(read(PAGE_OF_REASONS) or "", refused_for(sources) | REASONS_OF_COUNTS)
    mistakes += script_mistakes(files, read, lambda path: os.access(ROOT / path, os.X_OK))
    for mistake in mistakes:
        print(mistake)
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main())
