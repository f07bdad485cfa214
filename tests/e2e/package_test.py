"""`scripts/package.sh`: what it packs runs where none of its libraries is installed, from any folder."""
import json
import os
import pathlib
import re
import subprocess

from lab import MLP, Skipped, expect, flags_of

SOURCE = pathlib.Path(__file__).resolve().parents[2]
# of one piece with the machine's loader
GLIBC = re.compile(r"(linux-vdso|ld-linux.*|lib(c|m|mvec|dl|rt|pthread|resolv|util|anl))\.so")
USAGE, NO_DEVICE = 2, 3
MAX_MIB = 60


def called(words, seconds=240, **options):
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=seconds, check=False, **options)
    return done.returncode, done.stdout.decode(errors="replace")


def unpacked(lab):
    """A package of this build in a folder that the build knows nothing of."""
    package = lab.folder / "package.tar.gz"
    code, text = called([SOURCE / "scripts" / "package.sh", "--build", lab.bin_dir.parent, package],
                        lab.seconds(240))
    expect(code == 0, f"exit code {code}: {text[-1500:]}")
    expect(package.stat().st_size <= MAX_MIB << 20 and "needs glibc 2." in text, text)
    away = lab.folder / "else where"
    away.mkdir()
    code, text = called(["tar", "xf", package, "-C", away])
    expect(code == 0, text)
    folders = list(away.iterdir())
    expect(len(folders) == 1 and folders[0].name.startswith("pushpull-"), f"{folders}")
    return folders[0]


def programs_of(package):
    files = [f for folder in ("bin", "tests") for f in (package / folder).iterdir()]
    return [f for f in files if f.read_bytes()[:4] == b"\x7fELF"]


def every_library_is_in_the_package_or_of_glibc(lab):
    package = unpacked(lab)
    programs = programs_of(package)
    expect({"pushpull", "pushpull-server", "pushpull-worker", "device_test"} <= {p.name for p in programs}, f"{programs}")
    used = set()
    for file in programs + list((package / "lib/pushpull").iterdir()):
        # a library alone does not know the folder; the program that loads it does
        code, text = called(["ldd", file], env={})
        for name, path in re.findall(r"(\S+) => (.+?)(?: \(0x.*)?$", text, re.MULTILINE):
            here = path.startswith(str(package))
            used |= {name} if here else set()
            expect(here or GLIBC.match(name) or file not in programs, f"{file} takes {name} from {path}")
        expect(file not in programs or (code == 0 and "not found" not in text), text)
    packed = {f.name for f in (package / "lib/pushpull").iterdir()}
    expect(used == packed and "libzmq.so.5" in used, f"packed {packed - used}, which nothing uses")
    expect(not [n for n in packed if re.match("lib(cuda|cublas|cudnn|nvidia)", n)], f"{packed}")
    listed = (package / "PACKAGE").read_text()
    expect(all(name in listed for name in packed) and "needs: x86-64 Linux, glibc 2." in listed, listed)


def a_job_runs_from_the_package(lab):
    package = unpacked(lab)
    out = lab.folder / "out"
    keys = {**MLP, "out": out}
    code, text = called([package / "bin/pushpull", "run", "--servers", 1, "--workers", 2, *flags_of(keys)],
                        lab.seconds(120), env={}, cwd=lab.folder)
    expect(code == 0, f"exit code {code}: {text[-1500:]}")
    expect(json.loads((out / "summary.json").read_text())["weights_sha256"], text)


def the_gpu_check_says_what_could_not_run(lab):
    package = unpacked(lab)
    words = [package / "gpu-check.sh", "--out", lab.folder / "check"]
    if os.path.exists("/dev/nvidiactl"):
        raise Skipped("there is a GPU: this is about machines without one")
    code, text = called(words, lab.seconds(120), env={"PATH": "/usr/bin:/bin"}, cwd=lab.folder)
    expect(code == NO_DEVICE, f"exit code {code}: {text[-1500:]}")
    found = json.loads((lab.folder / "check" / "gpu-check.json").read_text())
    expect(found["no_device"] and found["package"].startswith("pushpull "), f"{found}")
    expect(len(found["rows"]) >= 3, f"{found}")
    for row in found["rows"]:
        expect(row["verdict"] == "not run" and row["seen"] == found["no_device"], f"{row}")
        expect(row["name"] in text and found["no_device"] in text, text)
    expect("0 passed, 0 failed" in text, text)


