#!/usr/bin/env python3
"""Tests the scripts that make the wheel, with libraries of a few lines, and the wheel in dist/ if scripts/wheel.sh has
built one.

    tests/client/wheel_test.py
"""
import ctypes
import errno
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts" / "wheel"))
import check  # noqa: E402
import write  # noqa: E402

COMPILER = os.environ.get("CXX", "g++")
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


class NotLinked(Exception):
    pass


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def library(self, text, *flags, name="libguest.so"):
        source = self.folder / f"{name}.cpp"
        source.write_text(text)
        path = self.folder / name
        done = subprocess.run([COMPILER, "-shared", "-fPIC", "-fvisibility=hidden", "-o", path, source, *flags], capture_output=True, text=True)
        if done.returncode != 0:
            raise NotLinked(done.stderr)
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

    def test_make_a_library_that_lists_the_variables_of_its_program(self):
        text = """
#include <string.h>
#include <unistd.h>
extern "C" char** __wrap_environ;
char** __wrap_environ = nullptr;
extern "C" __attribute__((visibility("default"))) int pp_run() {
  for (char** entry = __environ; *entry; ++entry) if (!strcmp(*entry, "PP_LISTED=1")) return environ == nullptr ? 0 : 2;
  return 1;
}"""
        library = self.library(text, *self.stubs("2.17"), "-Wl,--wrap=environ")
        os.environ["PP_LISTED"] = "1"
        self.addCleanup(os.environ.pop, "PP_LISTED")
        self.assertEqual(0, self.call(library))

    def test_refuse_a_symbol_that_the_old_glibc_lacks(self):
        text = "#include <unistd.h>\nextern \"C\" __attribute__((visibility(\"default\"))) int pp_run() { return gettid(); }"
        with self.assertRaisesRegex(NotLinked, "undefined reference to `gettid'"):
            self.library(text, *self.stubs("2.28"), "-Wl,--no-undefined")

    def test_have_the_names_where_an_old_loader_looks_for_them(self):
        self.stubs("2.28")
        for library, name in (("libc.so.6", "fork"), ("libpthread.so.0", "pthread_create"), ("libdl.so.2", "dlsym"), ("librt.so.1", "shm_open")):
            names = [line.split()[-1] for line in check.lines("nm", "-D", self.folder / "stubs" / library)]
            self.assertIn(f"{name}@@GLIBC_2.2.5", names)


REPLACEMENTS = """
#include "client/old_glibc.cpp"
#include <atomic>
#include <stdexcept>
#include <thread>
#define PP_API extern "C" __attribute__((visibility("default")))
using Numbers = int64_t[5];
static int copy(int result, const struct stat& file, Numbers& numbers) {
  const Numbers found = {file.st_size, file.st_mode, static_cast<int64_t>(file.st_ino), file.st_mtim.tv_sec, file.st_mtim.tv_nsec};
  std::copy(std::begin(found), std::end(found), numbers);
  return result == 0 ? 0 : errno;
}
PP_API int pp_stat(int kind, const char* path, Numbers& numbers) {
  struct stat file = {};
  const int opened = open(path, O_RDONLY | O_CLOEXEC);
  const int result = kind == 0   ? stat(path, &file)
                     : kind == 1 ? lstat(path, &file)
                     : kind == 2 ? fstat(opened, &file)
                     : kind == 3 ? fstat64(opened, reinterpret_cast<struct stat64*>(&file))
                                 : fstatat(AT_FDCWD, path, &file, AT_SYMLINK_NOFOLLOW);
  const int code = copy(result, file, numbers);
  close(opened);
  return code;
}
PP_API int pp_throw() {
  try {
    throw std::runtime_error("caught by a table that _dl_find_object found");
  } catch (const std::exception&) {
    return 0;
  }
}
PP_API int pp_unknown_code() {
  dl_find_object found;
  return _dl_find_object(nullptr, &found);
}
PP_API int pp_entropy(char* bytes, size_t size) { return getentropy(bytes, size) == 0 ? 0 : errno; }
PP_API int pp_memory() {
  const int file = memfd_create("test", MFD_CLOEXEC);
  return file < 0 || ftruncate(file, 4096) != 0 || close(file) != 0;
}
PP_API int pp_cleared() {
  char secret[] = "secret";
  __explicit_bzero_chk(secret, 6, sizeof secret);
  return secret[0] != 0 || secret[5] != 0;
}
// Waits until the deadline, or until another thread has set the flag if there is one.
PP_API int pp_wait(int milliseconds, int with_notice) {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
  bool set = false;
  pthread_mutex_lock(&mutex);
  std::thread other([&] {
    if (with_notice == 0) return;
    pthread_mutex_lock(&mutex);
    set = true;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&mutex);
  });
  const int64_t end = now(CLOCK_MONOTONIC) + milliseconds * (kSecond / 1000);
  const timespec until = {end / kSecond, end % kSecond};
  int result = 0;
  while (!set && result == 0) result = clockwait_by_steps(&changed, &mutex, CLOCK_MONOTONIC, &until);
  const bool early = now(CLOCK_MONOTONIC) < end;
  pthread_mutex_unlock(&mutex);
  other.join();
  return set ? 1 : result == ETIMEDOUT && !early ? 2 : 3;
}
"""


