#!/usr/bin/env python3
"""Checks libpushpull.so: it exports the functions of client/pushpull.h and nothing else, and needs no library that
computes.

    tests/client/exports_test.py LIBRARY
"""
import pathlib
import re
import subprocess
import sys
import unittest

HEADER = pathlib.Path(__file__).parent.parent.parent / "client" / "pushpull.h"


def lines(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()


class TheLibrary(unittest.TestCase):
    path = ""

    def test_exports_the_functions_of_its_header_only(self):
        declared = set(re.findall(r"^PP_API .*?\b(pp_\w+)\(", HEADER.read_text(), re.M))
        self.assertGreater(len(declared), 8)
        exported = {line.split()[-1] for line in lines("nm", "-D", "--defined-only", self.path)}
        self.assertEqual(declared, exported)

    def test_needs_no_library_that_computes(self):
        needed = [line for line in lines("ldd", self.path) if re.search("dnnl|omp|cuda|blas|torch", line)]
        self.assertEqual([], needed)


if __name__ == "__main__":
    TheLibrary.path = sys.argv.pop(1)
    unittest.main()
