#!/usr/bin/env python3
"""Prints what a run of tests did: one table of tier, part, tests and seconds beside the seconds of the recorded run.

    scripts/test_table.py RESULTS [--record]

RESULTS is a folder that scripts/test.sh fills: NAME.xml is ctest's report (JUnit) of a run, NAME.json its list of tests
(`ctest --show-only=json-v1`) and steps.txt has a line `NAME SECONDS CODE COMMAND` for each step that is not ctest's. For
each failure the command that repeats it follows. The last line is `tests: N passed, N failed, N skipped`. Exit code 1 if
anything failed. --record writes the seconds to tests/seconds.txt.
"""
import argparse
import collections
import json
import pathlib
import re
import sys
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORD = ROOT / "tests" / "seconds.txt"
TIERS = ("first", "second")


class Row:
    """Tests of one part and tier. A program of googletest counts as many tests as it says."""

    def __init__(self):
        self.tests, self.seconds = collections.Counter(), 0.0


def labels_of(path):
    """Returns the labels of each test in a list of ctest's, by name, and the folder of the build."""
    tests = json.loads(path.read_text())["tests"]
    return {test["name"]: value["value"] for test in tests for value in test.get("properties", ())
            if value["name"] == "LABELS"}


def tests_in(output):
    """Returns the number of tests that a program has run, by its own words."""
    said = re.search(r"\] (\d+) tests? from \d+ test suites? ran", output or "")
    return int(said.group(1)) if said else 1


def read(results):
    """Returns the rows by (tier, part), and the failures as (name, command)."""
    rows, failures = collections.defaultdict(Row), []
    for report in sorted(results.glob("*.xml")):
        labels = labels_of(report.with_suffix(".json"))
        build = report.with_suffix(".build").read_text().strip()
        for case in xml.etree.ElementTree.parse(report).getroot().iter("testcase"):
            name = case.get("name")
            tier = next(tier for tier in TIERS if tier in labels[name])
            part = next(label for label in labels[name] if label not in TIERS)
            outcome = {"run": "passed", "fail": "failed"}.get(case.get("status"), "skipped")
            row = rows[tier, part if build == "build/release" else f"{part} ({pathlib.Path(build).name})"]
            row.tests[outcome] += 1 if outcome != "passed" else tests_in(case.findtext("system-out"))
            row.seconds += float(case.get("time"))
            if outcome == "failed":
                failures.append((name, f"ctest --test-dir {build} -R '^{re.escape(name)}$' --output-on-failure"))
    return rows, failures


def read_steps(path, rows, failures):
    """Adds the steps that are not ctest's."""
    for line in path.read_text().splitlines() if path.exists() else ():
        name, seconds, code, command = line.split(" ", 3)
        tier, part = name.split("/")
        row = rows[tier, part]
        row.seconds += float(seconds)
        if code != "0":
            failures.append((part, command))
        if part not in ("build", "wall"):
            row.tests["passed" if code == "0" else "failed"] += 1


def recorded():
    lines = RECORD.read_text().splitlines() if RECORD.exists() else ()
    return {tuple(line.split()[:2]): float(line.split()[3]) for line in lines if line and not line.startswith("#")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    rows, failures = read(options.results)
    read_steps(options.results / "steps.txt", rows, failures)
    before = recorded()
    print(f"{'tier':8}{'part':20}{'tests':>7}{'failed':>8}{'skipped':>9}{'seconds':>10}{'recorded':>10}")
    total, lines = collections.Counter(), []
    for (tier, part), row in sorted(rows.items(), key=lambda item: (item[0][0], item[0][1] == "wall", item[0])):
        tests = sum(row.tests.values())
        part = part.replace(" ", "")
        was = before.get((tier, part))
        print(f"{tier:8}{part:20}{tests or '-':>7}{row.tests['failed'] or '-':>8}{row.tests['skipped'] or '-':>9}"
              f"{row.seconds:10.1f}{'-' if was is None else f'{was:.1f}':>10}")
        lines.append(f"{tier} {part} {tests} {row.seconds:.1f}")
        total += row.tests
    if options.record:
        RECORD.write_text("# tier, part, tests, seconds of the run that `scripts/test.sh --record` recorded last\n" +
                          "".join(f"{line}\n" for line in lines))
    for name, command in failures:
        print(f"FAILED {name}; to repeat it: {command}")
    print(f"tests: {total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
