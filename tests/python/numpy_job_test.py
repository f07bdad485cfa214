#!/usr/bin/env python3
"""pushpull.numpy with a fake library."""
import os
import sys
import unittest
import unittest.mock

try:
    import numpy
except ImportError as error:
    print(f"skipped: {error}; on Debian it is the package python3-numpy, for /usr/bin/python3")
    sys.exit(77)

from fake_library import EVALUATE, TRAIN, FakeLibrary

import pushpull.numpy as pp


def weights():
    return {"weight": numpy.arange(6, dtype=numpy.float32).reshape(2, 3), "bias": numpy.zeros(2, numpy.float32)}


class AJob(unittest.TestCase):
    def test_hands_out_weights_and_takes_gradients_and_sums(self):
        library = FakeLibrary([(TRAIN, 0, 1, [4, 5]), (EVALUATE, -1, 0, [0, 1, 2])]).install()
        job = pp.join()
        job.attach(weights(), train_samples=10, test_samples=3, data_digest="d", metric="mean squared error",
                   groups=[pp.group("bias", lr=0.5)])
        for task in job.tasks():
            self.assertTrue(numpy.array_equal(task.weights["weight"], weights()["weight"]))
            if task.training:
                self.assertEqual(task.indices.tolist(), [4, 5])
                task.end(0.5, {"weight": 2.0 * task.weights["weight"].T.copy().T})
            else:
                task.report(loss=0.25)
        self.assertEqual(library.given, [{0: [0, 2, 4, 6, 8, 10]}, {}])
        self.assertEqual((library.losses, library.reports), ([0.5], [[(0.75, 3, 0.75)]]))
        self.assertEqual(library.tensors[1], ("bias", [2], 0.5, None, None))
        self.assertEqual(library.data[:3], (10, 3, "d"))

    def test_gives_averages_for_themselves(self):
        library = FakeLibrary([(TRAIN, 0, 1, [4, 5])]).install()
        job = pp.join()
        with self.assertRaisesRegex(pp.Error, "averages names mean: the model has weight, bias"):
            job.attach(weights(), train_samples=10, averages=["mean"])
        job.attach(weights(), train_samples=10, averages=["bias"], groups=[pp.group("*", lr=0.5)])
        self.assertEqual(library.tensors[0][2:], (0.5, None, None))
        self.assertEqual(library.tensors[1][2:], (None, None, 1.0))
        task = next(job.tasks())
        with self.assertRaisesRegex(pp.Error, "new value of bias is missing"):
            task.end(0.5, {})
        task.end(0.5, {"bias": numpy.ones(2, numpy.float32)})
        self.assertEqual(library.given, [{1: [1, 1]}])

    def test_names_mistakes(self):
        FakeLibrary([(TRAIN, 0, 1, [4, 5])] * 2).install()
        job = pp.join()
        with self.assertRaisesRegex(pp.Error, "weight is float64"):
            job.attach({"weight": numpy.zeros(3)}, train_samples=1)
        job.attach(weights(), train_samples=10)
        tasks = job.tasks()
        with self.assertRaisesRegex(pp.Error, "of wieght: the model has weight, bias"):
            next(tasks).end(0.0, {"wieght": numpy.zeros(3)})
        with self.assertRaisesRegex(pp.Error, r"of weight has shape \[3, 2\], expected \[2, 3\]"):
            next(job.tasks()).end(0.0, {"weight": numpy.zeros((3, 2), numpy.float32)})
        with self.assertRaisesRegex(pp.Error, r"of bias has shape \[\], expected \[2\]"):
            next(job.tasks()).end(0.0, {"bias": 0.0})
        with self.assertRaisesRegex(pp.Error, "was not ended"):
            next(tasks)


class Numerics(unittest.TestCase):
    def of_a_job(self, **variables):
        with unittest.mock.patch.dict(os.environ, variables):
            library = FakeLibrary().install()
            pp.join().attach(weights(), train_samples=10)
            return library.data[3]

    def test_name_all_that_bits_depend_on(self):
        text = self.of_a_job(OPENBLAS_NUM_THREADS="", OMP_NUM_THREADS="", MKL_NUM_THREADS="")
        for word in (f"NumPy {numpy.__version__}", "BLAS ", " cores"):
            self.assertIn(word, text)
        with open("/proc/cpuinfo") as file:
            name = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
        self.assertIn((name or ["unknown processor"])[0], text)
        self.assertIn("OPENBLAS_CORETYPE=Haswell", self.of_a_job(OPENBLAS_CORETYPE="Haswell"))
        with_threads = self.of_a_job(OMP_NUM_THREADS="3")
        self.assertIn("OMP_NUM_THREADS=3", with_threads)
        self.assertNotIn(" cores", with_threads)


if __name__ == "__main__":
    unittest.main()
