"""Tests `scripts/package.sh`: the package runs from any folder, with its own libraries, the C library included."""
import json
import os
import pathlib
import re
import subprocess
import sys
import time

from lab import MLP, expect, flags_of

SOURCE = pathlib.Path(__file__).resolve().parents[2]
LOADER = "ld-linux-x86-64.so.2"
USAGE, SKIPPED = 2, 77
MAX_MIB = 80


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
    expect(package.stat().st_size <= MAX_MIB << 20 , text)
    away = lab.folder / name
    away.mkdir()
    code, text = called(["tar", "xf", package, "-C", away])
    expect(code == 0, text)
    folders = list(away.iterdir())
    expect(len(folders) == 1 and folders[0].name.startswith("pushpull-"), f"{folders}")
    return folders[0]


def programs_of(package):
    """Returns the programs, each of which has a launcher of its name in one of the other folders."""
    programs = sorted((package / "libexec").iterdir())
    launcher = (SOURCE / "scripts/package/launch.sh").read_text()
    files = [f for folder in ("bin", "tests", "bench") for f in package.glob(f"{folder}/*") if f.is_file()]
    launchers = {f.name for f in files if f.read_bytes() == launcher.encode()}
    expect(launchers == {p.name for p in programs}, f"launchers {launchers}, programs {programs}")
    return programs


def every_library_is_packed(package):
    programs, libraries = programs_of(package), package / "lib/pushpull"
    expect({"pushpull", "pushpull-server", "pushpull-worker", "device_test"} <= {p.name for p in programs}, f"{programs}")
    used = {LOADER}
    for file in programs:
        code, text = called([libraries / LOADER, "--library-path", libraries, "--list", file], env={})
        expect(code == 0, f"{file}: {text}")
        for name, path in re.findall(r"(\S+) => (.+?)(?: \(0x.*)?$", text, re.MULTILINE):
            expect(path.startswith(str(package)), f"{file} takes {name} from {path}")
            used.add(pathlib.Path(name).name)  # the loader has a path
    packed = {f.name for f in libraries.iterdir() if f.is_file()}
    # the rest of glibc, for libraries of the machine such as its driver's
    glibc = {name for name in packed if re.match(r"lib(m|mvec|dl|rt|pthread|util|resolv|anl|nsl|nss_\w+)\.so", name)}
    expect(used | glibc == packed and {"libzmq.so.5", "libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2"} <= packed,
           f"packed {packed - used - glibc}, which no program uses; not packed {used - packed}")
    expect(not [n for n in packed if re.match("lib(cuda|cublas|cudnn|nvidia)", n)], f"{packed}")
    listed = (package / "PACKAGE").read_text()
    expect(all(name in listed for name in packed) and "needs: x86-64 Linux" in listed, listed)


def a_job_gets_the_bits_of_the_build(lab, package):
    """The package is used by a link to its program, beside libraries of the user's that no program can load."""
    poison = lab.folder / "poison"
    poison.mkdir()
    for name in ("libstdc++.so.6", "libm.so.6", "libzmq.so.5"):  # not libc.so.6, without which there is no shell
        (poison / name).write_text("no library")
    link = lab.folder / "pp"
    link.symlink_to(package / "bin/pushpull")
    hashes = []
    for name, words, env in (("here", [lab.bin_dir / "pushpull"], {}), ("packed", [link], {"LD_LIBRARY_PATH": str(poison)})):
        keys = {**MLP, "out": lab.folder / name}
        code, text = called([*words, "run", "--servers", 1, "--workers", 2, *flags_of(keys)], lab.seconds(120),
                            env={"PATH": "/usr/bin:/bin", **env}, cwd=lab.folder)
        expect(code == 0, f"exit code {code}: {text[-1500:]}")
        hashes.append(json.loads((lab.folder / name / "summary.json").read_text())["weights_sha256"])
    expect(hashes[0] == hashes[1], f"{hashes}")


def a_program_has_its_own_name(package):
    """ps(1) and top(1) show the name of the executed file."""
    process = subprocess.Popen([package / "bin/pushpull-worker", "--join", "tcp://127.0.0.1:1", "--insecure"], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    try:
        proc, maps, end = pathlib.Path(f"/proc/{process.pid}"), "", time.monotonic() + 20
        while "libzmq" not in maps and time.monotonic() < end:  # until then it is the launcher, or being loaded
            time.sleep(0.02)
            maps = (proc / "maps").read_text()
        comm = (proc / "comm").read_text().strip()
        expect(comm == "pushpull-worker", f"the process is named {comm}")
        foreign = {line.split()[-1] for line in maps.splitlines() if ".so" in line and str(package) not in line}
        expect(not foreign, f"loaded from outside the package: {foreign}")
    finally:
        process.kill()
        process.wait()


def the_gpu_check_is_skipped_without_a_gpu(lab, package):
    words = [package / "gpu-check.sh", "--out", lab.folder / "check"]
    if os.path.exists("/dev/nvidiactl"):
        return  # only for machines without a GPU
    code, text = called(words, lab.seconds(120), env={"PATH": "/usr/bin:/bin"}, cwd=lab.folder)
    expect(code == SKIPPED and len(text.splitlines()) == 1 and text.startswith("[gpu-check] skipped: "), f"exit code {code}: {text[-1500:]}")


def the_comparison_with_pytorch_finds_its_files(lab, package):
    pythons = [p for p in ("/usr/bin/python3", sys.executable) if called([p, "-c", "import numpy, torch"])[0] == 0]
    if not pythons:
        return
    code, text = called([pythons[0], package / "tests/e2e/torch_networks_check.py", package / "bin", package / "share/pushpull/digits",
                         "--device", "cpu", "--model", "mlp"], lab.seconds(120), cwd=lab.folder)
    row = re.search(r"^row\tmlp, .*\tof the norm\t-\t(\S+)\t<=1e-04$", text, re.MULTILINE)
    expect(code == 0 and row and float(row[1]) <= 1e-4, f"exit code {code}: {text}")


# One test, because packing takes longer than all the checks.
def a_package_is_complete_and_runs_anywhere(lab):
    package = unpacked(lab, "else where")
    every_library_is_packed(package)
    a_job_gets_the_bits_of_the_build(lab, package)
    a_program_has_its_own_name(package)
    the_gpu_check_is_skipped_without_a_gpu(lab, package)
    the_comparison_with_pytorch_finds_its_files(lab, package)


def mistakes_are_refused_in_one_line(lab):
    script = SOURCE / "scripts" / "package.sh"
    for words, code, word in (
            ([script, "--bulid"], USAGE, "--bulid"), ([script, "--build"], 1, "lacks a folder"),
            ([script, "--build", lab.folder], 1, "has no programs"),
            ([script, "--build", lab.bin_dir.parent, "x.zip"], 1, "ends with .tar.gz"),
            ([SOURCE / "scripts" / "gpu-check.sh", "--build", lab.folder], USAGE, "build it"),
            ([SOURCE / "scripts" / "gpu-check.sh", "--ouT"], USAGE, "--ouT"),
            ([SOURCE / "scripts" / "gpu-check.sh", "--only", "tests,all"], USAGE, "there are tests"),
            ([SOURCE / "scripts" / "gpu-check.sh", "--budget", "8m"], USAGE, "whole number"),
            ([SOURCE / "scripts" / "gpu-check.sh", "--out"], USAGE, "lacks a value")):
        seen, text = called(words, cwd=lab.folder)
        expect(seen == code and word in text and len(text.splitlines()) == 1, f"{words}: {seen}: {text}")


if __name__ == "__main__":
    import lab as base
    base.main(globals())
