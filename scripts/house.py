#!/usr/bin/env python3
"""Measures the structure of the code: places that depend on the strategy, size of classes, size of folders, refusals
without a reason, empty words.

  scripts/house.py [ROOT]           prints the table for that tree; needs no build
  scripts/house.py --check [ROOT]   also exits with 1 if a figure is above its limit in LIMITS

`goal` is the largest value that a figure should have, `held` the largest that it may have today. Where they differ, the
goal is not reached yet.
"""

import argparse
import collections
import pathlib
import re
import sys

# figure: (goal, held). These numbers are defined only here.
LIMITS = {
    "strategy places": (25, 25),
    "strategy files": (8, 8),
    "Server lines": (450, 450),
    "Server header": (120, 120),
    "PushPull lines": (450, 450),
    "PushPull header": (120, 120),
    "Coordinator lines": (450, 450),
    "Coordinator header": (120, 120),
    "classes over 450 lines": (0, 0),
    "foreign implementations": (3, 3),
    "files in a folder": (32, 32),
    "files over 500 lines": (0, 0),
    "const_casts of machines": (0, 0),
    "refusals without a reason": (0, 0),
    "buffered strategy's files": (8, 8),
    "types of one name": (0, 0),
    "driver lines twice": (0, 0),
    "words that say nothing": (3, 3),
    "comments like translations": (10, 10),
    "lines with vague pronouns": (60, 60),
    "comment fragments": (40, 40),
    "comments reflowed": (0, 0),
}

CPP = (".h", ".cpp", ".cu", ".cuh")
NOT_PRODUCT = {"tests", "bench", "docs", "build", "out", ".git"}
MACHINES = ("Server", "PushPull", "Coordinator")
CLASS_LINES = 450
FILE_LINES = 500
ADAPTER_LINES = 120  # of a simulated node: code in its header and .cpp
# Files that read, check and print the job. They treat the strategy as a value like any other.
JOB_FILE = re.compile(r"(^|/)(job|job_parse|job_check|job_keys|strategy)\.(cpp|h)$")
# A main, or a backend that replaces another: they implement the functions that the build selects.
PICKED_FILE = re.compile(r"main|(^|/)no_|/cuda/|/cpu/|gloo|cuda")
# Functions that check a peer's message; in ps/server also functions that take one. Elsewhere a take function may
# report whether it changed something.
CHECKS = re.compile(r"^\w*(fits?|is_near|is_valid|plausible)$")
CHECKS_OR_TAKES = re.compile(CHECKS.pattern + r"|^(on_\w+|take)$")
SAYS_NOTHING = re.compile(r"distrusted|\bbells?\b|goes_narrow|open_door|last_questions")
VAGUE = re.compile(r"\b(?:who|whom|whose|whoever|nobody|everybody|anybody|somebody)\b", re.I)
FRAGMENT = re.compile(
    r"^(?:False|True|-1|Null|None|\"\"|Empty): (?:it|they|there|none|nothing|all)\b"
    r"|\b(?:is|are|was|were) (?:to be|such a one|one that)\b"
    r"|\bwhat (?:is|are|was|were|it|they|has|have)\b", re.I)
LIKE_A_TRANSLATION = re.compile(r"^\s*// (?:Of|What|Who|So|By|As|That|Which|Whose|Where) ", re.M)


