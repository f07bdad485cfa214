#!/usr/bin/env python3
"""`bench/old_new.py` on made-up figures and on programs that stand for pushpull.
  old_new_test.py FOLDER_OF_THE_PROGRAMS"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import old_new  # noqa: E402

# Its times are {factor} times those of another; it notes in the order's file that it was asked.
FAKE = """#!/usr/bin/env python3
import json, pathlib, sys
words = dict(zip(sys.argv[2::2], sys.argv[3::2]))
with open("{order}", "a") as order:
    print("{name}", sys.argv[1], file=order)
if sys.argv[1] == "bench":
    rows = [{{"bytes": int(b), "transport": t, "exchange_us_p50": {factor} * (int(b) / 1000)}}
            for t in words["--transport"].split(",") for b in words["--bytes"].split(",")]
    json.dump({{"rows": rows}}, open(words["--out"], "w"))
else:
    out = pathlib.Path(words["--out"])
    out.mkdir()
    (out / "summary.json").write_text(json.dumps({{"samples_per_second": 1000 / {factor}}}))
"""


def rounds_of(*triples):
    return [{"x": {"old": old, "new": new, "again": again}} for old, new, again in triples]


class Arithmetic(unittest.TestCase):
    def test_ratios_are_taken_within_a_round(self):
        # a machine that slows down for all alike
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

    def test_where_the_old_build_is_as_far_from_itself_the_new_one_holds(self):
        self.assertTrue(old_new.summary(rounds_of(*[(100, 110, 110)] * 3))["x"]["holds"])
        self.assertFalse(old_new.summary(rounds_of(*[(100, 113, 110)] * 3))["x"]["holds"])

    def test_the_verdict_names_what_is_slower(self):
        found = old_new.summary([{"a": {"old": 1, "new": 2, "again": 1}, "b": {"old": 1, "new": 1, "again": 1}}])
        self.assertEqual("1 of 2 are slower: a", old_new.verdict(found))
        self.assertIn("| a | 2 | 1 | SLOWER |", old_new.table(found))
        self.assertEqual("all 1 hold their speed", old_new.verdict({"b": found["b"]}))
        self.assertEqual("nothing was measured", old_new.verdict({}))

    def test_a_figure_that_one_build_lacks_is_left_out(self):
        times = {"old": {"a": 1, "b": 2}, "new": {"a": 1}}
        self.assertEqual({"a": {"old": 1, "new": 1, "again": 1}}, old_new.measure_round(times.get, "old", "new"))


class Program(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.order = self.folder / "order"
        for name, factor in (("old", 1.0), ("same", 1.01), ("slow", 1.5)):
            (self.folder / name).mkdir()
            program = self.folder / name / "pushpull"
            program.write_text(FAKE.format(order=self.order, name=name, factor=factor))
            program.chmod(0o755)

    def run_it(self, new, *words):
        return subprocess.run([ROOT / "bench/old_new.py", self.folder / "old", self.folder / new, *map(str, words)],
                              capture_output=True, text=True, check=False, timeout=120)

    def test_old_new_and_old_take_turns(self):
        done = self.run_it("same", "--rounds", 2, "--only", "exchange", "--out", self.folder / "out.json")
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual(["old bench", "same bench", "old bench"] * 2, self.order.read_text().splitlines())
        self.assertIn("| exchange tcp, 25 MiB | 1.01 | 1 | holds |", done.stdout)
        self.assertEqual("all 6 hold their speed", done.stdout.splitlines()[-1])
        self.assertEqual(2, len(json.loads((self.folder / "out.json").read_text())["rounds"]))

    def test_a_slower_build_ends_with_1(self):
        done = self.run_it("slow", "--rounds", 1)
        self.assertEqual(1, done.returncode, done.stderr)
        self.assertIn("| training convnet | 1.5 | 1 | SLOWER |", done.stdout)
        self.assertIn("8 of 8 are slower", done.stdout)

    def test_wrong_words_and_no_build_end_with_2(self):
        for new, words, text in (("none", (), "build it"), ("same", ("--rounds", 0), "--rounds"),
                                 ("same", ("--only", "all"), "exchange, training")):
            done = self.run_it(new, *words)
            self.assertEqual(2, done.returncode)
            self.assertIn(text, done.stderr)


if __name__ == "__main__":
    sys.argv.pop(1)
    unittest.main(verbosity=2)