class FunctionsOfLaterGlibcs(Folder):
    """client/old_glibc.cpp, in a library that is linked as the wheel's."""

    def setUp(self):
        super().setUp()
        flags = ["-std=c++20", "-O1", f"-I{ROOT}", "-static-libstdc++", "-static-libgcc", "-Wl,--exclude-libs,ALL", "-Wl,--gc-sections", "-Wl,--no-undefined",
                 self.stubs("2.17")[0]]
        self.path = self.library(REPLACEMENTS, *flags)
        self.functions = ctypes.CDLL(str(self.path))

    def test_do_what_those_of_glibc_do(self):
        self.assertEqual([], [line for line in check.library_mistakes(self.path, "2.17") if "exports" not in line])
        link = self.folder / "link"
        link.symlink_to(self.path)
        for path in (self.path, link, self.folder, self.folder / "missing"):
            for kind, reference in enumerate((os.stat, os.lstat, os.stat, os.stat, os.lstat)):
                numbers = (ctypes.c_int64 * 5)()
                code = self.functions.pp_stat(kind, os.fsencode(path), numbers)
                if not path.exists():
                    self.assertEqual(errno.EBADF if kind in (2, 3) else errno.ENOENT, code)
                    continue
                want = reference(path)
                seconds, rest = divmod(want.st_mtime_ns, 10**9)
                self.assertEqual((0, want.st_size, want.st_mode, want.st_ino, seconds, rest), (code, *numbers))
        self.assertEqual(0, self.functions.pp_throw())
        self.assertEqual(-1, self.functions.pp_unknown_code())
        self.assertEqual(0, self.functions.pp_memory())
        self.assertEqual(0, self.functions.pp_cleared())

    def test_give_random_bytes_of_at_most_256(self):
        first, second = (ctypes.create_string_buffer(256) for _ in range(2))
        self.assertEqual([0, 0], [self.functions.pp_entropy(place, ctypes.c_size_t(256)) for place in (first, second)])
        self.assertNotEqual(first.raw, second.raw)
        self.assertEqual(errno.EIO, self.functions.pp_entropy(ctypes.create_string_buffer(257), ctypes.c_size_t(257)))

    def test_wait_until_the_deadline_and_no_longer_than_for_a_notice(self):
        self.assertEqual(2, self.functions.pp_wait(250, 0))  # longer than one step
        self.assertEqual(2, self.functions.pp_wait(-5, 0))
        self.assertEqual(1, self.functions.pp_wait(600_000, 1))


