#!/usr/bin/env python3
"""Installs libpushpull.so, and compiles and links a C program with it by pkg-config and by CMake's find_package.

    tests/client/installed_test.py BUILD_FOLDER
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM = """
#include <pushpull.h>
#include <string.h>
int main(void) {
  pp_session* session;
  pp_options options = {.join = "nowhere", .insecure = 1};
  pp_job job;
  int code = pp_open(&options, &session);
  if (code == 0) code = pp_join(session, -1, &job);
  const int named = strstr(pp_error(session), "nowhere") != NULL;
  pp_free(session);
  return code == 2 && named ? 0 : 1;
}
"""
PROJECT = """
cmake_minimum_required(VERSION 3.20)
project(user C)
find_package(pushpull REQUIRED)
add_executable(user user.c)
target_link_libraries(user PRIVATE pushpull::pushpull)
"""


def run(*words, **options):
    return subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True, **options).stdout


class TheInstalledLibrary(unittest.TestCase):
    build = ""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.prefix = self.folder / "prefix"
        run("cmake", "--install", self.build, "--component", "client", "--prefix", self.prefix)
        (self.folder / "user.c").write_text(PROGRAM)

    def test_is_found_by_pkg_config(self):
        if not shutil.which("pkg-config"):
            self.skipTest("no pkg-config")
        environment = {**os.environ, "PKG_CONFIG_PATH": str(self.prefix / "lib" / "pkgconfig")}
        flags = run("pkg-config", "--cflags", "--libs", "pushpull", env=environment).split()
        run("cc", "-std=c99", self.folder / "user.c", "-o", self.folder / "user", *flags)
        run(self.folder / "user", env={**os.environ, "LD_LIBRARY_PATH": str(self.prefix / "lib")})

    def test_is_found_by_cmake(self):
        (self.folder / "CMakeLists.txt").write_text(PROJECT)
        run("cmake", "-S", self.folder, "-B", self.folder / "b", f"-DCMAKE_PREFIX_PATH={self.prefix}")
        run("cmake", "--build", self.folder / "b")
        run(self.folder / "b" / "user")


if __name__ == "__main__":
    TheInstalledLibrary.build = sys.argv.pop(1)
    unittest.main()
