#!/usr/bin/env python3
"""Tests bench/peers/ps_lite_compare.py on made-up measurements and on programs that replace ps-lite's: how it
reads their output, its ratios, and its messages about missing parts.
  ps_lite_test.py FOLDER_OF_THE_PROGRAMS
"""
import io
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest
from contextlib import redirect_stderr, redirect_stdout

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "bench/peers")]
import figures  # noqa: E402
import ps_lite_compare as compare  # noqa: E402
import ps_lite_measure as measure  # noqa: E402

MIB = figures.MIB
STORE, KEPT = ("store", "sleeping", "default"), ("store", "sleeping", "kept")
UPDATE, EXCHANGE = ("update", "sleeping", "kept"), ("exchange", "sleeping", "kept")

# Replaces the driver: a worker prints a figure that encodes its settings, the others print nothing.
FAKE = """#!/bin/sh
[ "$DMLC_ROLE" = worker ] || exit 0
[ "$DMLC_PS_ROOT_URI:$DMLC_NUM_SERVER" = 127.0.0.1:1 ] || exit 4
echo "$1 1048576 1048576 ${DMLC_NUM_WORKER}0 ${MALLOC_ARENA_MAX:-7}0"
"""


def round_of(slow):
    """Returns a round on a machine that slows down for all programs."""
    found = {("pushpull", "push", MIB): 200 * slow, ("pushpull", "pull", MIB): 100 * slow,
             ("pushpull", "exchange", MIB): 500 * slow, (STORE, "push", MIB): 400 * slow,
             (KEPT, "push", MIB): 160 * slow, (UPDATE, "push", MIB): 250 * slow, (STORE, "pull", MIB): 300 * slow,
             (KEPT, "pull", MIB): 220 * slow, (UPDATE, "pull", MIB): 200 * slow,
             (EXCHANGE, "exchange", MIB): 1000 * slow}
    return compare.with_best(found)


class Figures(unittest.TestCase):
    def test_a_step_takes_as_long_as_its_slowest_worker_and_the_fastest_key_size_counts(self):
        texts = ["exchange 8 4 10 50 30\nexchange 8 8 90 90 90\n", "exchange 8 4 20 40 60\nexchange 8 8 1 1 1\n"]
        self.assertEqual({("exchange", 8): 50}, measure.best_of_keys(texts))

    def test_pushes_and_pulls_of_each_size_are_separate(self):
        text = "push 8 8 4 4\npull 8 8 6 6\npush 16 8 9\n"
        self.assertEqual({("push", 8): 4, ("pull", 8): 6, ("push", 16): 9}, measure.best_of_keys([text]))

    def test_no_key_is_larger_than_its_tensor(self):
        self.assertEqual(["4096:4096:200"], measure.cases_of("sleeping", 4096))
        self.assertEqual([f"{100 * MIB}:{MIB}:5", f"{100 * MIB}:4096000:5", f"{100 * MIB}:{100 * MIB}:5"],
                         measure.cases_of("sleeping", 100 * MIB))
        self.assertEqual([f"{100 * MIB}:4096000:5"], measure.cases_of("released", 100 * MIB))

    def test_ratios_are_to_the_fastest_variant_of_the_round(self):
        push, pull, exchange = compare.rows_of([round_of(1.0), round_of(2.0), round_of(4.0)], [MIB])
        self.assertAlmostEqual(1.25, push["over"]["store"]["median"])
        self.assertAlmostEqual(0.8, push["over"]["update"]["max"])
        self.assertAlmostEqual(0.5, pull["over"]["any"]["min"])
        self.assertAlmostEqual(0.5, exchange["over"]["exchange"]["median"])
        self.assertIsNone(exchange["over"]["byteps"])

    def test_a_round_uses_its_own_fastest_variant(self):
        other = compare.with_best({("pushpull", "push", MIB): 300, (STORE, "push", MIB): 100, (KEPT, "push", MIB): 600})
        push, *_ = compare.rows_of([round_of(1.0), other], [MIB])
        self.assertEqual((1.25, 3.0), (push["over"]["store"]["min"], push["over"]["store"]["max"]))

    def test_the_table_has_a_row_for_each_variant_and_each_ratio(self):
        rows = compare.rows_of([round_of(1.0), round_of(2.0)], [MIB])
        text = compare.table(rows, "push")
        self.assertIn("| push | 1 MiB, ms |\n|---|---:|\n| pushpull | 0.3 (0.2-0.4) |\n", text)
        self.assertIn("| ps-lite, server stores, receivers sleep, heap kept | 0.24 (0.16-0.32) |", text)
        self.assertIn("| ps-lite, server stores, as released | – |", text)
        self.assertIn("| **over ps-lite that updates** | 0.8 |", text)


