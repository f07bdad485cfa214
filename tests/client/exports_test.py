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
        needed = [line for line in lines("ldd", self.path) if re.search("dnnl|omp|cuda|gloo|blas|torch", line)]
        self.assertEqual([], needed)

    def test_needs_no_library_of_data_sets(self):
        needed = [line for line in lines("readelf", "-d", self.path) if re.search(r"NEEDED.*lib(png\d*|jpeg|z)\.so", line)]
        self.assertEqual([], needed)

    def test_contains_no_cuda(self):
        text = pathlib.Path(self.path).read_bytes()
        self.assertNotIn(b"libcudart", text)
        self.assertNotIn(b"cudaMalloc", text)

    def test_changes_no_signal_stream_or_environment_and_ends_no_process(self):
        # names of functions that its code refers to: the linker leaves other names in the table of symbols
        used = {word.split("@")[0] for line in lines("readelf", "-rW", self.path) for word in line.split()[4:5]}
        self.assertIn("pthread_sigmask", used)
        owned = {"signal", "sigaction", "signalfd", "atexit", "__cxa_atexit", "setlocale", "setenv", "putenv",
                 "unsetenv", "_exit", "_Exit", "exit", "quick_exit", "setrlimit", "mallopt", "chdir", "umask", "_ZSt4cout",
                 "_ZSt4cerr", "_ZSt4clog", "_ZNSt6locale6globalERKS_"}
        self.assertEqual(set(), used & owned)


if __name__ == "__main__":
    TheLibrary.path = sys.argv.pop(1)
    unittest.main()