class OfAPackage(Folder):
    """Makes wheels of a small library and a stand-in for a package of the programs."""

    def programs(self, program, without=""):
        """Returns a tarball as scripts/package.sh packs it. program: an ELF file. without: the last part of a path to leave out."""
        digits = "share/pushpull/digits/train-images.idx3-ubyte"
        contents = {path: b"#!/bin/sh\n" for path in (f"bin/{name}" for name in sorted(check.COMMANDS))}
        contents.update({path: program.read_bytes() for path in ("libexec/pushpull", "lib/pushpull/loader/pushpull")})
        contents.update({f"lib/pushpull/{name}": self.library("", "-nostdlib", name="empty.so").read_bytes() for name in (
            "libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "libpthread.so.0", "libdl.so.2")})
        contents.update({digits: b"digits", "share/man/man1/pushpull.1": b"a page", "share/doc/pushpull/licences/libc6": b"a licence"})
        path = self.folder / "programs.tar.gz"
        with tarfile.open(path, "w:gz") as archive:
            for name, content in contents.items():
                if without and name.endswith(without):
                    continue
                entry = tarfile.TarInfo(f"pushpull-1.2/{name}")
                entry.size, entry.mode = len(content), 0o755 if name.startswith(("bin/", "libexec/", "lib/pushpull/loader/")) else 0o644
                archive.addfile(entry, io.BytesIO(content))
        return path

    def wheel(self, text, *flags, without=""):
        library = self.library(text, *flags)
        return write.write(self.folder / "out", library, "1.2", "2.28", self.programs(library, without), package=ROOT / "tests" / "client")


class TheCheck(OfAPackage):
    def test_names_a_symbol_that_is_too_young(self):
        found = check.wheel_mistakes(self.wheel(GUEST, "-lm"))
        self.assertRegex("\n".join(found), r"needs pthread_create of GLIBC_2\.34; expected GLIBC_2\.28 or older")

    def test_names_a_foreign_export(self):
        text = "extern \"C\" __attribute__((visibility(\"default\"))) int zmq_version() { return 1; }"
        self.assertRegex("\n".join(check.wheel_mistakes(self.wheel(text, "-nostdlib"))), "exports zmq_version; expected pp_")

    def test_names_a_library_outside_glibc(self):
        text = GUEST + "#include <zmq.h>\nint used() { return zmq_errno(); }\nint (*kept)() = used;"
        self.assertRegex("\n".join(check.wheel_mistakes(self.wheel(text, "-lzmq"))), r"needs .*libzmq\.so\.5.*; expected libraries of glibc only")

    def test_names_what_the_programs_lack(self):
        found = "\n".join(check.wheel_mistakes(self.wheel(GUEST, *self.stubs("2.28"), without="bin/pushpull-proxy")))
        self.assertRegex(found, r"the commands are .*; expected .*pushpull-proxy")
        for path, line in (("lib/pushpull/libc.so.6", r"libexec/pushpull needs libc\.so\.6, which is missing"),
                           ("loader/pushpull", r"loader/pushpull is missing"), ("ubyte", r"the digits are missing")):
            self.assertRegex("\n".join(check.wheel_mistakes(self.wheel(GUEST, *self.stubs("2.28"), without=path))), line)

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


class TheWriter(OfAPackage):
    def test_writes_the_same_bytes_for_the_same_input(self):
        library = self.library(GUEST)
        programs = self.programs(library)
        wheels = [write.write(self.folder / name, library, "1.2", "2.28", programs, package=ROOT / "tests" / "client") for name in ("a", "b")]
        self.assertEqual(*(wheel.read_bytes() for wheel in wheels))
        with zipfile.ZipFile(wheels[0]) as archive:
            names = archive.namelist()
        self.assertIn("pushpull-1.2.data/scripts/pushpull", names)
        self.assertIn("pushpull-1.2.dist-info/licenses/libc6", names)
        self.assertNotIn("pushpull/_programs/share/man/man1/pushpull.1", names)


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
        self.assertFalse(str(ROOT).encode() in self.path.read_bytes(), f"{self.path.name} has the text {ROOT}")

    def test_finds_the_variables_of_each_launcher(self):
        rank, hosts = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}, "127.0.0.1"
        launchers = {
            "torchrun": {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", **rank},
            "Open MPI": {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0", **rank},
            "Slurm": {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_LOCALID": "0",
                      "SLURM_STEP_NODELIST": hosts, "SLURM_STEP_NUM_TASKS": "2", **rank},
            "PUSHPULL_JOIN": {"PUSHPULL_JOIN": "tcp://127.0.0.1:1"}}
        for name, variables in launchers.items():
            with self.subTest(name):
                said = self.opened("auto" if name != "PUSHPULL_JOIN" else None, variables)
                self.assertNotIn("finds no launcher's variables", said)
                self.assertRegex(said, r"127.0.0.1", said)
        self.assertIn("finds no launcher's variables", self.opened("auto", {}))

    def opened(self, join, variables):
        """Returns what a program prints that joins with the wheel's library."""
        words = [sys.executable, "-c", JOIN, str(self.path), *([join] if join else [])]
        return subprocess.run(words, capture_output=True, text=True, env={"PATH": os.environ["PATH"], **variables}).stdout

    def test_answers_a_bad_address_with_its_line(self):
        # the line passes through an exception, and so through the unwinder in the library
        self.assertRegex(self.opened("nowhere", {}), r"^2 .*nowhere")


class TheInstalledWheel(Folder):
    """The wheel as pip installs it: in a folder of its own (--target) and in an environment."""

    def setUp(self):
        super().setUp()
        wheels = list((ROOT / "dist").glob("pushpull-*.whl"))
        if not wheels:
            self.skipTest("dist/ has no wheel; scripts/wheel.sh builds one in minutes")
        if subprocess.run([sys.executable, "-c", "import pip, ensurepip"], capture_output=True).returncode:
            self.skipTest("this Python has no pip")
        self.wheel = wheels[0]

    def done(self, *words, code=0, **variables):
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PUSHPULL_", "PYTHONPATH"))}
        environment.update(HOME=str(self.folder), PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_ROOT_USER_ACTION="ignore", **variables)
        done = subprocess.run([str(word) for word in words], cwd=self.folder, env=environment, capture_output=True, text=True, timeout=240)
        self.assertEqual(code, done.returncode, f"{words}: {done.stdout[-800:]}{done.stderr[-800:]}")
        return done.stdout + done.stderr

    def trains(self, bin_folder, **variables):
        """A job of the programs alone, from a folder that knows nothing of the wheel."""
        out = self.folder / "out"
        self.done(bin_folder / "pushpull", "run", "--model", "mlp", "--dataset", "digits", "--epochs", 1, "--workers", 2, "--out", out, **variables)
        self.assertGreater(json.loads((out / "summary.json").read_text())["steps"], 0)

    def test_runs_from_a_folder_of_its_own(self):
        site = self.folder / "a site"
        self.done(sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", site, self.wheel)
        self.trains(site / "bin")
        self.assertRegex(self.done(sys.executable, "-m", "pushpull", "--version", PYTHONPATH=str(site)), r"^pushpull \d")
        link = self.folder / "pp"
        link.symlink_to(site / "bin" / "pushpull")
        self.assertRegex(self.done(link, "--version"), r"^pushpull \d")
        self.assertIn("unknown command", self.done(sys.executable, "-m", "pushpull", "rnu", code=2, PYTHONPATH=str(site)))
        shutil.rmtree(site / "pushpull")
        self.assertRegex(self.done(site / "bin" / "pushpull", "--version", code=2), r"no package of pushpull that brings pushpull; install")

    def test_runs_in_an_environment_and_leaves_no_trace_in_it(self):
        environment = self.folder / "env"
        self.done(sys.executable, "-m", "venv", environment)
        before = set(environment.rglob("*"))
        self.done(environment / "bin/pip", "install", "--quiet", "--no-index", self.wheel)
        self.trains(environment / "bin")
        for program in sorted(check.COMMANDS - {"pushpull-netlab"}):
            self.assertRegex(self.done(environment / "bin" / program, "--version"), rf"^{program} \d")
        python = environment / "bin/python"
        self.assertRegex(self.done(python, "-m", "pushpull", "--version"), r"^pushpull \d")
        said = self.done(python, "-c", "from pushpull._session import Session; Session()", code=2)
        self.assertIn("pushpull run --worker", said)
        self.done(environment / "bin/pip", "uninstall", "--quiet", "--yes", "pushpull")
        left = {path for path in set(environment.rglob("*")) - before if path.suffix != ".pyc" and path.name != "__pycache__"}
        self.assertEqual(set(), left)


JOIN = """
import ctypes, sys
class Options(ctypes.Structure):
    _fields_ = [("join", ctypes.c_char_p), ("join_timeout", ctypes.c_double), ("key", ctypes.c_char_p), ("insecure", ctypes.c_int),
                ("listen", ctypes.c_char_p), ("advertise", ctypes.c_char_p)]
library = ctypes.CDLL(sys.argv[1])
library.pp_error.restype = ctypes.c_char_p
library.pp_error.argtypes = library.pp_free.argtypes = [ctypes.c_void_p]
session = ctypes.c_void_p()
join = sys.argv[2].encode() if len(sys.argv) > 2 else None
code = library.pp_open(ctypes.byref(Options(join=join, join_timeout=0.2, insecure=1)), ctypes.byref(session))
if code == 0:
    code = library.pp_join(session, ctypes.c_int(-1), ctypes.create_string_buffer(256))
print(code, library.pp_error(session).decode())
library.pp_free(session)
"""


if __name__ == "__main__":
    unittest.main()
