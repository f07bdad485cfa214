#!/usr/bin/env python3
"""Tests that the benchmark programs run and measure the cases that docs/performance.md names.
  programs_test.py FOLDER_OF_THE_PROGRAMS
"""
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from figures import KIB, MIB, google_benchmark  # noqa: E402

SHORT = "--benchmark_min_time=0.001"
LINKS = ("tcp", "unix", "shm", "zmq_tcp", "zmq_ipc")


def listed(program):
    out = subprocess.run([BIN / program, "--benchmark_list_tests"], capture_output=True, text=True,
                         check=True, timeout=60)
    return set(out.stdout.split())


class Floors(unittest.TestCase):
    def test_every_transport_moves_its_bytes_for_one_and_two_clients(self):
        found = google_benchmark(BIN / "floors_bench", SHORT,
                                 f"--benchmark_filter=^link_.*/bytes:({4 * KIB}|{4 * MIB})/")
        for link in LINKS:
            for verb, ways in (("push", 1), ("pull", 1), ("exchange", 2)):
                for size in (4 * KIB, 4 * MIB):
                    for clients in (1, 2):
                        entry = found[f"link_{link}_{verb}/bytes:{size}/clients:{clients}/real_time"]
                        moved = entry["GB_s"] * 1e9 * entry["p50_us"] / 1e6
                        self.assertAlmostEqual(moved / (ways * clients * size), 1, places=6)
                        self.assertGreaterEqual(entry["p99_us"], entry["p50_us"])

    def test_memory_is_measured_on_one_and_two_threads(self):
        found = google_benchmark(BIN / "floors_bench", SHORT,
                                 f"--benchmark_filter=^memory_.*/bytes:{4 * MIB}/")
        names = {f"memory_{what}/bytes:{4 * MIB}/threads:{threads}/real_time"
                 for what in ("copy", "axpy", "momentum") for threads in (1, 2)}
        self.assertEqual(names, set(found))
        for entry in found.values():
            self.assertGreater(entry["GB_s"], 0)

    def test_sizes_reach_from_a_bias_to_a_large_model(self):
        names = listed("floors_bench")
        for size in (4 * KIB, MIB, 25 * MIB, 100 * MIB):
            self.assertIn(f"link_tcp_exchange/bytes:{size}/clients:2/real_time", names)
        self.assertIn(f"memory_momentum/bytes:{400 * MIB}/threads:2/real_time", names)

    def test_an_unknown_flag_is_refused(self):
        done = subprocess.run([BIN / "floors_bench", "--sizes=1"], capture_output=True, text=True,
                              check=False, timeout=60)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--sizes=1", done.stderr)


class Programs(unittest.TestCase):
    def test_every_optimizer_is_measured_beside_its_floor(self):
        header = (ROOT / "common/update/optimizer_options.h").read_text(encoding="utf-8")
        kinds = re.search(r"enum class OptimizerKind \{([^}]*)\}", header).group(1)
        found = google_benchmark(BIN / "optimizer_bench", SHORT, f"--benchmark_filter=bytes:{MIB}/")
        for kind in re.findall(r"k(\w+)", kinds):
            entry = found[f"update/{kind.lower()}/bytes:{MIB}/manual_time"]
            self.assertGreater(entry["of_floor"], 0)
            self.assertGreater(entry["GB_s"], 0)

    def test_the_operations_of_the_small_models_are_measured(self):
        names = {name.split("/")[0] for name in listed("ops_bench")}
        self.assertEqual(names, {"linear", "convolution", "batch_norm", "pool_and_relayout",
                                 "cross_entropy", "mlp_step", "convnet"})
        found = google_benchmark(BIN / "ops_bench", SHORT, "--benchmark_filter=N:8/")
        for name in ("linear", "cross_entropy"):
            self.assertEqual(3, sum(run.startswith(f"{name}/") for run in found))

    def test_frames_are_encoded_and_decoded(self):
        found = google_benchmark(BIN / "frames_bench", SHORT)
        for verb in ("encode", "decode"):
            for message in ("push", "weights"):
                entry = found[f"{verb}_frames/{message}/slices:16/bytes:{MIB}"]
                self.assertGreater(entry["cpu_time"], 0)


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
