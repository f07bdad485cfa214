#!/usr/bin/env python3
"""Makes the files in datasets/digits from the copy of the digits in Debian's python3-sklearn.

Every fifth sample (index 4, 9, ...) goes to the test split. With --check it writes nothing: the exit code is 1 if a
shipped file differs from the generated one, and 77 (skipped) if scikit-learn's data is not installed. Uses the standard
library only.
"""

import argparse
import csv
import gzip
import pathlib
import struct
import sys

SOURCE = "/usr/lib/python3/dist-packages/sklearn/datasets/data/digits.csv.gz"
SHIPPED = pathlib.Path(__file__).resolve().parent.parent / "datasets" / "digits"
SIDE = 8  # pixels
TOP_VALUE = 16  # a pixel is the number of dark pixels in a 4x4 block
SKIPPED = 77


def idx(dims, values):
    """Returns an IDX file of unsigned bytes: 0, 0, type 8, rank, then big-endian dimensions."""
    return struct.pack(">HBB", 0, 8, len(dims)) + struct.pack(f">{len(dims)}I", *dims) + bytes(values)


def read_rows(source):
    with gzip.open(source, "rt", encoding="ascii", newline="") as file:
        rows = [[int(float(field)) for field in row] for row in csv.reader(file)]
    for number, row in enumerate(rows):
        if len(row) != SIDE * SIDE + 1 or not all(0 <= v <= TOP_VALUE for v in row[:-1]):
            sys.exit(f"make_digits: {source}, row {number}: expected 64 values in 0..16 and a label")
    return rows


def make_files(rows):
    splits = {
        "train": [row for number, row in enumerate(rows) if number % 5 != 4],
        "t10k": [row for number, row in enumerate(rows) if number % 5 == 4],
    }
    files = {}
    for name, split in splits.items():
        pixels = [value for row in split for value in row[:-1]]
        files[f"{name}-images.idx3-ubyte"] = idx((len(split), SIDE, SIDE), pixels)
        files[f"{name}-labels.idx1-ubyte"] = idx((len(split),), [row[-1] for row in split])
    return files


def check(files, folder):
    bad = []
    for name, content in files.items():
        path = folder / name
        if not path.is_file() or path.read_bytes() != content:
            bad.append(str(path))
    for path in bad:
        print(f"make_digits: {path} is missing or differs; run scripts/make_digits.py", file=sys.stderr)
    return 1 if bad else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", default=SOURCE, help="digits.csv.gz of scikit-learn (default: %(default)s)")
    parser.add_argument("--out", type=pathlib.Path, default=SHIPPED, help="folder of the IDX files")
    parser.add_argument("--check", action="store_true", help="compare with the files in --out, write nothing")
    args = parser.parse_args()
    if not pathlib.Path(args.source).is_file():
        print(f"make_digits: no {args.source}; install python3-sklearn or name its copy with --source",
              file=sys.stderr)
        return SKIPPED if args.check else 1
    files = make_files(read_rows(args.source))
    if args.check:
        return check(files, args.out)
    args.out.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (args.out / name).write_bytes(content)
        print(f"{args.out / name}: {len(content)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
