#!/usr/bin/env python3
"""Breaks the state machines of joining, heartbeats, repeats, initial weights, leaving and grants, and the waits of a
device's sums, on purpose, one rule at a time, and reports which test catches it: a test of the simulation, with its seed,
or one that the file names. tests/simulation/mutations/README.md describes the files.

    scripts/mutations.py [--seeds N] [--build DIR] [--filter TESTS] [MUTATION...]
    scripts/mutations.py --check     # only checks that each still applies to the sources; builds nothing
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("common", "ps", "worker")
PRESET = "cpu"  # kernels take long to build, and the tests do not use them
SIMULATION = "simulation_test"


def replacements(path):
    title, body = path.read_text().split("\n", 1)
    blocks = re.findall(r"^<<<<\n(.*?)^====\n(.*?)^>>>>\n", body, re.S | re.M)
    if not blocks:
        sys.exit(f"{path}: no replacement")
    return title, blocks


def test_of(path, simulations):
    """Returns the program that must catch a mutation, and its tests. simulations: tests of the simulation."""
    named = re.match(r".*\ntest: (\S+) (\S+)\n", path.read_text())
    return named.groups() if named else (SIMULATION, simulations)


def sources(tree):
    return [p for f in FOLDERS for p in sorted((tree / f).rglob("*")) if p.suffix in (".h", ".cpp")]


def file_of(old, texts):
    """Returns the one file that contains this text once. texts: by file."""
    found = [file for file, text in texts.items() if old in text]
    if len(found) != 1 or texts[found[0]].count(old) != 1:
        raise ValueError(f"the old text is in {len(found)} files, must be in one: {old.strip()[:70]}")
    return found[0]


def check(files):
    """Reports for each mutation whether it applies. Returns the number of those that do not."""
    texts = {file: file.read_text() for file in sources(ROOT)}
    missed = 0
    for path in files:
        try:
            for old, _ in replacements(path)[1]:
                file_of(old, texts)
        except ValueError as e:
            print(f"{path.stem}: does not apply: {e}")
            missed += 1
    print(f"{len(files) - missed} of {len(files)} apply")
    return missed


def apply(tree, path):
    """Applies a mutation. Returns the changed files with their original text."""
    before = {}
    for old, new in replacements(path)[1]:
        try:
            file = file_of(old, {p: p.read_text() for p in sources(tree)})
        except ValueError:
            restore(before)
            raise
        text = file.read_text()
        before.setdefault(file, text)
        file.write_text(text.replace(old, new))
    return before


def restore(before):
    for file, text in before.items():
        file.write_text(text)


def copy_tree(tree):
    """Copies tracked and new files that differ. An unchanged file is not rebuilt."""
    names = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                           capture_output=True, check=True, text=True).stdout.split("\0")
    for name in filter(None, names):
        source, target = ROOT / name, tree / name
        if not source.is_file():
            continue
        if target.is_file() and target.read_bytes() == source.read_bytes():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)


def build(tree, program):
    built = subprocess.run(["cmake", "--build", "--preset", PRESET, "--target", program, "-j",
                            str(os.cpu_count())], cwd=tree, capture_output=True, text=True)
    return built.returncode == 0, built.stdout[-1500:]


def keep_unchanged(tree, programs):
    """Builds the programs without a mutation, and keeps them."""
    for program in programs:
        built, text = build(tree, program)
        if not built:
            sys.exit(f"{program} does not build without a mutation:\n{text}")
        shutil.copy(tree / "build" / PRESET / "tests" / program, tree / "build" / f"unchanged_{program}")


def run_tests(program, tests, variables):
    return subprocess.run([program, f"--gtest_filter={tests}", "--gtest_fail_fast"], env={**os.environ, **variables},
                          capture_output=True, text=True, timeout=3000)


def catch(tree, program, tests, seeds):
    """Returns the first test that fails and its message, or None. Raises an exception if the tests do not finish. Ends if the
    test fails without the mutation, too: then it shows nothing."""
    done = run_tests(tree / "build" / PRESET / "tests" / program, tests, {"PUSHPULL_SIM_MOST": str(seeds)})
    if done.returncode == 0:
        return None
    test = re.search(r"^\[  FAILED  \] ([\w.]+)", done.stdout, re.M)
    seed = re.search(r"^  seed (\d+)", done.stdout, re.M)
    failure = re.search(r"^Failed\n(.*)", done.stdout, re.M)
    same = run_tests(tree / "build" / f"unchanged_{program}", test.group(1) if test else tests,
                     {"PUSHPULL_SIM_SEED": seed.group(1)} if seed else {})
    if same.returncode != 0:
        sys.exit(f"{test.group(1) if test else tests}, seed {seed.group(1) if seed else '?'}, fails without a mutation, too: mend "
                 f"that first")
    return (test.group(1) if test else f"ended with {done.returncode}", seed.group(1) if seed else "?",
            failure.group(1) if failure else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mutations", nargs="*", help="names of files; default: all")
    parser.add_argument("--seeds", type=int, default=400, help="limit for each test")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/mutations", help="folder for the copy")
    parser.add_argument("--filter", default="MembershipSimulation.*:OwnWeightsSimulation.*:"
                        "HostileSimulation.ForgedMessagesChangeNoWeights",
                        help="tests of the simulation to run")
    parser.add_argument("--check", action="store_true", help="only report whether each applies")
    options = parser.parse_args()
    files = [f for f in sorted((ROOT / "tests/simulation/mutations").glob("*.mutation"))
             if not options.mutations or f.stem in options.mutations]
    if options.check:
        return 1 if check(files) else 0
    tree = options.build.resolve()
    copy_tree(tree)
    subprocess.run(["cmake", "--preset", PRESET], cwd=tree, check=True, capture_output=True)
    keep_unchanged(tree, sorted({test_of(path, options.filter)[0] for path in files}))
    missed = 0
    for path in files:
        try:
            before = apply(tree, path)
        except ValueError as e:
            print(f"{path.stem}: does not apply: {e}", flush=True)
            missed += 1
            continue
        program, tests = test_of(path, options.filter)
        try:
            built, text = build(tree, program)
            caught = catch(tree, program, tests, options.seeds) if built else None
        finally:
            restore(before)
        if not built:
            print(f"{path.stem}: does not build:\n{text}", flush=True)
        elif caught is None:
            print(f"{path.stem}: NOT CAUGHT within {options.seeds} seeds of {tests}", flush=True)
        else:
            print(f"{path.stem}: caught by {caught[0]}, seed {caught[1]}: {caught[2]}", flush=True)
        missed += 0 if built and caught else 1
    print(f"{len(files) - missed} of {len(files)} caught")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
