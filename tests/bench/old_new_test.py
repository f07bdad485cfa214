#!/usr/bin/env python3
"""Tests `bench/old_new.py` on made-up figures and on programs that replace pushpull.
  old_new_test.py FOLDER_OF_THE_PROGRAMS
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import old_new  # noqa: E402

# Its times are {factor} times those of the other; it records its start in the file `order`.
FAKE = f"#!{sys.executable} -IS\n" + """import json, os, pathlib, sys
program = pathlib.Path(sys.argv[0])
words = dict(zip(sys.argv[1 + (program.name == "pushpull")::2], sys.argv[2 + (program.name == "pushpull")::2]))
if program.name != "pushpull-worker":
    with open("{order}", "a") as order:
        print("{name}", program.name, file=order)
if program.name == "pushpull":
    out = pathlib.Path(words["--out"])
    out.mkdir()
    (out / "summary.json").write_text(json.dumps({{"samples_per_second": 1000 / {factor}}}))
elif program.name == "pushpull-server":
    os.write(int(words["--announce-fd"]), b"tcp://127.0.0.1:1\\n")
else:
    assert words["--join"] == "tcp://127.0.0.1:1"
    each = int(int(words["--exchange-bytes"]) * {factor})
    lines = [f"{{i * 10 ** 12}} 0 {{i * 10 ** 12 + each * (1000 if i < 2 else 1)}}" for i in range(10)]  # two of them warm up
    pathlib.Path(words["--exchange-times"]).write_text("tcp momentum 1\\n" + "".join(line + "\\n" for line in lines))
"""


def rounds_of(*triples):
    return [{"x": {"old": old, "new": new, "again": again}} for old, new, again in triples]


class Arithmetic(unittest.TestCase):
    def test_ratios_are_taken_within_a_round(self):
        # the machine slows down for all programs
        found = old_new.summary(rounds_of((100, 101, 100), (200, 202, 200), (400, 404, 400)))["x"]
        self.assertAlmostEqual(1.01, found["new_over_old"]["median"])
        self.assertAlmostEqual(1.0, found["old_over_old"]["max"])
        self.assertTrue(found["holds"])

    def test_a_new_build_may_be_two_percent_slower_in_the_median_and_no_more(self):
        for new, holds in ((102, True), (103, False), (90, True)):
            found = old_new.summary(rounds_of(*[(100, new, 100)] * 3))["x"]
            self.assertEqual(holds, found["holds"], new)

    def test_one_slow_round_does_not_decide(self):
        self.assertTrue(old_new.summary(rounds_of((100, 100, 100), (100, 300, 100), (100, 101, 100)))["x"]["holds"])

    def test_the_new_build_passes_within_the_old_builds_own_spread(self):
        self.assertTrue(old_new.summary(rounds_of(*[(100, 110, 110)] * 3))["x"]["holds"])
        self.assertFalse(old_new.summary(rounds_of(*[(100, 113, 110)] * 3))["x"]["holds"])

    def test_the_verdict_names_the_slower_figures(self):
        found = old_new.summary([{"a": {"old": 1, "new": 2, "again": 1}, "b": {"old": 1, "new": 1, "again": 1}}])
        self.assertEqual("1 of 2 are slower: a", old_new.verdict(found))
        self.assertIn("| a | 2 | 1 | – | – | SLOWER |", old_new.table(found))
        self.assertEqual("all 1 hold their speed", old_new.verdict({"b": found["b"]}))
        self.assertEqual("nothing was measured", old_new.verdict({}))

    def test_each_of_the_three_runs_first_once_and_the_median_counts(self):
        asked, times = [], iter([9, 5, 7, 5, 7, 10, 7, 90, 5])
        clock = iter([0, 1, 2, 3])
        with unittest.mock.patch("time.monotonic", lambda: next(clock)):
            found = old_new.measure_figure(lambda bin_dir: asked.append(bin_dir) or next(times), "old", "new", 0.8)
        self.assertEqual(["old", "new", "old", "new", "old", "old", "old", "old", "new"], asked)
        self.assertEqual((10, 5, 7), (found["old"], found["new"], found["again"]))

    def test_processor_seconds_are_the_programs_own(self):
        def burn(seconds):
            subprocess.run([sys.executable, "-c", f"import time\nwhile time.process_time() < {seconds}: pass"], check=True)
            return 1
        found = old_new.measure_figure(burn, 0.1, 0.6, 0)
        self.assertGreaterEqual(found["new cpu"], 0.6)
        self.assertGreaterEqual(found["old cpu"], 0.1)
        self.assertLess(found["old cpu"], found["new cpu"])


class Program(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.order = self.folder / "order"
        for name, factor in (("old", 1.0), ("same", 1.01), ("slow", 1.5)):
            (self.folder / name).mkdir()
            for program in ("pushpull", "pushpull-server", "pushpull-worker"):
                file = self.folder / name / program
                file.write_text(FAKE.format(order=self.order, name=name, factor=factor))
                file.chmod(0o755)

    def run_it(self, new, *words):
        return subprocess.run([ROOT / "bench/old_new.py", self.folder / "old", self.folder / new, *map(str, words)],
                              capture_output=True, text=True, check=False, timeout=120)

    def test_old_new_and_old_take_turns(self):
        done = self.run_it("same", "--rounds", 2, "--seconds", 0, "--only", "exchange", "--out", self.folder / "out.json")
        self.assertEqual(0, done.returncode, done.stderr)
        turns = [line.split()[0] for line in self.order.read_text().splitlines()]
        self.assertEqual(["old", "same", "old"] * 6 + ["same", "old", "old"] * 6, turns)
        self.assertIn("| exchange tcp, 25 MiB | 1.01 | 1 |", done.stdout)
        self.assertEqual("all 6 hold their speed", done.stdout.splitlines()[-1])
        self.assertEqual(2, len(json.loads((self.folder / "out.json").read_text())["rounds"]))

    def test_a_slower_build_ends_with_1(self):
        done = self.run_it("slow", "--rounds", 1, "--seconds", 0)
        self.assertEqual(1, done.returncode, done.stderr)
        self.assertIn("| training convnet | 1.5 | 1 |", done.stdout)
        self.assertIn("8 of 8 are slower", done.stdout)

    def test_wrong_arguments_and_a_missing_build_end_with_2(self):
        for new, words, text in (("none", (), "build it"), ("same", ("--rounds", 0), "--rounds"),
                                 ("same", ("--only", "all"), "exchange, training")):
            done = self.run_it(new, *words)
            self.assertEqual(2, done.returncode)
            self.assertIn(text, done.stderr)


if __name__ == "__main__":
    sys.argv.pop(1)
    unittest.main(verbosity=2)
