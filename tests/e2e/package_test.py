"""Tests `scripts/package.sh`: the package runs from any folder, without any of its libraries installed."""
import json
import os
import pathlib
import re
import subprocess

from lab import MLP, expect, flags_of

SOURCE = pathlib.Path(__file__).resolve().parents[2]
# libraries that belong to the machine's loader
GLIBC = re.compile(r"(linux-vdso|ld-linux.*|lib(c|m|mvec|dl|rt|pthread|resolv|util|anl))\.so")
USAGE, NO_DEVICE = 2, 3
MAX_MIB = 60


def called(words, seconds=240, **options):
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=seconds, check=False, **options)
    return done.returncode, done.stdout.decode(errors="replace")


def unpacked(lab, name):
    """Returns a package of this build, unpacked in a folder that the build does not know."""
    package = lab.folder / "package.tar.gz"
    code, text = called([SOURCE / "scripts" / "package.sh", "--build", lab.bin_dir.parent, package],
                        lab.seconds(240))
    expect(code == 0, f"exit code {code}: {text[-1500:]}")
    expect(package.stat().st_size <= MAX_MIB << 20 and "needs glibc 2." in text, text)
    away = lab.folder / name
    away.mkdir()
    code, text = called(["tar", "xf", package, "-C", away])
    expect(code == 0, text)
    folders = list(away.iterdir())
    expect(len(folders) == 1 and folders[0].name.startswith("pushpull-"), f"{folders}")
    return folders[0]


def programs_of(package):
    files = [f for folder in ("bin", "tests", "bench") for f in (package / folder).iterdir()]
    return [f for f in files if f.read_bytes()[:4] == b"\x7fELF"]


def every_library_is_packed_or_part_of_glibc(package):
    programs = programs_of(package)
    expect({"pushpull", "pushpull-server", "pushpull-worker", "device_test"} <= {p.name for p in programs}, f"{programs}")
    used = set()
    for file in programs + list((package / "lib/pushpull").iterdir()):
        # a library on its own does not find the folder; the program that loads it does
        code, text = called(["ldd", file], env={})
        for name, path in re.findall(r"(\S+) => (.+?)(?: \(0x.*)?$", text, re.MULTILINE):
            here = path.startswith(str(package))
            used |= {name} if here else set()
            expect(here or GLIBC.match(name) or file not in programs, f"{file} takes {name} from {path}")
        expect(file not in programs or (code == 0 and "not found" not in text), text)
    packed = {f.name for f in (package / "lib/pushpull").iterdir()}
    expect(used == packed and "libzmq.so.5" in used, f"packed {packed - used}, which no program uses")
    expect(not [n for n in packed if re.match("lib(cuda|cublas|cudnn|nvidia)", n)], f"{packed}")
    listed = (package / "PACKAGE").read_text()
    expect(all(name in listed for name in packed) and "needs: x86-64 Linux, glibc 2." in listed, listed)


def a_job_runs_from_it(lab, package):
    out = lab.folder / "out"
    keys = {**MLP, "out": out}
    code, text = called([package / "bin/pushpull", "run", "--servers", 1, "--workers", 2, *flags_of(keys)],
                        lab.seconds(120), env={}, cwd=lab.folder)
    expect(code == 0, f"exit code {code}: {text[-1500:]}")
    expect(json.loads((out / "summary.json").read_text())["weights_sha256"], text)


def the_gpu_check_names_the_parts_that_could_not_run(lab, package):
    words = [package / "gpu-check.sh", "--out", lab.folder / "check"]
    if os.path.exists("/dev/nvidiactl"):
        return  # only for machines without a GPU
    code, text = called(words, lab.seconds(120), env={"PATH": "/usr/bin:/bin"}, cwd=lab.folder)
    expect(code == NO_DEVICE, f"exit code {code}: {text[-1500:]}")
    found = json.loads((lab.folder / "check" / "gpu-check.json").read_text())
    expect(found["no_device"] and found["package"].startswith("pushpull "), f"{found}")
    parts = ["machine", "tests", "bits", "kernels", "peers", "training", "sanitizer"]
    expect([row["part"] for row in found["rows"]] == parts, f"{found}")
    for row in found["rows"]:
        expect(row["verdict"] == "not run" and row["seen"] == found["no_device"], f"{row}")
        expect(row["name"] in text and found["no_device"] in text, text)
    expect("0 passed, 0 failed" in text, text)
    expect(text.splitlines()[-1] == f"[gpu-check] nothing could run: {found['no_device']}", text)


# One test, because packing takes longer than all the checks.
def a_package_is_complete_and_runs_anywhere(lab):
    package = unpacked(lab, "else where")
    every_library_is_packed_or_part_of_glibc(package)
    a_job_runs_from_it(lab, package)
    the_gpu_check_names_the_parts_that_could_not_run(lab, package)


def mistakes_are_refused_in_one_line(lab):
    script = SOURCE / "scripts" / "package.sh"
    for words, code, word in (
            ([script, "--bulid"], USAGE, "--bulid"), ([script, "--build"], 1, "lacks a folder"),
            ([script, "--build", lab.folder], 1, "has no programs"),
            ([script, "--build", lab.bin_dir.parent, "x.zip"], 1, "ends with .tar.gz"),
            ([SOURCE / "scripts" / "gpu-check.sh"], USAGE, "is not a package"),
            ([SOURCE / "scripts" / "gpu-check.sh", "--ouT"], USAGE, "--ouT"),
            ([SOURCE / "scripts" / "gpu-check.sh", "--only", "tests,all"], USAGE, "there are machine tests"),
            ([SOURCE / "scripts" / "gpu-check.sh", "--budget", "8m"], USAGE, "whole number"),
            ([SOURCE / "scripts" / "gpu-check.sh", "--out"], USAGE, "lacks a folder")):
        seen, text = called(words, cwd=lab.folder)
        expect(seen == code and word in text and len(text.splitlines()) == 1, f"{words}: {seen}: {text}")


if __name__ == "__main__":
    import lab as base
    base.main(globals())