class Tree:
    """The product's sources: path relative to the root -> text, with and without comments."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.text = {}
        for path in sorted(self.root.rglob("*")):
            name = path.relative_to(self.root)
            if path.suffix in CPP and not NOT_PRODUCT & set(name.parts):
                self.text[str(name)] = path.read_text(errors="replace")
        self.code = {name: re.sub(r"//[^\n]*", "", text) for name, text in self.text.items()}

    def lines(self, name):
        return self.text[name].count("\n")

    def comments(self):
        """Returns the comment lines of all sources and scripts, with tests."""
        found = []
        for path in sorted(self.root.rglob("*")):
            if path.suffix in (*CPP, ".py", ".sh") and not {"build", "out", ".git"} & set(path.relative_to(self.root).parts):
                found += re.findall(r"(?:^|\s)(?://|#) (.*)", path.read_text(errors="replace"))
        return found

    def pages(self):
        return [p.read_text() for p in (self.root / "ARCHITECTURE.md", *(self.root / "docs").glob("*.md")) if p.exists()]


def strategy_questions(tree):
    """Returns a map from file to places that depend on the strategy: through the enumeration, a predicate on it, or
    the type of a part."""
    predicates = {"in_lockstep"}
    for code in tree.code.values():
        predicates |= set(re.findall(r"bool (\w+)\(\) const \{[^{}]*(?:strategy\.kind|\bkind [!=]=)", code))
        bodies = re.findall(r"bool (\w+)\(\) const \{([^{}]*)\}", code)
        predicates |= {name for name, body in bodies if re.search(r"in_lockstep\(\)|StrategyKind", body)}
    asks = re.compile(r"strategy\.kind|StrategyKind::|\b(?:" + "|".join(sorted(predicates)) + r")\(\)"
                      r"|dynamic_cast<[^>]*(?:Aggregation|Schedule|Strategy)")
    found = {name: len(asks.findall(code)) for name, code in tree.code.items() if not JOB_FILE.search(name)}
    return {name: count for name, count in found.items() if count}


def classes(tree):
    """Returns (lines, header) of each class, counting its header and every .cpp that defines one of its functions; and
    the .cpp files that implement a class of another header."""
    lines, header = collections.Counter(), collections.Counter()
    headers, foreign = collections.defaultdict(set), set()
    for name, code in tree.code.items():
        if name.endswith(".h"):
            for found in re.findall(r"^class ([A-Z]\w+)(?: final)?(?: :[^;{]*)?\s*\{", code, re.M):
                lines[found] += tree.lines(name)
                header[found] += tree.lines(name)
                headers[found].add(name)
    for name, code in tree.code.items():
        if not name.endswith(".cpp"):
            continue
        local = set(re.findall(r"^(?:class|struct) ([A-Z]\w+)", code, re.M))
        defined = set(re.findall(r"^(?:[\w:<>,&*\s\[\]]+ )?([A-Z]\w+)::~?\w+\(", code, re.M))
        for found in defined & set(headers) - local:
            lines[found] += tree.lines(name)
            stems = {pathlib.PurePath(h).stem for h in headers[found]}
            if pathlib.PurePath(name).stem not in stems and not PICKED_FILE.search(name):
                foreign.add(name)
    return lines, header, foreign


def functions(code, kind):
    """Yields (name, body) of each function with that return type that the text defines."""
    for found in re.finditer(r"\b" + kind + r" (?:\w+::)*(\w+)\([^;{}]*\)(?: const)?(?: noexcept)?(?: override)? \{", code):
        depth, at = 1, found.end()
        while depth and at < len(code):
            depth += {"{": 1, "}": -1}.get(code[at], 0)
            at += 1
        yield found.group(1), code[found.end():at]


def silent_refusals(tree):
    """Returns a map from file to places where a server refuses a message without a reason: `return false` in a
    function that checks or takes one."""
    found = collections.Counter()
    for name, code in tree.code.items():
        if name.startswith("ps/"):
            judges = CHECKS_OR_TAKES if name.startswith("ps/server") else CHECKS
            for function, body in functions(code, "bool"):
                if judges.match(function):
                    found[name] += len(re.findall(r"return false;", body))
    return +found


def types_twice(tree):
    """Returns a map from type to the headers that define it in the same namespace. In one program, the linker would
    use one header's functions for both."""
    headers = collections.defaultdict(list)
    for name, code in tree.code.items():
        if name.endswith((".h", ".cuh")):
            space = re.search(r"^namespace ([\w:]+) \{", code, re.M)
            for found in re.findall(r"^(?:class|struct|enum class|enum) (\w+)[^;{]*\{", code, re.M):
                headers[(space.group(1) + "::" if space else "") + found].append(name)
    return {found: names for found, names in headers.items() if len(names) > 1}


def doubled_driver_lines(root):
    """Returns the lines of the simulated nodes in excess of an adapter's size: they repeat a real loop."""
    nodes = collections.Counter()
    for path in (pathlib.Path(root) / "tests" / "simulation").glob("*_node.*"):
        nodes[path.stem] += sum(not re.fullmatch(r"\s*(//.*)?", line) for line in path.read_text().splitlines())
    return {name: lines - ADAPTER_LINES for name, lines in nodes.items() if lines > ADAPTER_LINES}


def listing(counts, most=4):
    """Formats the largest counts: "a 3, b 2"."""
    items = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{name} {count}" for name, count in items[:most]) + (", ..." if len(items) > most else "")


