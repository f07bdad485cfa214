#!/usr/bin/env python3
"""Tests the scripts that make the wheel, with libraries of a few lines, and the wheel in dist/ if scripts/wheel.sh has
built one.

    tests/client/wheel_test.py [COMPILER]
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts" / "wheel"))
import check  # noqa: E402
import write  # noqa: E402

COMPILER = "g++"
GUEST = """
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
static void* run(void* sum) { *(double*)sum = exp(1.0); return 0; }
extern "C" __attribute__((visibility("default"))) int pp_run() {
  pthread_t thread;
  double sum = 0;
  if (pthread_create(&thread, 0, run, &sum) || pthread_join(thread, 0)) return 1;
  if (dlsym(RTLD_DEFAULT, "no_such_name")) return 2;
  fflush(stderr);
  return sum > 2.7 && sum < 2.8 ? 0 : 3;
}
"""


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def library(self, text, *flags, name="libguest.so"):
        source = self.folder / f"{name}.cpp"
        source.write_text(text)
        path = self.folder / name
        subprocess.run([COMPILER, "-shared", "-fPIC", "-fvisibility=hidden", "-o", path, source, *flags], check=True, capture_output=True)
        return path

    def stubs(self, glibc):
        subprocess.run([ROOT / "scripts" / "wheel" / "glibc_stubs.py", glibc, self.folder / "stubs"], check=True)
        return f"-L{self.folder / 'stubs'}", "-nodefaultlibs", "-lm", "-lgcc", "-lc"

    def call(self, library, function="pp_run"):
        code = f"import ctypes, sys; sys.exit(ctypes.CDLL({str(library)!r}).{function}())"
        return subprocess.run([sys.executable, "-c", code]).returncode


class Stubs(Folder):
    def test_make_a_library_that_needs_old_symbols_only_and_runs_here(self):
        old = self.library(GUEST, *self.stubs("2.28"))
        self.assertLessEqual(check.number(check.oldest_glibc(old)), (2, 28))
        self.assertEqual([], check.library_mistakes(old, "2.28"))
        self.assertEqual(0, self.call(old))
        new = self.library(GUEST, "-lm", name="libnew.so")
        self.assertGreater(check.number(check.oldest_glibc(new)), (2, 28), "the check would pass without stubs, too")

    def test_refuse_a_symbol_that_the_old_glibc_lacks(self):
        text = "#include <unistd.h>\nextern \"C\" __attribute__((visibility(\"default\"))) int pp_run() { return gettid(); }"
        with self.assertRaises(subprocess.CalledProcessError):
            self.library(text, *self.stubs("2.28"), "-Wl,--no-undefined")

    def test_have_the_names_where_an_old_loader_looks_for_them(self):
        self.stubs("2.28")
        for library, name in (("libc.so.6", "fork"), ("libpthread.so.0", "pthread_create"), ("libdl.so.2", "dlsym"), ("librt.so.1", "shm_open")):
            names = [line.split()[-1] for line in check.lines("nm", "-D", self.folder / "stubs" / library)]
            self.assertIn(f"{name}@@GLIBC_2.2.5", names)


class TheCheck(Folder):
    def wheel(self, text, *flags):
        return write.write(self.folder / "out", self.library(text, *flags), "1.2", "2.28", package=ROOT / "tests" / "client")

    def test_names_a_symbol_that_is_too_young(self):
        found = check.wheel_mistakes(self.wheel(GUEST, "-lm"))
        self.assertRegex("\n".join(found), r"needs pthread_create of GLIBC_2\.34; expected GLIBC_2\.28 or older")

    def test_names_a_foreign_export(self):
        text = "extern \"C\" __attribute__((visibility(\"default\"))) int zmq_version() { return 1; }"
        self.assertRegex("\n".join(check.wheel_mistakes(self.wheel(text, "-nostdlib"))), "exports zmq_version; expected pp_")

    def test_names_a_library_outside_glibc(self):
        text = GUEST + "#include <zmq.h>\nint used() { return zmq_errno(); }\nint (*kept)() = used;"
        self.assertRegex("\n".join(check.wheel_mistakes(self.wheel(text, "-lzmq"))), r"needs .*libzmq\.so\.5.*; expected libraries of glibc only")

    def test_names_a_changed_file_and_a_wrong_tag(self):
        good = self.wheel(GUEST, *self.stubs("2.28"))
        self.assertEqual([], check.wheel_mistakes(good))
        bad = good.with_name(good.name.replace("2_28", "2_99"))
        with zipfile.ZipFile(good) as source, zipfile.ZipFile(bad, "w") as copy:
            for name in source.namelist():
                copy.writestr(name, source.read(name) + (b"#" if name.endswith("METADATA") else b""))
            copy.writestr("pushpull/more.py", b"")
        found = "\n".join(check.wheel_mistakes(bad))
        self.assertRegex(found, r"METADATA has sha256=")
        self.assertRegex(found, r"RECORD lacks pushpull/more\.py")
        self.assertRegex(found, r"WHEEL says .*2_28.*; expected .*2_99")


class TheWriter(Folder):
    def test_writes_the_same_bytes_for_the_same_input(self):
        library = self.library(GUEST)
        wheels = [write.write(self.folder / name, library, "1.2", "2.28", package=ROOT / "tests" / "client") for name in ("a", "b")]
        self.assertEqual(*(wheel.read_bytes() for wheel in wheels))


class TheBuiltWheel(Folder):
    def setUp(self):
        super().setUp()
        wheels = list((ROOT / "dist").glob("pushpull-*.whl"))
        if not wheels:
            self.skipTest("dist/ has no wheel; scripts/wheel.sh builds one in minutes")
        self.wheel = wheels[0]
        with zipfile.ZipFile(self.wheel) as archive:
            archive.extractall(self.folder)
        self.package = self.folder / "pushpull"
        self.path = self.package / "libpushpull.so.0"

    def test_passes_its_check(self):
        self.assertEqual([], check.wheel_mistakes(self.wheel))

    def test_exports_each_function_that_the_package_calls(self):
        called = set()
        for path in self.package.rglob("*.py"):
            called |= set(re.findall(r"\bpp_(?:open|join|attach|next|announced|weights|gradient|end|report|fail|error|free|set_log)\b", path.read_text()))
        exported = {line.split()[-1] for line in check.lines("nm", "-D", "--defined-only", self.path)}
        self.assertEqual(set(), called - exported)

    def test_names_no_path_of_the_machine_that_built_it(self):
        self.assertNotIn(str(ROOT).encode(), self.path.read_bytes())

    def test_answers_a_bad_address_with_its_line(self):
        # the line passes through an exception, and so through the unwinder in the library
        code = """
import ctypes, sys
class Options(ctypes.Structure):
    _fields_ = [("join", ctypes.c_char_p), ("join_timeout", ctypes.c_double), ("key", ctypes.c_char_p), ("insecure", ctypes.c_int),
                ("listen", ctypes.c_char_p), ("advertise", ctypes.c_char_p)]
library = ctypes.CDLL(sys.argv[1])
library.pp_error.restype = ctypes.c_char_p
library.pp_error.argtypes = library.pp_free.argtypes = [ctypes.c_void_p]
session = ctypes.c_void_p()
code = library.pp_open(ctypes.byref(Options(join=b"nowhere", insecure=1)), ctypes.byref(session))
if code == 0:
    code = library.pp_join(session, ctypes.c_int(-1), ctypes.create_string_buffer(256))
print(code, library.pp_error(session).decode())
library.pp_free(session)
"""
        said = subprocess.run([sys.executable, "-c", code, str(self.path)], check=True, capture_output=True, text=True).stdout
        self.assertRegex(said, r"^2 .*nowhere")


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        COMPILER = sys.argv.pop(1)
    unittest.main()
