#!/usr/bin/env python3
"""Writes datasets/text/unicode_ranges.h: the letters and numbers of Unicode, from Python's unicodedata.

    scripts/make_unicode_ranges.py            writes the file
    scripts/make_unicode_ranges.py --check    compares it; exit code 77 if this Python has another version of Unicode
"""

import pathlib
import sys
import unicodedata

FILE = pathlib.Path(__file__).resolve().parent.parent / "datasets" / "text" / "unicode_ranges.h"
HEAD = """// The code points of Unicode %s above ASCII whose general category is a letter or a number.
// Written by scripts/make_unicode_ranges.py. Constants.
#pragma once

#include <cstdint>

namespace pushpull {

struct UnicodeRange {
  uint32_t first;
  uint32_t last;
};

// clang-format off
"""
FOOT = """// clang-format on

}  // namespace pushpull
"""


def ranges(category):
    found = []
    for code in range(0x80, 0x110000):
        if unicodedata.category(chr(code))[0] != category:
            continue
        if found and found[-1][1] == code - 1:
            found[-1][1] = code
        else:
            found.append([code, code])
    return found


def table(name, category):
    cells = [f"{{0x{first:x}, 0x{last:x}}}, " for first, last in ranges(category)]
    lines = [""]
    for cell in cells:
        if len(lines[-1]) + len(cell) > 98:
            lines.append("")
        lines[-1] += cell
    return f"inline constexpr UnicodeRange {name}[] = {{\n" + "".join(f"  {line.rstrip()}\n" for line in lines) + "};\n"


def main():
    version = unicodedata.unidata_version
    text = HEAD % version + table("kLetterRanges", "L") + table("kNumberRanges", "N") + FOOT
    if "--check" not in sys.argv[1:]:
        FILE.write_text(text)
        return 0
    there = FILE.read_text()
    if f"Unicode {version} " not in there:
        return 77
    if there != text:
        print(f"{FILE} differs from what this script writes", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