class Processes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.program = pathlib.Path(folder.name) / "driver"
        self.programs = {(van, name): self.program for van in measure.VANS for name in ("driver", "byteps")}
        self.write(FAKE)

    def write(self, text):
        self.program.write_text(text)
        self.program.chmod(0o755)

    def test_workers_get_their_settings_and_their_figures_are_read(self):
        for heap, expected in (("default", 45), ("kept", 15)):  # the mean of 20 and 70, of 20 and 10
            found = measure.measured(self.programs, "sleeping", heap, "exchange", 2, MIB)
            self.assertEqual({("exchange", MIB): expected}, found)

    def test_a_failing_program_ends_all_and_is_named_with_its_output(self):
        self.write("#!/bin/sh\n[ $DMLC_ROLE = worker ] || exec sleep 1000\necho 'key 7: expected 1, got 2' >&2\nexit 1\n")
        with self.assertRaisesRegex(figures.Failed, "the worker ended with 1: key 7: expected 1, got 2"):
            measure.measured(self.programs, "sleeping", "kept", "store", 1, MIB, timeout_s=1000)

    def test_a_program_that_does_not_end_is_named(self):
        waiting = subprocess.Popen(["sleep", "1000"], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        with self.assertRaisesRegex(figures.Failed, "the server has not ended in time"):
            measure.finished([("server", waiting)], time.monotonic())
        self.assertIsNotNone(waiting.returncode)

    def test_a_failing_variant_is_reported_and_left_out_at_that_size(self):
        self.write("#!/bin/sh\nexit 3\n")
        variants, errors = compare.Variants(self.programs), io.StringIO()
        with redirect_stderr(errors):
            self.assertEqual({}, variants.take(STORE, 1, MIB))
            self.write(FAKE)
            self.assertEqual({}, variants.take(STORE, 1, MIB))
            self.assertEqual({(STORE, "store", MIB): 40}, variants.take(STORE, 1, 2 * MIB))
        self.assertEqual(1, errors.getvalue().count("skipped from now on: ps-lite, server stores"))


class Refusals(unittest.TestCase):
    def started(self, *words, **variables):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "pushpull").touch()
            return subprocess.run([ROOT / "bench/peers/ps_lite_compare.py", "--bin", folder, "--scratch",
                                   f"{folder}/scratch", *words], env={**os.environ, **variables}, timeout=300,
                                  capture_output=True, text=True, check=False)

    def test_wrong_arguments_end_with_2_and_the_remedy(self):
        for words, text in ((["--rounds", "0"], "--rounds"), (["--bin", "/none"], "no /none/pushpull; build it")):
            done = self.started(*words)
            self.assertEqual(2, done.returncode, done.stderr)
            self.assertIn(text, done.stderr)

    def test_an_invalid_source_is_reported_in_one_line(self):
        with tempfile.TemporaryDirectory() as folder:
            for path in ("/none", folder):
                with self.assertRaisesRegex(figures.Failed, rf"^\[bench\].*{path}.* give the source distribution"):
                    measure.unpacked(pathlib.Path(path), pathlib.Path(folder, "scratch"))

    def test_without_a_network_the_error_is_one_line_with_the_remedy(self):
        with tempfile.TemporaryDirectory() as folder, redirect_stderr(io.StringIO()):
            os.environ["PIP_NO_INDEX"] = "1"
            try:
                with self.assertRaisesRegex(figures.Failed, r"^\[bench\] no ps-lite: .*give its path with --source$"):
                    measure.download(pathlib.Path(folder))
            finally:
                del os.environ["PIP_NO_INDEX"]


class Page(unittest.TestCase):
    def test_the_result_prints_its_tables_and_where_they_come_from(self):
        here = {"processor": "P", "cores": 2, "commit": "c", "kernel": "k", "load_average": 0.5}
        result = {"machine": here, "rounds": 1, "skipped": {"BytePS's server": "broken"},
                  "rows": compare.rows_of([round_of(1.0)], [MIB])}
        out = io.StringIO()
        with redirect_stdout(out):
            compare.print_tables(result, "compare")
        for text in ("**Full sync exchange over TCP loopback, 2 workers, 1 server, momentum**", "`compare` on 2 cores",
                     "One round. ps-lite of byteps", "Skipped: BytePS's server: broken."):
            self.assertIn(text, out.getvalue())


if __name__ == "__main__":
    sys.argv.pop(1)
    unittest.main(verbosity=2)
