#!/usr/bin/env python3
"""Tests gpu_compare.py and gpu_torch.py: on the processor against a real PyTorch, if it is installed; ratios on
made-up rounds; messages about failures.
  gpu_compare_test.py FOLDER_OF_THE_PROGRAMS
"""
import contextlib
import io
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import types
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench/peers"), str(ROOT / "tests/models")]
import gpu_compare  # noqa: E402

try:
    import torch
except ImportError:
    torch = None
ROW = re.compile(r"row\t[^\t]+\t[0-9.e+-]+\t[a-z/]+\t([0-9.e+-]+|-)\t([0-9.e+-]+|-)\t([<>]=[0-9.]+|-)$")
NOTE = re.compile(r"(skip|fail)\t[^\t]+\t.+$")

# Trains at once at a fixed rate. With two workers a device is lost: with a server on a device the job hangs then.
FAKE_PUSHPULL = f"#!{sys.executable} -IS\n" + """import json, sys, time
words = dict(zip(sys.argv[2::2], sys.argv[3::2]))
if words["--workers"] == "2":
    print("worker 1 | error: [device] cuda:0 is lost\\nserver 0: the job waits", flush=True)
    if "--server-device" in words:
        time.sleep(1000)
    sys.exit(9)
rate = 3000 if "--server-device" in words else 1000
with open(words["--out"] + "/metrics.jsonl", "w") as file:
    for seconds in (0.25, 0.6, 1.1, 1.7):
        file.write(json.dumps({"seconds": seconds, "samples": int(rate * seconds)}) + "\\n")
time.sleep(1000)
"""
# Answers like gpu_torch.py. With batches of 100 a compilation does not end, and process 1 of two fails, for which the
# other waits.
FAKE_TORCH = """import json, sys, time
for line in sys.stdin:
    question = json.loads(line)
    is_first = question.get("case", {}).get("job", {}).get("global-batch") == 100
    if question.get("compiled"):
        time.sleep(1000 if is_first else 0)
        print("error RuntimeError: no compiler", flush=True)
    elif is_first and sys.argv[2] == "ddp":
        time.sleep(0 if sys.argv[3] == "1" else 1000)
        print("error RuntimeError: process 1 has no memory", flush=True)
    else:
        print("ok", 2000.0 if sys.argv[2] == "alone" else 500.0, flush=True)
"""


# The real program with other peers, and with another least time of a run.
WRAPPER = f"""import pathlib, sys
sys.path.insert(0, {str(ROOT / "bench/peers")!r})
import gpu_compare
gpu_compare.HERE, gpu_compare.LEAST_S = pathlib.Path(__file__).resolve().parent, float(sys.argv.pop(1))
gpu_compare.main()
"""


def compared(*words, python=sys.executable, script=ROOT / "bench/peers/gpu_compare.py"):
    return subprocess.run([python, script, *map(str, words)], capture_output=True, text=True, check=False,
                          timeout=500)


def rows_of(text):
    return {line.split("\t")[1]: line.split("\t") for line in text.splitlines()}


class Rows(unittest.TestCase):
    def setUp(self):
        ours = [gpu_compare.Ours.__new__(gpu_compare.Ours) for _ in range(2)]
        for one, name in zip(ours, ("1 worker, server on the host", "1 worker, server on cuda:0")):
            one.name, one.workers = name, 1
        peer = gpu_compare.Torch.__new__(gpu_compare.Torch)
        peer.name = gpu_compare.EAGER
        self.one = gpu_compare.Comparison("c", {"bar": ">=0.9"}, [peer, *ours])
        host, device = (one.name for one in ours)
        # the machine slows down for all programs, and one program fails in one round
        self.one.values = {peer.name: [100, 50, 25, 25], host: [80, 40, 20, None], device: [110, 55, None, 27.5]}

    def test_ratios_are_taken_within_a_round_and_the_better_server_is_judged(self):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            self.one.rows()
        rows = rows_of(out.getvalue())
        self.assertEqual(["samples/s", "37.5", "0.8", "-"],
                         rows["c: 1 worker, server on the host, over PyTorch, eager"][3:])
        self.assertEqual(["1.1", ">=0.9"],
                         rows["c: the better server (1 worker, server on cuda:0) over PyTorch, eager"][5:])
        self.assertEqual("1.375", rows["c: 1 worker, server on cuda:0, over 1 worker, server on the host"][5])
        self.assertEqual("3", rows["c: rounds"][2])

    def test_failures_are_named_and_ours_count(self):
        self.one.out = {"1 worker, server on cuda:0": gpu_compare.Failed("it ended with 9"),
                        "1 worker, server on the host": gpu_compare.NotRun("out of time"),
                        gpu_compare.EAGER: gpu_compare.Failed("no compiler")}
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            self.one.rows()
        self.assertIn("fail\tc: 1 worker, server on cuda:0\tit ended with 9\n", out.getvalue())
        self.assertIn("skip\tc: PyTorch, eager\tno compiler\n", out.getvalue())
        self.assertNotIn("out of time", out.getvalue())  # it has values of earlier rounds


