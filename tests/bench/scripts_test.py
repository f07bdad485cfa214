#!/usr/bin/env python3
"""Tests the scripts that measure: their tables and JSON on made-up measurements, and their refusals.
  scripts_test.py FOLDER_OF_THE_PROGRAMS
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "bench/peers")]
import exchange  # noqa: E402
import figures  # noqa: E402
import performance  # noqa: E402
import speed_compare  # noqa: E402

MIB = figures.MIB

# Replaces the real one: writes rows like `pushpull bench`, with times that depend on the numbers of processes.
FAKE_PUSHPULL = f"#!{sys.executable} -IS\n" + """import json, sys
words = dict(zip(sys.argv[2::2], sys.argv[3::2]))
workers, servers = int(words["--workers"]), int(words["--servers"])
if workers == 3:
    sys.exit("no three")
rows = [{"bytes": int(b), "transport": t, "workers": workers, "exchange_us_p50": 1000.0 * workers,
         "exchange_us_p99": 5000.0, "floor_us_p50": 500.0 * workers, "ratio": 2.0,
         "note": "none to be had" if t == "shm" else None}
        for t in words["--transport"].split(",") for b in words["--bytes"].split(",")]
json.dump({"rows": rows}, open(words["--out"], "w"))
"""


def started(script, *words, **variables):
    return subprocess.run([ROOT / script, *map(str, words)], capture_output=True, text=True, check=False,
                          timeout=120, env={**os.environ, **variables})


class Figures(unittest.TestCase):
    def test_ratios_are_taken_within_a_round_not_of_medians(self):
        rounds = [{"a": 1, "b": 10}, {"a": 20, "b": 10}, {"a": 3, "b": 1}]
        self.assertEqual({"median": 2.0, "min": 0.1, "max": 3.0}, figures.ratios(rounds, "a", "b"))

    def test_a_round_without_one_of_the_two_does_not_count(self):
        rounds = [{"a": 1}, {"a": 4, "b": 2}, {"b": 1}]
        self.assertEqual({"median": 2.0, "min": 2.0, "max": 2.0}, figures.ratios(rounds, "a", "b"))
        self.assertIsNone(figures.ratios([{"a": 1}], "a", "b"))
        self.assertEqual("–", figures.cell(None))

    def test_numbers_have_three_digits_and_no_exponent(self):
        for value, text in ((0.01234, "0.0123"), (0.0000901, "0.0000901"), (1.5, "1.5"), (99.96, "100"), (123456, "123,000")):
            self.assertEqual(text, figures.number(value))

    def test_a_failing_program_is_named_with_its_output(self):
        with self.assertRaisesRegex(figures.Failed, r"\[bench\] sh ended with 3: broken"):
            figures.run(["sh", "-c", "echo broken >&2; exit 3"])
        with self.assertRaisesRegex(figures.Failed, "no /none; build it"):
            figures.run(["/none"])
        with self.assertRaisesRegex(figures.Failed, "has not ended within"):
            figures.run(["sleep", "60"], timeout_s=0.1)

    def test_the_callers_variables_do_not_reach_a_job(self):
        os.environ["PUSHPULL_LR"] = "3"
        try:
            self.assertEqual("", figures.run(["sh", "-c", "printf %s \"$PUSHPULL_LR\""]))
        finally:
            del os.environ["PUSHPULL_LR"]


class SpeedTables(unittest.TestCase):
    def setUp(self):
        self.rounds = []
        for slow in (1.0, 2.0, 4.0):  # the machine slows down for all programs
            round_ = {("pushpull", "shm", MIB): 120 * slow, ("floor", "shm", MIB): 100 * slow,
                      ("pushpull", "tcp", MIB): 900 * slow, ("floor", "tcp", MIB): 800 * slow,
                      ("gloo", MIB): 1200 * slow, ("mpi", "tcp", MIB): 600 * slow, ("push", "tcp", MIB): 210 * slow,
                      ("raw push", "tcp", MIB): 200 * slow, ("zmq push", "tcp", MIB): 300 * slow,
                      ("sync", "mlp"): 300 / slow, ("async", "mlp"): 330 / slow,
                      ("ddp", "mlp"): 200 / slow, ("alone", "mlp"): 400 / slow}
            self.rounds.append(round_)

    def test_exchanges_are_compared_with_floor_and_peer(self):
        shm, tcp = speed_compare.exchange_rows(self.rounds, [MIB])
        self.assertAlmostEqual(1.2, shm["over_floor"]["median"])
        self.assertAlmostEqual(0.1, shm["over_gloo"]["max"])
        self.assertAlmostEqual(0.75, tcp["over_gloo"]["min"])
        self.assertEqual({"median": 240, "min": 120, "max": 480}, shm["pushpull_us"])
        self.assertIsNone(shm["over_mpi"])
        self.assertAlmostEqual(1.5, tcp["over_mpi"]["median"])
        self.assertIn("| shm, 1 MiB | 0.24 (0.12-0.48) |", speed_compare.exchange_table([shm, tcp]))

    def test_training_is_compared_with_ddp_and_with_no_exchange(self):
        row, = speed_compare.training_rows(self.rounds, ["mlp"])
        self.assertAlmostEqual(1.5, row["sync_over_ddp"]["median"])
        self.assertAlmostEqual(1.1, row["async_over_sync"]["median"])
        self.assertAlmostEqual(0.75, row["sync_over_alone"]["median"])
        self.assertIn("mlp 1024,1024", speed_compare.training_table([row]))

    def test_a_single_worker_is_compared_with_raw_sockets(self):
        row, = speed_compare.alone_rows(self.rounds, [MIB])
        self.assertAlmostEqual(1.05, row["push_over_raw"]["median"])
        self.assertAlmostEqual(0.7, row["push_over_zmq"]["median"])
        self.assertIsNone(row["pull_over_raw"])

    def test_the_result_can_be_written_as_json(self):
        result = speed_compare.result_of(self.rounds, ["exchange", "training"], [MIB], ["mlp"])
        back = json.loads(json.dumps(result))
        self.assertEqual({"exchange", "alone", "training"}, set(back))
        self.assertEqual({"transport", "bytes", "pushpull_us", "floor_us", "over_floor", "gloo_us",
                          "over_gloo", "mpi_us", "over_mpi"}, set(back["exchange"][0]))


class Refusals(unittest.TestCase):
    def test_wrong_arguments_end_with_2_and_the_remedy(self):
        for script, words, text in (
                ("bench/peers/run_speed.sh", ["--rounds", "0"], "--rounds"),
                ("bench/peers/run_speed.sh", ["--only", "all"], "choose from"),
                ("bench/peers/run_speed.sh", ["--models", "vgg"], "there are mlp"),
                ("bench/peers/run_speed.sh", ["--bin", "/none"], "no /none/pushpull; build it"),
                ("bench/exchange.py", ["--workers", "0"], "--workers"),
                ("bench/exchange.py", ["--transport", "rdma"], "shm, ipc, tcp"),
                ("bench/performance.py", ["--only", "cpu"], "memory, links")):
            done = started(script, *words)
            self.assertEqual(2, done.returncode, done.stderr)
            self.assertIn(text, done.stderr)

    def test_a_python_without_torch_is_reported_and_not_counted(self):
        with tempfile.TemporaryDirectory() as folder:
            python = pathlib.Path(folder) / "python"
            python.write_text("#!/bin/sh\nexit 1\n")
            python.chmod(0o755)
            done = subprocess.run(
                [sys.executable, "-c", "import speed_compare, json; p = speed_compare.Peers('.', ['training']);"
                 "print(json.dumps([p.skipped, p.take('PyTorch', lambda: 1 / 0)]))"],
                cwd=ROOT / "bench/peers", env={**os.environ, "PYTHON": str(python)}, capture_output=True,
                text=True, check=True, timeout=60)
        skipped, taken = json.loads(done.stdout)
        self.assertIn("install python3-torch", skipped["PyTorch"])
        self.assertEqual({}, taken)
        self.assertIn("skipped: PyTorch", done.stderr)


class Matrix(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        program = pathlib.Path(self.folder.name) / "pushpull"
        program.write_text(FAKE_PUSHPULL)
        program.chmod(0o755)

    def test_every_shape_is_run_and_written(self):
        out = pathlib.Path(self.folder.name) / "out.json"
        done = started("bench/exchange.py", "--bin", self.folder.name, "--bytes", "4096,1048576",
                       "--workers", "1,2", "--transport", "tcp,shm", "--out", out)
        self.assertEqual(0, done.returncode, done.stderr)
        rows = json.loads(out.read_text())["rows"]
        self.assertEqual(2 * 2 * 2 * 2, len(rows))
        self.assertIn("| shm, 2 + 1 | 2 (2.00) | 2 (2.00) |", done.stdout)
        self.assertEqual(1, done.stdout.count("shm: none to be had."))
        self.assertNotIn("tcp: none", done.stdout)

    def test_a_failing_shape_is_named_and_the_others_stay(self):
        out = pathlib.Path(self.folder.name) / "out.json"
        done = started("bench/exchange.py", "--bin", self.folder.name, "--bytes", "4096", "--workers",
                       "2,3", "--servers", "1", "--transport", "tcp", "--out", out)
        self.assertEqual(1, done.returncode)
        self.assertIn("3 workers, 1 server: [bench] pushpull ended with 1: no three", done.stderr)
        self.assertEqual([2], [row["workers"] for row in json.loads(out.read_text())["rows"]])


class Page(unittest.TestCase):
    def test_every_table_has_its_place_in_the_page(self):
        page = performance.PAGE.read_text(encoding="utf-8")
        for name in performance.TABLES:
            changed = performance.replaced(page, name, "new figures")
            self.assertIsNotNone(changed, name)
            self.assertIn(f"<!-- measured: {name} -->\nnew figures\n<!-- end -->", changed)

    def test_every_table_is_filled_and_names_its_command_and_commit(self):
        page = performance.PAGE.read_text(encoding="utf-8")
        for name in performance.TABLES:
            text = page.split(f"<!-- measured: {name} -->\n")[1].split("<!-- end -->")[0]
            for part in ("|---|", "` on ", "commit ", "load average "):
                self.assertIn(part, text, name)

    def test_an_empty_block_takes_nothing_from_the_next(self):
        page = "<!-- measured: a -->\n<!-- end -->\nkept\n<!-- measured: b -->\nold\n<!-- end -->\n"
        self.assertEqual(page.replace("a -->\n", "a -->\nnew\n"), performance.replaced(page, "a", "new"))
        self.assertEqual(page.replace("old", "new"), performance.replaced(page, "b", "new"))

    def test_a_missing_place_is_refused(self):
        self.assertIsNone(performance.replaced("nothing", "memory", "new"))


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