def figures(root):
    """Returns a map from figure to (value, its components)."""
    tree = Tree(root)
    asked = strategy_questions(tree)
    lines, header, foreign = classes(tree)
    large = {name: count for name, count in lines.items() if count > CLASS_LINES}
    folders = collections.Counter(str(pathlib.PurePath(name).parent) for name in tree.text)
    fullest = folders.most_common(1)[0] if folders else ("", 0)
    long = {name: tree.lines(name) for name in tree.text if tree.lines(name) > FILE_LINES}
    casts = {name: len(re.findall(r"const_cast<(?:" + "|".join(MACHINES) + ")", code)) for name, code in tree.code.items()}
    silent = silent_refusals(tree)
    buffered = [name for name, code in tree.code.items() if re.search(r"\bbuffered\b|kBuffered|Buffered[A-Z]\w+", code)]
    doubled = doubled_driver_lines(root)
    twice = types_twice(tree)
    words = {name: len(SAYS_NOTHING.findall(text)) for name, text in tree.text.items()}
    words["pages"] = sum(len(SAYS_NOTHING.findall(page)) for page in tree.pages())
    opens = {name: len(LIKE_A_TRANSLATION.findall(text)) for name, text in tree.text.items()}
    comments = tree.comments()
    first_pages = [(tree.root / name).read_text() for name in ("README.md", "CONTRIBUTING.md") if (tree.root / name).exists()]
    sentences = comments + [line for page in first_pages + tree.pages() for line in page.splitlines()]
    style = tree.root / ".clang-format"
    reflow = 0 if style.exists() and re.search(r"ReflowComments:\s*(false|Never)", style.read_text()) else 1
    found = {"strategy places": (sum(asked.values()), listing(asked)), "strategy files": (len(asked), "")}
    for name in MACHINES:
        found[f"{name} lines"] = (lines[name], "its header and every .cpp that implements it")
        found[f"{name} header"] = (header[name], "")
    return found | {
        "classes over 450 lines": (len(large), "largest: " + listing(lines, 5)),
        "foreign implementations": (len(foreign), ", ".join(sorted(foreign))),
        "files in a folder": (fullest[1], listing(folders, 3)),
        "files over 500 lines": (len(long), listing(long)),
        "const_casts of machines": (sum(casts.values()), listing({n: c for n, c in casts.items() if c})),
        "refusals without a reason": (sum(silent.values()), listing(silent)),
        "buffered strategy's files": (len(buffered), ", ".join(buffered) or "it is not there"),
        "types of one name": (len(twice), "; ".join(f"{found}: {', '.join(names)}" for found, names in twice.items())),
        "driver lines twice": (sum(doubled.values()), listing(doubled)),
        "words that say nothing": (sum(words.values()), listing({n: c for n, c in words.items() if c})),
        "comments like translations": (sum(opens.values()), listing({n: c for n, c in opens.items() if c})),
        "lines with vague pronouns": (sum(bool(VAGUE.search(line)) for line in sentences), "in comments and pages"),
        "comment fragments": (sum(bool(FRAGMENT.search(line)) for line in comments), ""),
        "comments reflowed": (reflow, ""),
    }


def exceeded(found, limits):
    """Returns the figures above their limits. A figure without a limit, or a limit without a figure, is an error
    too."""
    above = [f"{name}: {found[name][0]}, held to {limits[name][1]}" for name in limits
             if name in found and found[name][0] > limits[name][1]]
    return above + [f"{name}: no limit" for name in found if name not in limits] + [
        f"{name}: not counted" for name in limits if name not in found]


def table(found, limits):
    rows = [("figure", "now", "goal", "held", "", "")]
    for name, (value, made_of) in found.items():
        goal, held = limits[name]
        rows.append((name, str(value), str(goal), str(held), "ok" if value <= goal else "FALL" if value > held else "-", made_of))
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    return "\n".join("  ".join([row[0].ljust(widths[0]), *(row[i].rjust(widths[i]) for i in range(1, 5)), row[5]]).rstrip()
                     for row in rows)


def main(words):
    parser = argparse.ArgumentParser(prog="house.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="exit with 1 if a figure is above its limit")
    parser.add_argument("root", nargs="?", default=pathlib.Path(__file__).resolve().parent.parent)
    arguments = parser.parse_args(words)
    found = figures(arguments.root)
    print(table(found, LIMITS))
    above = exceeded(found, LIMITS)
    if not arguments.check:
        return 0
    print("\n" + ("; ".join(above) or "no figure is above its limit"))
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