class Fakes(unittest.TestCase):
    """The whole comparison, with programs that answer like the real ones."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "gpu_torch.py").write_text(FAKE_TORCH)
        self.script = self.folder / "gpu_compare.py"
        self.script.write_text(WRAPPER)
        (self.folder / "pushpull").write_text(FAKE_PUSHPULL)
        (self.folder / "pushpull").chmod(0o755)

    def run_it(self, *words, least=1):
        return compared(least, "--bin", self.folder, "--scratch", self.folder / "jobs", *words, script=self.script)

    def test_all_programs_are_measured_and_all_files_removed(self):
        done = self.run_it("--seconds", 60, "--rounds", 2, "--cases", "convnet-1000")
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        for line in done.stdout.splitlines():
            self.assertTrue(ROW.match(line) or NOTE.match(line), line)
        rows = rows_of(done.stdout)
        self.assertEqual(["1000", "samples/s", "2000", "0.5", "-"],
                         rows["convnet-1000: 1 worker, server on the host, over PyTorch, eager"][2:])
        self.assertEqual(["3000", "samples/s", "2000", "1.5", ">=1"],
                         rows["convnet-1000: the better server (1 worker, server on cuda:0) over PyTorch, eager"][2:])
        self.assertEqual(["skip", "error RuntimeError: no compiler"], rows["convnet-1000: PyTorch, compiled"][::2])
        self.assertEqual("500", rows["convnet-1000: DDP on Gloo, 2 processes"][2])
        for server in ("the host", "cuda:0"):
            self.assertEqual(["fail", "worker 1 | error: [device] cuda:0 is lost"],
                             rows[f"convnet-1000: 2 workers, server on {server}"][::2])
        self.assertEqual([], list((self.folder / "jobs").iterdir()))
        self.assertEqual([], self.left_behind())

    def test_a_compilation_gets_half_of_a_case_and_a_failed_process_ends_the_others(self):
        began = time.monotonic()
        done = self.run_it("--seconds", 16, "--rounds", 1, "--cases", "convnet-100,convnet-1000")
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        self.assertLess(time.monotonic() - began, 16)
        rows = rows_of(done.stdout)
        self.assertEqual(["skip", "no answer in time"], rows["convnet-100: PyTorch, compiled"][::2])
        self.assertEqual(["skip", "error RuntimeError: process 1 has no memory"],
                         rows["convnet-100: DDP on Gloo, 2 processes"][::2])
        self.assertEqual("1000", rows["convnet-100: 1 worker, server on the host, over PyTorch, eager"][2])
        # new processes answer in the next case
        self.assertEqual("error RuntimeError: no compiler", rows["convnet-1000: PyTorch, compiled"][2])
        self.assertEqual("500", rows["convnet-1000: DDP on Gloo, 2 processes"][2])
        self.assertEqual([], self.left_behind())

    def test_runs_of_ours_without_time_are_not_failures(self):
        done = self.run_it("--seconds", 6, "--cases", "convnet-100,convnet-1000", least=5)
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        rows = rows_of(done.stdout)
        for name in ("convnet-100: 1 worker, server on the host", "convnet-100: 2 workers, server on cuda:0", "convnet-1000"):
            self.assertEqual(["skip", "out of time"], rows[name][::2])
        self.assertEqual("2000", rows["convnet-100: PyTorch, eager"][2])

    def test_wrong_arguments_end_with_2(self):
        for words, text in ((["--cases", "vgg"], "no case vgg"), (["--bin", "/none"], "no /none/pushpull")):
            done = self.run_it(*words)
            self.assertEqual(2, done.returncode)
            self.assertIn(text, done.stderr)

    def left_behind(self):
        found = []
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if str(self.folder).encode() in (folder / "cmdline").read_bytes():
                    found.append(folder.name)
        return found


class Clock(unittest.TestCase):
    """The time of a comparison, on a clock that advances only during measurements."""

    def compared(self, seconds, each, cases, rounds=1):
        clock = types.SimpleNamespace(now=100.0)
        clock.monotonic = lambda: clock.now

        class Measured:
            name, workers = gpu_compare.EAGER, 1

            def prepare(self, settings):
                pass

            def measure(self, seconds, deadline):
                clock.now += each
                return 1000.0

            def end(self):
                self.ended = True

        one = Measured()
        arguments = types.SimpleNamespace(seconds=seconds, round_seconds=1.0, rounds=rounds)
        out = io.StringIO()
        with mock.patch.object(gpu_compare, "time", clock), \
                mock.patch.object(gpu_compare, "competitors", lambda _: ([one], [])), contextlib.redirect_stdout(out):
            gpu_compare.compare(arguments, cases)
        self.assertTrue(one.ended)
        return rows_of(out.getvalue()), clock.now - 100

    def test_a_case_without_time_says_so(self):
        rows, _ = self.compared(seconds=15.5, each=0.6, cases=gpu_compare.GPU_CASES)
        first, *others = gpu_compare.GPU_CASES
        self.assertIn(f"{first}: PyTorch, eager", rows)
        for name in others:
            self.assertEqual(["skip", name, "out of time"], rows[name])

    def test_each_case_gets_its_share_of_the_time(self):
        cases = {name: {**gpu_compare.GPU_CASES["gpt"], "share": share} for name, share in (("a", 1), ("b", 1), ("c", 2))}
        rows, took = self.compared(seconds=120, each=7, cases=cases, rounds=20)
        self.assertEqual([], [row for row in rows.values() if row[0] == "skip"])
        # a quarter of the time holds four rounds, a third of the rest too, and what is left nine
        self.assertEqual((4 + 4 + 9) * 7, took)


@unittest.skipIf(torch is None, "no PyTorch here")
class RealPyTorch(unittest.TestCase):
    def test_models_are_the_references_of_our_models(self):
        import models_torch
        import torch_check
        for job, shape, hidden in (({"model": "convnet", "input": "1x28x28"}, [1, 28, 28], None),
                                   ({"model": "mlp", "input": "64", "hidden": "32,32,16"}, [1, 1, 64], [32, 32, 16])):
            mine = models_torch.NETWORKS[job["model"]](job)
            theirs = getattr(torch_check, job["model"])(shape, models_torch.CLASSES, hidden)
            self.assertEqual({k: v.shape for k, v in theirs.state_dict().items()},
                             {k: v.shape for k, v in mine.state_dict().items()})
            mine.load_state_dict(theirs.state_dict())
            images = torch.randn(4, *shape)
            for model in (mine, theirs):
                model.train()
            self.assertTrue(torch.equal(mine(images), theirs(images)), job)

    def test_pushpull_and_pytorch_train_side_by_side(self):
        done = compared("--bin", BIN, "--device", "cpu", "--seconds", 400, "--rounds", 1, "--round-seconds", 0.3)
        self.assertEqual(0, done.returncode, done.stderr)
        rows = rows_of(done.stdout)
        for line in done.stdout.splitlines():
            self.assertTrue(ROW.match(line) or NOTE.match(line), line)
        for case, settings in gpu_compare.CPU_CASES.items():
            names = ["1 worker, server on the host, over PyTorch, eager"]
            if not settings["alone"]:
                names.append("2 workers, server on the host, over DDP on Gloo, 2 processes")
            self.assertEqual(settings["alone"], f"{case}: DDP on Gloo, 2 processes" not in rows)
            for name in names:
                row = rows[f"{case}: {name}"]
                self.assertGreater(float(row[2]), 0)
                self.assertAlmostEqual(float(row[5]), float(row[2]) / float(row[4]), delta=0.01 * float(row[5]))
        self.assertEqual("skip", rows["server on the device"][0])


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    os.environ.pop("PYTHONPATH", None)
    unittest.main(verbosity=2)