def stand_in(path, text):
    """A program of a few lines of shell in place of a real one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)


def checked(lab, tests, sanitizer):
    """gpu-check.sh with stand-ins, as if there were a GPU. Returns (code, {(part, program): row})."""
    package = lab.folder / lab.name("package")
    stand_in(package / "gpu-check.sh", "")
    (package / "gpu-check.sh").write_bytes((SOURCE / "scripts/gpu-check.sh").read_bytes())
    (package / "PACKAGE").write_text('pushpull 0 "quoted" \\\n')
    for name, text in tests.items():
        stand_in(package / "tests" / name, text)
        (package / "tests" / f"{name}.filter").write_text("*/Cuda\n")
    if sanitizer:
        stand_in(package / "cuda/bin/compute-sanitizer", sanitizer)
    out = lab.folder / lab.name("check")
    code, text = called([package / "gpu-check.sh", "--out", out], lab.seconds(60), cwd=lab.folder,
                        env={"PATH": "/usr/bin:/bin", "CUDA_HOME": str(package / "cuda")})
    found = json.loads((out / "gpu-check.json").read_text())
    expect(found["package"] == 'pushpull 0 "quoted" \\' and found["no_device"] == "", f"{found}")
    expect(all(row["name"] in text for row in found["rows"]), text)
    return code, {(row["part"], row["name"].split()[0]): row for row in found["rows"]}


GOOD = """[ "$PUSHPULL_REQUIRE_DEVICE" = 1 ] || exit 1
case $* in *--gtest_filter=\\*/Cuda* | *OnDevice*) ;; *) exit 1 ;; esac
echo '[  PASSED  ] 7 tests.'
"""
# as the real one: its own options, then the program with its own
SANITIZER = 'while [ "${1#-}" != "$1" ]; do case $1 in --tool | --error-exitcode) shift ;; esac; shift; done; "$@"\n'


def a_gpu_check_that_passes_ends_with_0(lab):
    code, rows = checked(lab, {"cuda_test": GOOD, "device_test": GOOD}, SANITIZER)
    expect(set(rows) == {("tests", "cuda_test"), ("tests", "device_test"), ("memcheck", "device_test"),
                         ("racecheck", "device_test")}, f"{rows}")
    for row in rows.values():
        expect(row["verdict"] == "passed" and row["seen"] == "7 passed" and row["command"], f"{row}")
    expect(code == 0, f"exit code {code}: {rows}")


def what_fails_in_a_gpu_check_is_a_row_and_not_the_end(lab):
    tests = {"cuda_test": "kill -SEGV $$\n", "device_test": GOOD, "models_test": "echo '[  PASSED  ] 0 tests.'\n",
             "slices_test": "echo '[  PASSED  ] 3 tests.'; echo '[  FAILED  ] 1 test'; exit 1\n"}
    code, rows = checked(lab, tests, 'case "$*" in *racecheck*device_test*) exit 9 ;; esac\n' + SANITIZER)
    expect(code == 1, f"exit code {code}: {rows}")
    wrong = {("tests", "cuda_test"): "exit code 139", ("tests", "models_test"): "0 passed",
             ("tests", "slices_test"): "3 passed, exit code 1", ("racecheck", "device_test"): "findings"}
    for key, seen in wrong.items():
        expect(rows[key]["verdict"] == "FAILED" and seen in rows[key]["seen"], f"{key}: {rows[key]}")
    for key in (("tests", "device_test"), ("memcheck", "device_test")):
        expect(rows[key]["verdict"] == "passed", f"{rows[key]}")


def a_gpu_check_without_the_sanitizer_says_so(lab):
    if os.path.exists("/usr/local/cuda/bin/compute-sanitizer"):
        raise Skipped("there is one")
    code, rows = checked(lab, {"cuda_test": GOOD, "device_test": GOOD}, None)
    expect(code == 0 and rows[("tests", "device_test")]["verdict"] == "passed", f"{code}: {rows}")
    for tool in ("memcheck", "racecheck"):
        row = rows[(tool, "device_test")]
        expect(row["verdict"] == "not run" and "no compute-sanitizer" in row["seen"], f"{row}")


def mistakes_are_refused_in_one_line(lab):
    script = SOURCE / "scripts" / "package.sh"
    for words, code, word in (
            ([script, "--bulid"], USAGE, "--bulid"), ([script, "--build"], 1, "lacks a folder"),
            ([script, "--build", lab.folder], 1, "has no programs"),
            ([script, "--build", lab.bin_dir.parent, "x.zip"], 1, "ends with .tar.gz"),
            ([SOURCE / "scripts" / "gpu-check.sh"], USAGE, "is no package"),
            ([SOURCE / "scripts" / "gpu-check.sh", "--ouT"], USAGE, "--ouT"),
            ([SOURCE / "scripts" / "gpu-check.sh", "--out"], USAGE, "lacks a folder")):
        seen, text = called(words, cwd=lab.folder)
        expect(seen == code and word in text and len(text.splitlines()) == 1, f"{words}: {seen}: {text}")


if __name__ == "__main__":
    import lab as base
    base.main(globals())
